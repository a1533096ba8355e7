"""``export``: writes Lance tables as Parquet.

Each table becomes a directory and, with the option ``database``, an external Spark table, which is
recognised by its mark. The version of the plan is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pyarrow as pa
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableVersionNotFoundError,
)
from pydantic import Field

from lance_bridge import locations
from lance_bridge.dotted_names import quoted
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display
from lance_bridge.requests import Ref
from lance_bridge.table import Table
from lance_bridge_spark.rows import address_in
from lance_bridge_spark.schemas import read_type, require_distinct, spark_schema

from .. import Level
from ..endpoints import Endpoints, Selection, entries_of
from ..migration import ItemFacts, MigrationType, PlainLocation, Step, StepContext, Survey
from ..plan import Facts, Item, Problem, blocker, warning
from ..record import Check
from ..spark import files, writing
from ..spark.session import session_at, spark_errors
from ..spark.sources import OWN_CATALOG
from ..spark.writing import bytes_of, read_back
from ..targets import MARK, entry_fingerprint

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
    connect_target = staticmethod(session_at)

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

    def verify(self, work: StepContext, level: Level) -> Iterator[Check]:
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
    problems = [*_column_problems(columns)]
    if options.database is not None:
        table = (options.database, options.name.replace("{table}", source.path[-1]))
        problems += _table_problems(spark, *table)
    if files.listing(spark, directory) is not None:
        problems.append(blocker(f"{directory} already exists: name another directory"))
    has_all = set(options.partition_by) <= set(columns.names)
    if options.partition_by:
        problems += _partition_problems(columns, options.partition_by)
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
    with spark_errors(f"{_directory(work)} is not written"), exact_timestamps(spark):
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


def _table(work: StepContext) -> tuple[str, str]:
    table = ExportFacts.of(work.item).table
    assert table is not None
    return table


def _sql_name(work: StepContext) -> str:
    return quoted((OWN_CATALOG, *_table(work)))


def _create_table(work: StepContext) -> Facts:
    if not work.is_repeated or _mark_of_table(work) != work.mark:
        create_table(work)
    if ExportFacts.of(work.item).partition_by:
        add_partitions(work)
    return {}


def _require_own_table(work: StepContext) -> None:
    """Raise InvalidTableState (19) if this migration did not create the table of that name."""
    if _mark_of_table(work) not in (None, work.mark):
        raise InvalidTableStateError(
            f"Table '{display(_table(work))}' is not the one that migration {work.plan.id} made"
        )


def _drop_table(work: StepContext) -> None:
    _require_own_table(work)
    with spark_errors(f"Table '{display(_table(work))}' is not dropped"):
        work.endpoints.target.sql(f"DROP TABLE IF EXISTS {_sql_name(work)}")


def _read_target(work: StepContext, columns: Any) -> Any:
    """Return the written rows. Partition columns have the source's types, not inferred ones."""
    spark, facts = work.endpoints.target, ExportFacts.of(work.item)
    if facts.table is not None:
        return spark.table(_sql_name(work))
    reader = spark.read.schema(columns) if facts.partition_by else spark.read
    return reader.parquet(_directory(work))


# -- Parquet tables --------------------------------------------------------------------------------


_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_LOCK = Lock()
_WRITERS: dict[Any, int] = {}
"""How many threads write with each session whose setting is changed for them."""


def _column_problems(columns: pa.Schema) -> Iterator[Problem]:
    """Yield problems of columns that Parquet cannot store or stores with another type."""
    for field in columns:
        try:
            [shown] = spark_schema(pa.schema([field])).fields
        except LanceNamespaceError as error:
            yield blocker(str(error), field.name)
            continue
        if _has(field.type, pa.types.is_null):
            yield blocker(f"Parquet has no type for {field.type}", field.name)
        elif _has(field.type, pa.types.is_duration):
            text = f"{field.type} is written as {shown.dataType.simpleString()}: for readers other"
            yield warning(f"{text} than Spark, a number of microseconds", field.name)
        elif not read_type(field.type).equals(field.type) and not (
            pa.types.is_list(field.type)
            and read_type(field.type.value_type).equals(field.type.value_type)
        ):
            text = f"{field.type} is written as {shown.dataType.simpleString()}"
            yield warning(text, field.name)


