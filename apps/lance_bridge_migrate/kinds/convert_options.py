"""The options of ``convert``."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pydantic import Field, field_validator

from lance_bridge.errors import display

from ..kind import Options
from ..secrecy import PlainLocation
from ..selection import Selection
from ..spark import sources
from .loading import IndexOptions


class PathSource(Options):
    """A directory or file that becomes a table.

    Attributes:
        table: The table's name.
        read_options: Those of Spark's reader, such as ``header`` of CSV.
    """

    path: PlainLocation
    format: str
    table: str
    read_options: dict[str, str] = Field(default_factory=dict)


class TableOptions(Options):
    """What is different for the tables of one pattern; None leaves it to `ConvertOptions`.

    Attributes:
        name: Of the new table, or with ``{table}``; see `ConvertOptions` for the others.
    """

    name: str | None = None
    casts: dict[str, str] | None = None
    renames: dict[str, str] | None = None
    vectors: dict[str, int] | None = None
    sort_by: tuple[str, ...] | None = None
    indices: tuple[IndexOptions, ...] | None = None
    properties: dict[str, str] | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)


class ConvertOptions(Selection):
    """What is converted, and what the tables are to be like.

    Attributes:
        catalog: Spark's catalog of the tables that are selected.
        paths: Directories and files; where there are any, no tables of the catalog are taken.
        namespace: Where all tables go. By default each goes into the namespace of its own name,
            with the last names where the target has fewer levels.
        name: The name of each table, with ``{table}`` for the one that it has.
        make_namespaces: Makes namespaces that are not there.
        casts: Types of Spark's SQL for columns of these names: for types that do not fit.
        renames: New names for columns of these names. All options but ``casts`` use the new ones.
        vectors: Lengths of vectors, for columns of these names.
        find_vectors: Looks through columns of lists of floats, and makes those vectors whose
            lists all have one length.
        count_rows: Counts the rows for the plan.
        ignore_statistics: Takes a catalog's statistics that count more than there is for outdated
            ones, and not for a sign that files are missing.
        sort_by: Columns that the rows are sorted by, where a table has all of them.
        indices: What is built on each table that has the column.
        properties: Of the new tables.
        data_storage_version: Of Lance's files; max_rows_per_file alike.
        tables: What is different for some tables, by patterns as in ``include``; the first that
            fits a table counts.
    """

    catalog: str = sources.OWN_CATALOG
    paths: tuple[PathSource, ...] = ()
    namespace: tuple[str, ...] = ()
    name: str = "{table}"
    make_namespaces: bool = True
    casts: dict[str, str] = Field(default_factory=dict)
    renames: dict[str, str] = Field(default_factory=dict)
    vectors: dict[str, int] = Field(default_factory=dict)
    find_vectors: bool = False
    count_rows: bool = True
    ignore_statistics: bool = False
    sort_by: tuple[str, ...] = ()
    indices: tuple[IndexOptions, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    data_storage_version: str | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)
    tables: dict[str, TableOptions] = Field(default_factory=dict)

    def for_table(self, names: tuple[str, ...]) -> ConvertOptions:
        """Return the options of one table."""
        name = display(names).lower()
        for pattern, own in self.tables.items():
            if fnmatchcase(name, pattern.lower()):
                given = {key: getattr(own, key) for key in own.model_fields_set}
                return self.model_copy(update=given)
        return self

    @field_validator("indices")
    @classmethod
    def _have_names_of_their_own(
        cls, indices: tuple[IndexOptions, ...]
    ) -> tuple[IndexOptions, ...]:
        names = [each.index_name for each in indices]
        if len(set(names)) < len(names):
            raise ValueError("two indices of one name: give each a name of its own")
        return indices
