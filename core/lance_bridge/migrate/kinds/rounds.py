"""One round of catching up: what it reads of a source, its rows, and how they are taken back."""

from __future__ import annotations

from typing import Any, Literal

from lance_namespace.errors import InvalidTableStateError, TableNotFoundError
from pydantic import Field

from ...bridge import Bridge
from ...entries.tables import load_lance
from ...spark.functions.rows import change
from ...spark.functions.rows.clauses import Clauses, Delete, Insert, Update
from ...spark.functions.rows.merge import Merge
from ...spark.functions.rows.snapshot import Snapshot
from ...tables.commits import committing
from ...tables.dataset import Ref, open_dataset
from .. import targets
from ..kind import Ends, Options, Work
from ..plan import Facts, Item
from ..spark import changes, listing, schema, sources
from ..spark.changes import GONE, Since
from ..spark.session import become_active, told_by_spark
from ..spark.sources import SourceTable
from ..spark.writing import address_at, append, committed, read_back, transaction_of
from .catalogs import Namespace, target_bridge
from .loading import writing_options

ROWS = "rows"
"""The step that writes a round's rows, and the name of its transaction."""


class Tracked(Options):
    """One table to catch up with: its source as the round before read it, and its target."""

    source: SourceTable
    target: tuple[str, ...]
    casts: dict[str, str] = Field(default_factory=dict)


class CatchUpOptions(Options):
    """What is caught up with, and how new rows are told.

    Attributes:
        tables: See `next_round`.
        by: ``column``: rows with a greater value than any in the target. ``partition``: partitions
            that the target has not, or of which it has another number of rows. ``snapshot``: the
            difference of two snapshots of Delta or Iceberg.
        column: With ``column``: such as an increasing id, or the time of the last change.
        key: Columns that tell rows apart and are never null. With them rows are updated, too, and
            deleted where the source has them no more (not by ``column``, which does not show it).
            Without them rows may only be added.
        switch_to: The name that each table gets at the end, with ``{table}`` for the source's; by
            default there is no switch-over.
    """

    tables: tuple[Tracked, ...]
    by: Literal["column", "partition", "snapshot"]
    column: str | None = None
    key: tuple[str, ...] = ()
    switch_to: str | None = None
    data_storage_version: str | None = None
    max_rows_per_file: int | None = None


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


# -- what both planning and steps read -------------------------------------------------------------


def source_frame(spark: Any, item: Item) -> Any:
    """Return all rows of the source, as the plan pins it."""
    source = SourceTable.model_validate(item.facts["source"])
    return schema.cast(source.read(spark), item.facts["casts"])


def changes_of(spark: Any, options: CatchUpOptions, item: Item, target: Any) -> Any:
    """Return the rows of the round; see `changes.changed_rows`."""
    source = SourceTable.model_validate(item.facts["source"])
    before = None
    if options.by == "snapshot" and item.facts["snapshot_before"] is not None:
        earlier = source.model_copy(update={"snapshot": item.facts["snapshot_before"]})
        before = schema.cast(earlier.read(spark), item.facts["casts"])
    columns = [str(options.column)] if options.by == "column" else list(source.partitions)
    return changes.changed_rows(
        source_frame(spark, item),
        target,
        before,
        Since.of(item.facts["since"]),
        by=options.by,
        columns=columns,
        key=options.key,
    )


# -- rows ------------------------------------------------------------------------------------------


def apply(work: CatchUpWork) -> Facts:
    """Add the rows of the round, or merge them by key."""
    spark, item = work.ends.source, work.item
    become_active(spark)
    address = address_at(work.ends.target, item.target)
    before = item.facts["version_before"]
    target = read_back(spark, address, before)
    rows = changes_of(spark, work.options, item, target)
    if work.options.key:
        return _merge(work, rows)
    loaded = append(
        rows,
        address,
        version=before,
        transaction=transaction_of(work.mark, ROWS),
        mark=work.mark,
        options=writing_options(work.options),
    )
    work.advance(rows=loaded.rows)
    return {"version": loaded.version, "rows_written": loaded.rows}


def _merge(work: CatchUpWork, rows: Any) -> Facts:
    """Update, delete and insert by key; done again, it comes to the same rows."""
    spark = work.ends.source
    table = address_at(work.ends.target, work.item.target).find()
    snapshot = Snapshot(spark, table, table.open(write=True))
    gone = f"source.`{GONE}`"
    clauses = Clauses((Delete(gone), Update()), Insert(where=f"NOT {gone}"))
    with told_by_spark(f"The changes are not merged into '{work.item.name}'"):
        plan = Merge(snapshot, rows, list(work.options.key), clauses).plan()
        changed = change.apply(snapshot, plan)
    count = changed.inserted + changed.updated + changed.deleted
    work.advance(rows=count)
    return {
        "version": changed.version,
        "rows_written": changed.inserted + changed.updated,
        "rows_deleted": changed.deleted,
    }


def _version_made(work: CatchUpWork, bridge: Bridge) -> int | None:
    """Return the version that the round made, or None where it made none.

    Raises:
        InvalidTableStateError: (19) there are versions after that, or that it cannot be sure of.
    """
    record = targets.found(bridge, work.item.target)
    if record is None:
        return None
    dataset = open_dataset(bridge, record)
    latest, before = int(dataset.version), int(work.item.facts["version_before"])
    if latest == before:
        return None
    made = work.facts.get("version") or committed(dataset, transaction_of(work.mark, ROWS), before)
    # Taken back before, by an undo that was cut off: its version is the one that was noted.
    if latest in (made, work.facts.get("restored")):
        return latest
    raise InvalidTableStateError(
        f"Version {latest} of '{work.item.name}' is not one that migration {work.plan.id} has "
        "noted: run it to its end first, or leave the table as it is"
    )


def require_own(work: CatchUpWork) -> None:
    """Raise InvalidTableState (19) where others have written since."""
    if not work.facts.get("switched"):
        _version_made(work, target_bridge(work))


def restore(work: CatchUpWork) -> None:
    """Make the rows of the version before the latest again."""
    bridge = target_bridge(work)
    made = _version_made(work, bridge)
    if made is None or made == work.facts.get("restored"):
        return
    record = load_lance(bridge, work.item.target)
    before = int(work.item.facts["version_before"])
    dataset = open_dataset(bridge, record, Ref(version=before), write=True)
    work.note(restored=made + 1)
    with committing(record, f"version {before} was not restored", dataset):
        dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types