def _has(of: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type is one of a kind, or has it inside."""
    if isinstance(of, pa.BaseExtensionType):
        return _has(of.storage_type, is_one)
    return is_one(of) or any(_has(of.field(n).type, is_one) for n in range(of.num_fields))


@contextmanager
def exact_timestamps(spark: Any) -> Iterator[None]:
    """Write timestamps in microseconds while any of a session's threads is here.

    Spark's default is a type that pyarrow reads as nanoseconds, which overflow from the year 2262
    on. A setting of the session is kept.
    """
    with _LOCK:
        if spark not in _WRITERS and spark.conf.get(_TIMESTAMPS, None) is None:
            spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
            _WRITERS[spark] = 0
        is_ours = spark in _WRITERS
        if is_ours:
            _WRITERS[spark] += 1
    try:
        yield
    finally:
        with _LOCK:
            if is_ours:
                _WRITERS[spark] -= 1
                if not _WRITERS[spark]:
                    del _WRITERS[spark]
                    spark.conf.unset(_TIMESTAMPS)


def _partition_problems(columns: pa.Schema, by: Sequence[str]) -> Iterator[Problem]:
    missing = ", ".join(name for name in by if name not in columns.names)
    if missing:
        yield warning(f"It is not partitioned: it has no column {missing}")
        return
    if len(by) == len(columns):
        yield blocker("All of its columns would be partitions: leave one to the files")
        return
    for name in by:
        data_type = read_type(columns.field(name).type)
        if pa.types.is_nested(data_type):
            yield blocker(f"{data_type} cannot be in the names of directories", name)
        elif pa.types.is_binary(data_type):
            yield blocker("Binary values cannot be in the names of directories", name)
        elif pa.types.is_timestamp(data_type) and data_type.tz is not None:
            text = "The names of its directories are times of the session's zone"
            yield warning(f"{text} (spark.sql.session.timeZone): read them in the same one", name)
        elif pa.types.is_string(data_type):
            yield warning("An empty text becomes null, as in all partitions of Spark's", name)


def _table_problems(spark: Any, database: str, table: str) -> list[Problem]:
    with spark_errors(f"Database '{database}' cannot be read"):
        if not spark.catalog.databaseExists(f"{OWN_CATALOG}.{quoted((database,))}"):
            return [blocker(f"Database '{database}' does not exist: create it first")]
        if spark.catalog.tableExists(quoted((OWN_CATALOG, database, table))):
            return [blocker(f"'{database}.{table}' already exists: choose another name")]
    return []


def create_table(work: StepContext) -> None:
    """Create an external table for the Parquet files, without adding its partitions."""
    by = ExportFacts.of(work.item).partition_by
    parts = f"PARTITIONED BY ({', '.join(quoted((c,)) for c in by)})" if by else ""
    location = _directory(work).replace("\\", "\\\\").replace("'", "\\'")
    columns = _read_source(work).schema.toDDL()
    with spark_errors(f"Table '{display(_table(work))}' is not created"):
        work.endpoints.target.sql(
            f"CREATE TABLE {_sql_name(work)} ({columns}) USING parquet {parts} "
            f"LOCATION '{location}' TBLPROPERTIES ('{MARK}' = '{work.mark}')"
        )


def add_partitions(work: StepContext) -> None:
    """Add all partitions in a table's directory to the table. Idempotent."""
    with spark_errors(f"The partitions of table '{display(_table(work))}' are not added"):
        work.endpoints.target.sql(f"MSCK REPAIR TABLE {_sql_name(work)}")


def _mark_of_table(work: StepContext) -> str | None:
    """Return the mark of a table, "" if it has none, or None if the table does not exist."""
    spark, name = work.endpoints.target, _sql_name(work)
    with spark_errors(f"Table '{display(_table(work))}' cannot be read"):
        if not spark.catalog.tableExists(name):
            return None
        rows = spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
    return next((row["value"] for row in rows if row["key"] == MARK), "")
