"""``export``: writes Lance tables as Parquet.

Each table becomes a directory and, with the option ``database``, an external Spark table. The
version of the plan is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableVersionNotFoundError,
)
from pydantic import Field

from lance_bridge import locations
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display
from lance_bridge.names import quoted
from lance_bridge.requests import Ref
from lance_bridge.table import Table
from lance_bridge_spark.rows import address_in
from lance_bridge_spark.schemas import require_distinct

from ..endpoints import Endpoints
from ..levels import Level
from ..migration import ItemFacts, MigrationType, PlainLocation, Step, StepContext, Survey
from ..plan import Address, Facts, Item, blocker
from ..record import Check
from ..selection import Selection, entries_of
from ..spark import files, parquet_tables, writing
from ..spark.session import session_at, spark_errors
from ..spark.sources import OWN_CATALOG
from ..spark.writing import read_back
from ..targets import entry_fingerprint
from .loading import bytes_of

_CLEANED_UP = "cleaned up"
"""The fingerprint of a table that no longer has the plan's version."""
_FILES = "files"
"""The step that writes the files, and the fact with their names and sizes."""


class ExportOptions(Selection):
    """What to export, and where to.

    Attributes:
        directory: The parent of the directories ``<namespace>/<table>``, one per table.
        database: An existing database of Spark's own catalog for an external table per directory.
        name: The name of each external table, with ``{table}`` for the name of the source.
        partition_by: Columns to partition by, if a table has all of them.
        compression: The compression of the files, by Spark's name.
    """

    directory: PlainLocation
    database: str | None = None
    name: str = Field(default="{table}", pattern=r"\{table\}")
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"


class ExportFacts(ItemFacts):
    """The facts about a table to export.

    Attributes:
        table: The database and name of the external Spark table, or None.
    """

    version: int
    table: tuple[str, str] | None = None
    partition_by: tuple[str, ...] = ()
    bytes_before: int


