"""One round of catching up: what it reads of a source, its rows, and how they are taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    TableNotFoundError,
)
from pydantic import Field

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import Path, TableRecord
from lance_bridge.entries.tables import load_lance
from lance_bridge.ref import Ref
from lance_bridge.table import Table
from lance_bridge_spark.functions.rows import change
from lance_bridge_spark.functions.rows.change import Once
from lance_bridge_spark.functions.rows.clauses import Clauses, Delete, Insert, Update
from lance_bridge_spark.functions.rows.merge import Merge
from lance_bridge_spark.functions.rows.snapshot import Snapshot
from lance_bridge_spark.lookup import find_table

from .. import targets
from ..kind import Ends, Options, Work
from ..plan import Facts, Item
from ..spark import changes, completeness, listing, schema, snapshots, sources
from ..spark.changes import GONE, Range, Since
from ..spark.session import become_active, told_by_spark
from ..spark.sources import SourceTable
from ..spark.writing import address_at, append, committed, read_back, transaction_of
from ..targets import MARK
from .catalogs import Namespace, target_bridge
from .lineage import origin
from .loading import writing_options

ROWS = "rows"
"""The step that writes a round's rows, and the name of its transaction."""


class Tracked(Options):
    """One table to catch up with: its source as the round before read it, and its target.

    Attributes:
        version: The version of the target that has these rows.
        mark: What the target's entry carries (`targets.MARK`) since it was made; None in plans of
            before it was kept.
    """

    source: SourceTable
    target: tuple[str, ...]
    version: int
    mark: str | None = None
    casts: dict[str, str] = Field(default_factory=dict)
    renames: dict[str, str] = Field(default_factory=dict)


class CatchUpOptions(Options):
    """What is caught up with, and how new rows are told.

    Attributes:
        tables: See `next_round`.
        by: ``column``: rows with a greater value than any in the target. ``partition``: partitions
            that the target has not, or of which it has another number of rows. ``snapshot``: the
            difference of two snapshots of Delta or Iceberg.
        column: With ``column``: such as an increasing id, or the time of the last change. It and
            `key` have the table's names where columns were renamed.
        key: Columns that tell rows apart and are never null. With them rows are updated, too, and
            deleted where the source has them no more (not by ``column``, which does not show it).
            Without them rows may only be added.
        switch_to: The name that each table gets at the end, with ``{table}`` for the source's; by
            default there is no switch-over.
        data_storage_version: Of Lance's files, without a key; max_rows_per_file alike.
    """

    tables: tuple[Tracked, ...]
    by: Literal["column", "partition", "snapshot"]
    column: str | None = None
    key: tuple[str, ...] = ()
    switch_to: str | None = None
    data_storage_version: str | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)


CatchUpEnds = Ends[Any, Namespace]
CatchUpWork = Work[Any, Namespace, CatchUpOptions]


def latest_of(spark: Any, source: SourceTable) -> SourceTable:
    """Return a source as it is now. Raises TableNotFound (4)."""
    if not source.catalog:
        return sources.at_path(spark, source.location, source.format, source.read_options)
    found = listing.described(spark, source.catalog, source.names)
    if found is None:
        raise TableNotFoundError(f"'{source.name}' is not a table of the kind that it was")
    return sources.with_schema(spark, found)


def final_path(item: Item) -> Path:
    """Return the names that a table has after the switch-over."""
    return (*item.target[:-1], item.facts["switch_to"])


def path_now(item: Item, facts: Mapping[str, Any]) -> Path:
    """Return the names that a table has, by what its round has noted."""
    return final_path(item) if facts.get("switched") else item.target


def is_table_of(item: Item, record: TableRecord | None) -> bool:
    """Return whether an entry is that of the table that the plan is for.

    Raises:
        InvalidTableStateError: (19) the plan does not know, which is no reason to take any other.
    """
    mark = item.facts["mark_of_table"]
    if mark is None:
        raise InvalidTableStateError(
            f"The plan does not tell '{item.name}' from another table of its name: leave the table "
            "as it is, and plan anew"
        )
    return record is not None and record.properties.get(MARK) == mark


# -- what both planning and steps read -------------------------------------------------------------


def source_frame(spark: Any, item: Item) -> Any:
    """Return all rows of the source, as the plan pins it."""
    source = SourceTable.model_validate(item.facts["source"])
    return schema.as_target(source.read(spark), item.facts)


def range_of(options: CatchUpOptions, item: Item) -> Range:
    """Return what the plan has the round take."""
    renames = item.facts.get("renames", {})
    partitions = schema.renamed(item.facts["source"]["partitions"], renames)
    columns = [str(options.column)] if options.by == "column" else partitions
    return Range(Since.of(item.facts["since"]), options.by, columns, options.key)


def changes_of(spark: Any, range: Range, item: Item, target: Any) -> Any:
    """Return the rows of the round; see `changes.changed_rows`.

    Args:
        target: The table as the plan found it, where `Range.needs_target`.
    """
    if range.by != "snapshot":
        return changes.changed_rows(source_frame(spark, item), target, range)
    source = SourceTable.model_validate(item.facts["source"])
    found = snapshots.difference(spark, source, range.since.snapshot)
    came = schema.as_target(found.came, item.facts)
    went = None if found.went is None else schema.as_target(found.went, item.facts)
    return changes.changed_rows(came, went, range)


