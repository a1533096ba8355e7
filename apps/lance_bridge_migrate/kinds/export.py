"""``export``: tables of Lance are written as Parquet, for whatever reads that: the way out.

Each table becomes a directory, and, where a database of Spark's is named, an external table of it.
The version of the plan is what is written.
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

from lance_bridge import location as locations
from lance_bridge.catalog import TableRecord
from lance_bridge.entries.tables import load_lance
from lance_bridge.errors import display
from lance_bridge.names import quoted
from lance_bridge.ref import Ref
from lance_bridge.table import Table

from ..ends import bridge_of, catalog_at
from ..journal import Check
from ..kind import Ends, Kind, Step, Survey, Work
from ..levels import Level
from ..plan import Address, Facts, Item, blocker
from ..secrecy import PlainLocation
from ..selection import Selection, entries_of
from ..spark import checksums, files, outgoing
from ..spark.session import session_at, told_by_spark
from ..spark.sources import OWN_CATALOG
from ..spark.writing import address_at, read_back
from ..targets import fingerprint_of
from .catalogs import Namespace
from .loading import bytes_of


class ExportOptions(Selection):
    """What is exported, and where to.

    Attributes:
        directory: Under it goes a directory ``<namespace>/<table>`` for each table.
        database: Of Spark's own catalog: gets an external table for each of them. It must be there.
        name: The name of each table there, with ``{table}`` for the one that it has.
        partition_by: Columns that a table's directory is partitioned by, where it has all of them.
        compression: Of the files, as Spark calls it.
    """

    directory: PlainLocation
    database: str | None = None
    name: str = Field(default="{table}", pattern=r"\{table\}")
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"


_CLEANED_UP = "cleaned up"
"""The fingerprint of a table without the version of the plan."""

ExportEnds = Ends[Namespace, Any]
ExportWork = Work[Namespace, Any, ExportOptions]


class Export(Kind[Namespace, Any, ExportOptions]):
    """See the module."""

    name = "export"
    summary = "Write tables of Lance as Parquet, into directories or tables of Spark's"
    reading_step = "files"
    options_type = ExportOptions

    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Namespace]:
        return catalog_at(address, secrets)

    def connect_target(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        return session_at(address, secrets)

    def survey(self, ends: ExportEnds, options: ExportOptions) -> Survey:
        files.require_files(ends.target)
        files.require_absolute(options.directory)
        records = [each for each in entries_of(bridge_of(ends.source), options) if each.is_lance]
        return Survey([_item(ends, record, options) for record in records])

    def fingerprint(self, ends: ExportEnds, options: ExportOptions, item: Item) -> str:  # noqa: ARG002
        bridge = bridge_of(ends.source)
        record = load_lance(bridge, item.source)
        try:
            Table(bridge, record).open(Ref(version=item.facts["version"]))
        except TableVersionNotFoundError:
            return _CLEANED_UP
        return fingerprint_of(record)

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:
        written = Step("files", _write, _delete, _require_same_files)
        if item.facts["table"] is None:
            return [written]
        return [written, Step("table", _create, _drop, _require_own_table)]

    def verify(self, work: ExportWork, level: Level) -> Sequence[Check]:
        return list(_checks(work, level))


# -- planning --------------------------------------------------------------------------------------


def _item(ends: ExportEnds, record: TableRecord, options: ExportOptions) -> Item:
    place = locations.join(options.directory, *record.path)
    item = Item(source=record.path, target=(place,), fingerprint=fingerprint_of(record))
    try:
        return _surveyed(ends, record, options, item)
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _surveyed(ends: ExportEnds, record: TableRecord, options: ExportOptions, item: Item) -> Item:
    dataset = Table(bridge_of(ends.source), record).open()
    size = bytes_of(dataset)
    table = None
    problems = outgoing.problems_of(dataset.schema)
    if options.database is not None:
        table = options.name.replace("{table}", record.path[-1])
        problems += outgoing.table_problems(ends.target, options.database, table)
    if files.listing(ends.target, item.target[0]) is not None:
        problems.append(blocker(f"{item.target[0]} is there already: name another directory"))
    has_all = set(options.partition_by) <= set(dataset.schema.names)
    if options.partition_by:
        problems += outgoing.partition_problems(dataset.schema, options.partition_by)
    facts = {
        "version": int(dataset.version),
        "table": table,
        "partition_by": list(options.partition_by) if has_all else [],
        "bytes_before": size,
    }
    changes = {"facts": facts, "rows": dataset.count_rows(), "bytes": size}
    return item.model_copy(update=changes).with_problems(*problems)


# -- files -----------------------------------------------------------------------------------------


def _place(work: ExportWork) -> str:
    return work.item.target[0]


def _staging(work: ExportWork) -> str:
    """Return where the files are written: beside the place, by a name that is nobody else's.

    What reads the directory above leaves out names that begin with a dot.
    """
    above, _, _ = _place(work).rpartition("/")
    return locations.join(above, f".{work.mark.replace('/', '-')}")


def _source(work: ExportWork) -> Any:
    address = address_at(work.ends.source, work.item.source)
    return read_back(work.ends.target, address, work.item.facts["version"])


def _write(work: ExportWork) -> Facts:
    """Write a directory beside the place, and give it its name; or find that a run has done so."""
    spark, place = work.ends.target, _place(work)
    there = files.listing(spark, place)
    if there is not None and not _is_own(work, there):
        raise _taken(place)
    if there is not None and _is_staged(work):
        # Object stores rename by copying file after file: it was cut off.
        files.delete(spark, place)
        there = None
    if there is None:
        there = _written(work)
        # On disk before the rename: what is in the place is recognised by it.
        work.note(files=there)
        if not files.rename(spark, _staging(work), place):
            raise _taken(place)
    size = sum(there.values())
    work.advance(rows=work.item.rows or 0, size=size)
    return {"rows_written": work.item.rows, "bytes_written": size, "bytes_after": size}


def _written(work: ExportWork) -> files.Listing:
    """Have all files in the directory beside the place, and return them."""
    spark, staging = work.ends.target, _staging(work)
    made = files.listing(spark, staging)
    if made is not None and made == work.facts.get("files"):
        return made
    frame = _source(work)
    with told_by_spark(f"{_place(work)} is not written"):
        writer = frame.write.mode("overwrite").option("compression", work.options.compression)
        writer.partitionBy(*work.item.facts["partition_by"]).parquet(staging)
    return files.listing(spark, staging) or {}


def _taken(place: str) -> TableAlreadyExistsError:
    return TableAlreadyExistsError(f"{place} is there: somebody else has made it")


def _is_staged(work: ExportWork) -> bool:
    return files.listing(work.ends.target, _staging(work)) is not None


def _is_own(work: ExportWork, there: files.Listing) -> bool:
    """Return whether this migration put what is in the place there, or a part of it.

    While its files are beside the place, at most a part of them is in it. That is known by the
    names of files with rows, which Spark chooses at random.
    """
    made = work.facts.get("files")
    if made is None:
        return False
    if _is_staged(work):
        return there.items() <= made.items() and any("part-" in name for name in there)
    return bool(there == made)


def _require_same_files(work: ExportWork) -> None:
    """Raise InvalidTableState (19) where somebody changed what is in the directory."""
    there = files.listing(work.ends.target, _place(work))
    made = work.facts.get("files")
    if there is None or made is None or there == made or _is_staged(work):
        return
    raise InvalidTableStateError(
        f"The files in {_place(work)} are not those that migration {work.plan.id} wrote: "
        "somebody else has changed them"
    )


def _delete(work: ExportWork) -> None:
    _require_same_files(work)
    there = files.listing(work.ends.target, _place(work))
    if there is not None and _is_own(work, there):
        files.delete(work.ends.target, _place(work))
    files.delete(work.ends.target, _staging(work))


# -- the table -------------------------------------------------------------------------------------


def _table(work: ExportWork) -> tuple[str, str]:
    return str(work.options.database), work.item.facts["table"]


def _create(work: ExportWork) -> Facts:
    spark, table = work.ends.target, _table(work)
    by = work.item.facts["partition_by"]
    if not work.is_repeated or outgoing.mark_of(spark, table) != work.mark:
        columns = _source(work).schema
        outgoing.create_table(spark, table, columns, _place(work), partition_by=by, mark=work.mark)
    if by:
        outgoing.find_partitions(spark, table)
    return {}


def _require_own_table(work: ExportWork) -> None:
    """Raise InvalidTableState (19) where the table of that name is not this migration's."""
    found = outgoing.mark_of(work.ends.target, _table(work))
    if found not in (None, work.mark):
        raise InvalidTableStateError(
            f"Table '{display(_table(work))}' is not the one that migration {work.plan.id} made"
        )