class Export(MigrationType):
    """The migration type that this module describes."""

    name = "export"
    reading_step = _FILES
    options_type = ExportOptions

    def connect_target(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        return session_at(address, secrets)

    def survey(self, endpoints: Endpoints, options: ExportOptions) -> Survey:
        files.require_files(endpoints.target)
        files.require_absolute(options.directory)
        entries = entries_of(endpoints.source_tables, options, lance_only=True)
        return Survey([_item(endpoints, each, options) for each in entries])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        table = endpoints.source_tables.load(item.source)
        try:
            table.open(Ref(version=ExportFacts.of(item).version))
        except TableVersionNotFoundError:
            return _CLEANED_UP
        return entry_fingerprint(table)

    def steps(self, item: Item) -> Sequence[Step]:
        written = Step(_FILES, _write, _delete, _require_same_files)
        if ExportFacts.of(item).table is None:
            return [written]
        return [written, Step("table", _create_table, _drop_table, _require_own_table)]

    def verify(self, work: StepContext, level: Level) -> Sequence[Check]:
        return list(_checks(work, level))


# -- planning --------------------------------------------------------------------------------------


def _item(endpoints: Endpoints, entry: TableEntry, options: ExportOptions) -> Item:
    directory = locations.join(options.directory, *entry.path)
    item = Item(source=entry.path, target=(directory,), fingerprint=entry_fingerprint(entry))
    try:
        return _plan_table(endpoints.target, Table.of(entry), options, item)
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _plan_table(spark: Any, source: Table, options: ExportOptions, item: Item) -> Item:
    dataset, directory = source.open(), item.target[0]
    require_distinct(spark, dataset.schema, source.name)
    columns, size, table = dataset.schema, bytes_of(dataset), None
    problems = parquet_tables.column_problems(columns)
    if options.database is not None:
        table = (options.database, options.name.replace("{table}", source.path[-1]))
        problems += parquet_tables.table_problems(spark, *table)
    if files.listing(spark, directory) is not None:
        problems.append(blocker(f"{directory} already exists: name another directory"))
    has_all = set(options.partition_by) <= set(columns.names)
    if options.partition_by:
        problems += parquet_tables.partition_problems(columns, options.partition_by)
    facts = ExportFacts(
        version=int(dataset.version),
        table=table,
        partition_by=options.partition_by if has_all else (),
        bytes_before=size,
    )
    changes = {"facts": facts.to_json(), "rows": dataset.count_rows(), "bytes": size}
    return item.model_copy(update=changes).with_problems(*problems)


# -- files -----------------------------------------------------------------------------------------


def _directory(work: StepContext) -> str:
    return work.item.target[0]


def _staging(work: StepContext) -> str:
    """Return the staging directory: a unique sibling of the target directory.

    Its name starts with a dot, so that readers of the parent directory ignore it.
    """
    above, _, _ = _directory(work).rpartition("/")
    return locations.join(above, f".{work.mark.replace('/', '-')}")


def _read_source(work: StepContext) -> Any:
    address = address_in(work.endpoints.source, work.item.source)
    return read_back(work.endpoints.target, address, ExportFacts.of(work.item).version)


def _write(work: StepContext) -> Facts:
    """Write the files to the staging directory and rename it, unless an earlier run did."""
    spark, directory = work.endpoints.target, _directory(work)
    found = files.listing(spark, directory)
    if found is not None and not _is_own(work, found):
        raise _already_exists(directory)
    if found is not None and _is_staged(work):
        # A rename was interrupted: object stores rename by copying file by file.
        files.delete(spark, directory)
        found = None
    if found is None:
        found = _write_staged(work)
        # Noted before the rename, to recognise the content of the directory.
        work.note(**{_FILES: found})
        if not files.rename(spark, _staging(work), directory):
            raise _already_exists(directory)
    size = sum(found.values())
    work.advance(rows=work.item.rows or 0, size=size)
    return {"rows_written": work.item.rows, "bytes_written": size, "bytes_after": size}


def _write_staged(work: StepContext) -> files.Listing:
    """Write all files to the staging directory, unless an earlier run did, and return them."""
    spark, staging = work.endpoints.target, _staging(work)
    made = files.listing(spark, staging)
    if made is not None and made == work.facts.get(_FILES):
        return made
    frame = _read_source(work)
    with spark_errors(f"{_directory(work)} is not written"), parquet_tables.exact_timestamps(spark):
        writer = frame.write.mode("overwrite").option("compression", work.options.compression)
        writer.partitionBy(*ExportFacts.of(work.item).partition_by).parquet(staging)
    return files.listing(spark, staging) or {}


def _already_exists(directory: str) -> TableAlreadyExistsError:
    return TableAlreadyExistsError(f"{directory} was created after the plan was made")


def _is_staged(work: StepContext) -> bool:
    return files.listing(work.endpoints.target, _staging(work)) is not None


def _is_own(work: StepContext, found: files.Listing) -> bool:
    """Return whether this migration put the files, or a part of them, into the directory.

    While the staging directory exists, the target has at most a part of the files. They are
    recognised by the names of data files, which Spark chooses at random.
    """
    made = work.facts.get(_FILES)
    if made is None:
        return False
    if _is_staged(work):
        return found.items() <= made.items() and any("part-" in name for name in found)
    return bool(found == made)


def _require_same_files(work: StepContext) -> None:
    """Raise InvalidTableState (19) if the content of the directory was changed."""
    found = files.listing(work.endpoints.target, _directory(work))
    made = work.facts.get(_FILES)
    if found is None or made is None or found == made or _is_staged(work):
        return
    raise InvalidTableStateError(
        f"The files in {_directory(work)} are not those that migration {work.plan.id} wrote: they "
        "were changed since"
    )


def _delete(work: StepContext) -> None:
    _require_same_files(work)
    found = files.listing(work.endpoints.target, _directory(work))
    if found is not None and _is_own(work, found):
        files.delete(work.endpoints.target, _directory(work))
    files.delete(work.endpoints.target, _staging(work))


# -- the table -------------------------------------------------------------------------------------


def _table(work: StepContext) -> tuple[str, str]:
    table = ExportFacts.of(work.item).table
    assert table is not None
    return table


def _create_table(work: StepContext) -> Facts:
    spark, table = work.endpoints.target, _table(work)
    by = ExportFacts.of(work.item).partition_by
    if not work.is_repeated or parquet_tables.mark_of(spark, table) != work.mark:
        columns = _read_source(work).schema
        parquet_tables.create_table(
            spark, table, columns, _directory(work), partition_by=by, mark=work.mark
        )
    if by:
        parquet_tables.add_partitions(spark, table)
    return {}


def _require_own_table(work: StepContext) -> None:
    """Raise InvalidTableState (19) if this migration did not create the table of that name."""
    found = parquet_tables.mark_of(work.endpoints.target, _table(work))
    if found not in (None, work.mark):
        raise InvalidTableStateError(
            f"Table '{display(_table(work))}' is not the one that migration {work.plan.id} made"
        )


def _drop_table(work: StepContext) -> None:
    _require_own_table(work)
    name = quoted((OWN_CATALOG, *_table(work)))
    with spark_errors(f"Table '{display(_table(work))}' is not dropped"):
        work.endpoints.target.sql(f"DROP TABLE IF EXISTS {name}")


# -- verifying -------------------------------------------------------------------------------------


def _read_target(work: StepContext, columns: Any) -> Any:
    """Return the written rows. Partition columns have the source's types, not inferred ones."""
    spark, facts = work.endpoints.target, ExportFacts.of(work.item)
    if facts.table is not None:
        return spark.table(quoted((OWN_CATALOG, *facts.table)))
    reader = spark.read.schema(columns) if facts.partition_by else spark.read
    return reader.parquet(_directory(work))


def _checks(work: StepContext, level: Level) -> Iterator[Check]:
    source = _read_source(work)
    with spark_errors(f"{_directory(work)} cannot be read"):
        target = _read_target(work, source.schema)
        columns = {f.name: f.dataType.simpleString() for f in target.schema.fields}
    expected = {f.name: f.dataType.simpleString() for f in source.schema.fields}
    yield Check(name="schema", ok=columns == expected, expected=expected, found=columns)
    if columns.keys() != expected.keys():
        return
    if level.includes(Level.SAMPLE):
        yield from writing.compare_checksums(source, target)
        return
    with spark_errors(f"{_directory(work)} cannot be counted"):
        rows = target.count()
    yield Check(name="rows", ok=rows == work.item.rows, expected=work.item.rows, found=rows)
