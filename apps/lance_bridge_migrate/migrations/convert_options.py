"""The options of ``convert``, and the facts that it notes about each table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from lance_bridge.dataset import parse_index_type
from lance_bridge.errors import display
from lance_bridge.names import by_name, find_name
from lance_bridge_spark.rows import index_request
from lance_bridge_spark.schemas import as_new

from ..arrow_files import ArrowFiles
from ..endpoints import Selection
from ..migration import PlainLocation
from ..plan import Item, Options, Problem, blocker, warning
from ..spark import writing
from ..spark.files import Size
from ..spark.sources import OWN_CATALOG, SourceTable
from .registration import EntryFacts


class IndexOptions(Options):
    """An index to build on each table that has the column.

    Attributes:
        kind: As for `lance_bridge_spark.create_index`; likewise parameters.
        name: ``<column>_idx`` by default.
    """

    column: str
    kind: str
    name: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @property
    def index_name(self) -> str:
        return self.name or f"{self.column}_idx"


def indices_on(indices: Sequence[IndexOptions], columns: Sequence[str]) -> tuple[IndexOptions, ...]:
    """Return the indices on existing columns, with names in the letter case of the table."""
    names = [find_name(each.column, columns) for each in indices]
    pairs = zip(indices, names, strict=True)
    return tuple(each.model_copy(update={"column": name}) for each, name in pairs if name)


def index_problems(indices: Sequence[IndexOptions], columns: pa.Schema) -> Iterator[Problem]:
    """Yield the problems of indices for a table with these columns."""
    for each in indices:
        name = find_name(each.column, columns.names)
        if name is None:
            yield warning(f"There is no column for an index of {each.kind}", each.column)
            continue
        field, index_type = columns.field(name), parse_index_type(each.kind)
        index_request(name, each.kind, each.name, each.parameters)
        if not index_type.fits(field):
            text = f"{index_type.name} is for {index_type.needs}, and not for {field.type}"
            yield blocker(text, name)


class PathSource(Options):
    """A directory or file that becomes a table.

    Attributes:
        table: The table's name.
        reader: What reads it: ``spark``, or ``pyarrow`` in this process, which has types that
            Spark does not have.
        read_options: Options of Spark's reader, such as ``header`` for CSV.
    """

    path: PlainLocation
    format: str
    table: str
    reader: Literal["spark", "pyarrow"] = "spark"
    read_options: dict[str, str] = Field(default_factory=dict)


class TableOptions(Options):
    """Options that override `ConvertOptions` for the tables of one pattern; None keeps those.

    Attributes:
        name: The name of the new table, or with ``{table}``; see `ConvertOptions` for the others.
    """

    name: str | None = None
    casts: dict[str, str] | None = None
    renames: dict[str, str] | None = None
    vectors: dict[str, int] | None = None
    sort_by: tuple[str, ...] | None = None
    indices: tuple[IndexOptions, ...] | None = None
    properties: dict[str, str] | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)
    accept_differences: bool | None = None


class ConvertOptions(Selection):
    """What to convert, and the settings of the new tables.

    Attributes:
        catalog: The Spark catalog of the selected tables.
        paths: Directories and files to convert instead of tables of the catalog.
        namespace: The namespace of all new tables. By default each goes into the namespace of its
            own name; if the target has fewer levels, only the last names are used.
        name: The name of each new table, with ``{table}`` for the name of the source.
        make_namespaces: Creates missing namespaces.
        casts: Spark SQL types by column, for types that Lance does not support.
        renames: New names by column. All options except ``casts`` use the new names.
        vectors: Vector lengths by column.
        find_vectors: Reads all columns that are lists of floats, and converts those whose lists
            have the same length to vectors.
        count_rows: Counts the rows for the plan.
        ignore_statistics: Treats statistics of the catalog that count more data than exists as
            outdated, not as a sign of missing files.
        accept_differences: Converts what Spark reads where it differs from the files.
        sort_by: Columns to sort by, if a table has all of them.
        indices: Indices to build on each table that has the column.
        properties: Properties of the new tables.
        data_storage_version: The version of the Lance files; likewise max_rows_per_file.
        tables: Overrides for some tables, by patterns as in ``include``; the first matching
            pattern applies.
    """

    catalog: str = OWN_CATALOG
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
    accept_differences: bool = False
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
    def _have_unique_names(cls, indices: tuple[IndexOptions, ...]) -> tuple[IndexOptions, ...]:
        names = [each.index_name for each in indices]
        if len(set(names)) < len(names):
            raise ValueError("two indices have the same name: name each")
        return indices


class LoadFacts(EntryFacts):
    """The facts about a table that is written with the rows of a source.

    Attributes:
        renames: See `ConvertOptions`; likewise its other options.
        bytes_before: The size of the source; None if unknown.
    """

    renames: dict[str, str] = Field(default_factory=dict)
    max_rows_per_file: int | None = None
    vectors: dict[str, int] = Field(default_factory=dict)
    indices: tuple[IndexOptions, ...] = ()
    bytes_before: int | None = None

    @property
    def schema_of_table(self) -> pa.Schema:
        """The schema of the new table."""
        raise NotImplementedError


class ConvertFacts(LoadFacts):
    """The facts about a table to convert with Spark.

    Attributes:
        source: The source when the plan was made.
        columns: The schema that Spark reads, with casts and renames, in JSON.
        casts: See `ConvertOptions`; likewise its other options.
        files: The number of files of the source and their bytes; None if unknown.
        accepts_differences: Whether it is converted as Spark reads it, whatever the files have.
    """

    source: SourceTable
    columns: str
    casts: dict[str, str] = Field(default_factory=dict)
    sort_by: tuple[str, ...] = ()
    files: Size | None = None
    accepts_differences: bool = False

    @property
    def schema_of_table(self) -> pa.Schema:
        return writing.schema_for(writing.schema_from_json(self.columns), self.vectors)

    def read(self, spark: Any) -> Any:
        """Return the rows of the source, with the types and names of the target."""
        return writing.as_target(self.source.read(spark), self.casts, self.renames)


class ArrowFacts(LoadFacts):
    """The facts about files to convert with pyarrow.

    Attributes:
        arrow_files: The files when the plan was made.
    """

    arrow_files: ArrowFiles

    @property
    def schema_of_table(self) -> pa.Schema:
        read = self.arrow_files.schema
        found = pa.schema([as_new(each, keep_dictionaries=True) for each in read])
        names = writing.renamed(found.names, self.renames)
        lengths = by_name(self.vectors, names)
        return pa.schema(
            [
                _with_vectors(each, lengths.get(name)).with_name(name)
                for name, each in zip(names, found, strict=True)
            ]
        )


def _with_vectors(field: pa.Field, length: int | None) -> pa.Field:
    of = field.type
    if length is None or not (pa.types.is_list(of) or pa.types.is_large_list(of)):
        return field
    return field.with_type(pa.list_(of.value_type, length))


def facts_of(item: Item) -> ConvertFacts | ArrowFacts:
    """Return the facts of a table's item."""
    return ArrowFacts.of(item) if "arrow_files" in item.facts else ConvertFacts.of(item)