def _drop(work: ExportWork) -> None:
    _require_own_table(work)
    name = quoted((OWN_CATALOG, *_table(work)))
    with told_by_spark(f"Table '{display(_table(work))}' is not dropped"):
        work.ends.target.sql(f"DROP TABLE IF EXISTS {name}")


# -- verifying -------------------------------------------------------------------------------------


def _reader(work: ExportWork, source: Any) -> Any:
    """Return a reader that takes the types of partition columns from the source, unguessed."""
    reader = work.ends.target.read
    return reader.schema(source.schema) if work.item.facts["partition_by"] else reader


def _checks(work: ExportWork, level: Level) -> Iterator[Check]:
    spark = work.ends.target
    source = _source(work)
    with told_by_spark(f"{_place(work)} cannot be read"):
        table = work.item.facts["table"]
        by_name = quoted((OWN_CATALOG, *_table(work))) if table else ""
        target = spark.table(by_name) if table else _reader(work, source).parquet(_place(work))
        columns = {f.name: f.dataType.simpleString() for f in target.schema.fields}
    expected = {f.name: f.dataType.simpleString() for f in source.schema.fields}
    yield Check(name="schema", ok=columns == expected, expected=expected, found=columns)
    if columns.keys() != expected.keys():
        return
    if level.includes(Level.SAMPLE):
        yield from checksums.compare_checksums(source, target)
        return
    with told_by_spark(f"{_place(work)} cannot be counted"):
        rows = target.count()
    yield Check(name="rows", ok=rows == work.item.rows, expected=work.item.rows, found=rows)