# -- rows ------------------------------------------------------------------------------------------


def apply(work: CatchUpWork) -> Facts:
    """Add the rows of the round, or merge them by key; once, however often it is begun.

    Raises:
        ConcurrentModificationError: (14) others have written to the table, or made it anew.
        LanceNamespaceError: What reading and writing raise.
    """
    become_active(work.ends.source)
    record = load_lance(target_bridge(work), work.item.target)
    if not is_table_of(work.item, record):
        raise ConcurrentModificationError(
            f"'{work.item.name}' is not the table of the plan: somebody has made it anew since"
        )
    made = _made_before(work, record)
    if made is not None:
        return {"version": made}
    _require_directories(work)
    range = range_of(work.options, work.item)
    rows = _rows(work, range)
    return _merge(work, rows) if range.key else _append(work, rows)


def _require_directories(work: CatchUpWork) -> None:
    """Raise InvalidTableState (19) where a directory of the source is missing."""
    source = SourceTable.model_validate(work.item.facts["source"])
    inventory = completeness.take_inventory(work.ends.source, source)
    if inventory.missing:
        raise InvalidTableStateError(completeness.missing_problem(inventory).text)


def _made_before(work: CatchUpWork, record: TableRecord) -> int | None:
    """Return the version that an earlier run of the step has made, or None."""
    if not work.is_repeated:
        return None
    dataset = Table(target_bridge(work), record).open()
    return committed(dataset, transaction_of(work.mark, ROWS), _version_before(work))


def _version_before(work: CatchUpWork) -> int:
    return int(work.item.facts["version_before"])


def _rows(work: CatchUpWork, range: Range) -> Any:
    spark, target = work.ends.source, None
    if range.needs_target:
        address = address_at(work.ends.target, work.item.target)
        target = read_back(spark, address, _version_before(work))
    return changes_of(spark, range, work.item, target)


def _append(work: CatchUpWork, rows: Any) -> Facts:
    loaded = append(
        rows,
        address_at(work.ends.target, work.item.target),
        version=_version_before(work),
        transaction=transaction_of(work.mark, ROWS),
        mark=work.mark,
        options=writing_options(work.options),
        alone=True,
    )
    work.advance(rows=loaded.rows)
    return {"version": loaded.version, "rows_written": loaded.rows}


def _merge(work: CatchUpWork, rows: Any) -> Facts:
    spark = work.ends.source
    table = find_table(address_at(work.ends.target, work.item.target))
    snapshot = Snapshot(spark, table, table.open(Ref(version=_version_before(work)), write=True))
    gone = f"source.`{GONE}`"
    clauses = Clauses((Delete(gone), Update()), Insert(where=f"NOT {gone}"))
    once = Once(transaction_of(work.mark, ROWS), {MARK: work.mark}, alone=True)
    with told_by_spark(f"The changes are not merged into '{work.item.name}'"):
        plan = Merge(snapshot, rows, list(work.options.key), clauses).plan()
        changed = change.apply(snapshot, plan, once)
    count = changed.inserted + changed.updated + changed.deleted
    work.advance(rows=count)
    return {
        "version": changed.version,
        "rows_written": changed.inserted + changed.updated,
        "rows_deleted": changed.deleted,
    }


# -- taking it back --------------------------------------------------------------------------------


def require_own(work: CatchUpWork) -> None:
    """Raise InvalidTableState (19) where others have written since."""
    _to_take_back(work, target_bridge(work))


def restore(work: CatchUpWork) -> None:
    """Make the rows of the version before the round again, as a new version."""
    bridge = target_bridge(work)
    record = _to_take_back(work, bridge)
    if record is None:
        return
    before = _version_before(work)
    dataset = Table(bridge, record).open(Ref(version=before), write=True)
    with Table(bridge, record).committing(dataset, f"version {before} was not restored"):
        dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types


def _to_take_back(work: CatchUpWork, bridge: Bridge) -> TableRecord | None:
    """Return the table's entry where the round has changed rows that are there still, or None.

    Raises:
        InvalidTableStateError: (19) others have changed rows since.
    """
    record = _record(work, bridge)
    if record is None:
        return None
    dataset, before = Table(bridge, record).open(), _version_before(work)
    made = _version_made(work, dataset)
    if made in (None, before):
        return None
    found = origin(dataset, before)
    if found == before:
        return None
    # Others' rows between the two would be taken back with the round's.
    if found == made == before + 1:
        return record
    raise InvalidTableStateError(
        f"'{work.item.name}' has rows in version {int(dataset.version)} that migration "
        f"{work.plan.id} did not write, which undoing would take back: leave the table as it is"
    )


def _record(work: CatchUpWork, bridge: Bridge) -> TableRecord | None:
    """Return the table's entry by the name that it has now; None where it is gone."""
    names = [work.item.target]
    if work.item.facts["switch_to"]:
        names.append(final_path(work.item))
    for path in names:
        record = targets.found(bridge, path)
        if is_table_of(work.item, record):
            return record
    return None


def _version_made(work: CatchUpWork, dataset: lance.LanceDataset) -> int | None:
    """Return the version that has the rows of the round; the one before it where it had none."""
    made = work.facts.get("version")
    if made is None:
        return committed(dataset, transaction_of(work.mark, ROWS), _version_before(work))
    return int(made)
