"""One increment of catching up: what it reads of a source, its rows, and how they are undone."""

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

from lance_bridge.catalog import Path
from lance_bridge.entry import TableEntry
from lance_bridge.lance_datasets import find_commit
from lance_bridge.requests import Ref
from lance_bridge.table import Table
from lance_bridge_spark.functions.rows import change
from lance_bridge_spark.functions.rows.change import TransactionSpec
from lance_bridge_spark.functions.rows.clauses import Clauses, Delete, Insert, Update
from lance_bridge_spark.functions.rows.merge import Merge
from lance_bridge_spark.functions.rows.snapshot import Snapshot
from lance_bridge_spark.jobs.engine import address_in
from lance_bridge_spark.lookup import find_table

from ..migration import ItemFacts, Options, Work
from ..plan import Facts, Item
from ..spark import changes, completeness, listing, schema, snapshots, sources
from ..spark.changes import DELETED, ChangeRange, Increment
from ..spark.session import become_active, spark_errors
from ..spark.sources import SourceTable
from ..spark.writing import append, read_back, transaction_of
from ..targets import MARK
from .loading import writing_options
from .provenance import origin_version

ROWS = "rows"
"""The step that writes an increment's rows, and the name of its transaction."""


class Tracked(Options):
    """One table to catch up with: its source as the increment before read it, and its target.

    Attributes:
        version: The version of the target that has these rows.
        mark: What the target's entry carries (`targets.MARK`) since it was made.
    """

    source: SourceTable
    target: tuple[str, ...]
    version: int
    mark: str
    casts: dict[str, str] = Field(default_factory=dict)
    renames: dict[str, str] = Field(default_factory=dict)


class CatchUpOptions(Options):
    """Which tables are brought up to date, and how new rows are found.

    Attributes:
        tables: See `next_increment`.
        by: ``column``: rows with a greater value than any in the target. ``partition``: partitions
            that the target lacks, or of which it has another number of rows. ``snapshot``: the
            difference of two snapshots of Delta or Iceberg.
        column: With ``column``: such as an increasing id, or the time of the last change. It and
            `key` have the table's names where columns were renamed.
        key: Columns that identify rows and are never null. With them rows are updated, too, and
            deleted where the source no longer has them (not by ``column``, which does not show it).
            Without them rows may only be added.
        switch_to: The name that each table gets at the end, with ``{table}`` for the source's; by
            default tables keep their names.
        data_storage_version: Of Lance's files, without a key; max_rows_per_file alike.
    """

    tables: tuple[Tracked, ...]
    by: Literal["column", "partition", "snapshot"]
    column: str | None = None
    key: tuple[str, ...] = ()
    switch_to: str | None = None
    data_storage_version: str | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)


class CatchUpFacts(ItemFacts):
    """What is noted about a table that is brought up to date.

    Attributes:
        source: As the plan pins it.
        range: What the increment takes.
        version_before: The version of the table that the plan was made for.
        mark_of_table: See `Tracked.mark`.
        switch_to: The table's final name, or None.
    """

    source: SourceTable
    casts: dict[str, str]
    renames: dict[str, str]
    range: ChangeRange
    version_before: int
    mark_of_table: str
    switch_to: str | None = None

    def as_target(self, frame: Any) -> Any:
        """Return rows of the source with the types and names of the target."""
        return schema.as_target(frame, self.casts, self.renames)

    def read(self, spark: Any) -> Any:
        """Return all rows of the source, as the plan pins it."""
        return self.as_target(self.source.read(spark))

    def increment(self, options: CatchUpOptions) -> Increment:
        """Return what the plan has the increment take."""
        partitions = schema.renamed(self.source.partitions, self.renames)
        columns = [str(options.column)] if options.by == "column" else partitions
        return Increment(self.range, options.by, columns, options.key)

    def changes(self, spark: Any, increment: Increment, target: Any) -> Any:
        """Return the rows of the increment; see `changes.changed_rows`.

        Args:
            target: The table as the plan found it, where `Increment.needs_target`.
        """
        if increment.by != "snapshot":
            return changes.changed_rows(self.read(spark), target, increment)
        found = snapshots.difference(spark, self.source, self.range.snapshot)
        gone = None if found.deleted is None else self.as_target(found.deleted)
        return changes.changed_rows(self.as_target(found.added), gone, increment)


def latest_of(spark: Any, source: SourceTable) -> SourceTable:
    """Return a source as it is now. Raises TableNotFound (4)."""
    if not source.catalog:
        return sources.at_path(spark, source.location, source.format, source.read_options)
    found = listing.describe(spark, source.catalog, source.names)
    if found is None:
        raise TableNotFoundError(f"'{source.name}' is no longer a table that can be converted")
    return sources.with_schema(spark, found)


def final_path(item: Item) -> Path:
    """Return the names that a table has after the cutover."""
    return (*item.target[:-1], item.facts["switch_to"])


def path_now(item: Item, facts: Mapping[str, Any]) -> Path:
    """Return the names that a table has, by what its increment has noted."""
    return final_path(item) if facts.get("switched") else item.target


def is_table_of(item: Item, entry: TableEntry | None) -> bool:
    """Return whether an entry is that of the table that the plan is for."""
    mark = CatchUpFacts.of(item).mark_of_table
    return entry is not None and entry.record.properties.get(MARK) == mark


# -- rows ------------------------------------------------------------------------------------------


def apply(work: Work) -> Facts:
    """Add the rows of the increment, or merge them by key; once, however often it is started.

    Raises:
        ConcurrentModificationError: (14) others have written to the table, or it was recreated.
        LanceNamespaceError: What reading and writing raise.
    """
    spark, facts = work.endpoints.source, CatchUpFacts.of(work.item)
    become_active(spark)
    table = work.target_tables.load(work.item.target)
    if not is_table_of(work.item, table):
        raise ConcurrentModificationError(
            f"'{work.item.name}' has been recreated since the plan was made"
        )
    if work.is_repeated:
        made = _version_written(work, table.open())
        if made is not None:
            return {"version": made}
    inventory = completeness.take_inventory(spark, facts.source)
    if inventory.missing:
        raise InvalidTableStateError(completeness.missing_problem(inventory).text)
    increment, target = facts.increment(work.options), None
    if increment.needs_target:
        address = address_in(work.endpoints.target, work.item.target)
        target = read_back(spark, address, facts.version_before)
    rows = facts.changes(spark, increment, target)
    write = _merge if increment.key else _append
    return write(work, rows, facts.version_before)


def _append(work: Work, rows: Any, version: int) -> Facts:
    loaded = append(
        rows,
        address_in(work.endpoints.target, work.item.target),
        version=version,
        transaction=transaction_of(work.mark, ROWS),
        mark=work.mark,
        options=writing_options(work.options),
        alone=True,
    )
    work.advance(rows=loaded.rows)
    return {"version": loaded.version, "rows_written": loaded.rows}


def _merge(work: Work, rows: Any, version: int) -> Facts:
    spark = work.endpoints.source
    table = find_table(address_in(work.endpoints.target, work.item.target))
    snapshot = Snapshot(spark, table, table.open(Ref(version=version), write=True))
    is_deleted = f"source.`{DELETED}`"
    clauses = Clauses((Delete(is_deleted), Update()), Insert(where=f"NOT {is_deleted}"))
    once = TransactionSpec(transaction_of(work.mark, ROWS), {MARK: work.mark}, alone=True)
    with spark_errors(f"The changes are not merged into '{work.item.name}'"):
        plan = Merge(snapshot, rows, list(work.options.key), clauses).plan()
        changed = change.apply(snapshot, plan, once)
    work.advance(rows=changed.inserted + changed.updated + changed.deleted)
    return {
        "version": changed.version,
        "rows_written": changed.inserted + changed.updated,
        "rows_deleted": changed.deleted,
    }


# -- undoing ---------------------------------------------------------------------------------------


def check_undo(work: Work) -> None:
    """Raise InvalidTableState (19) where others have written since."""
    _table_to_restore(work)


def restore(work: Work) -> None:
    """Restore the rows of the version before the increment, as a new version."""
    table = _table_to_restore(work)
    if table is None:
        return
    before = CatchUpFacts.of(work.item).version_before
    dataset = table.open(Ref(version=before), write=True)
    with table.committing(dataset, f"version {before} was not restored"):
        dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types


def _table_to_restore(work: Work) -> Table | None:
    """Return the table if the increment has changed rows that still exist, or None.

    Raises:
        InvalidTableStateError: (19) others have changed rows since.
    """
    table = _find_table(work)
    if table is None:
        return None
    dataset = table.open()
    before = CatchUpFacts.of(work.item).version_before
    made = work.facts.get("version")
    if made is None:
        made = _version_written(work, dataset)
    if made in (None, before):
        return None
    found = origin_version(dataset, before)
    if found == before:
        return None
    # Rows that others wrote between the two would be undone with the increment's.
    if found == made == before + 1:
        return table
    raise InvalidTableStateError(
        f"'{work.item.name}' has rows in version {int(dataset.version)} that migration "
        f"{work.plan.id} did not write, which undoing would delete: skip the table"
    )


def _find_table(work: Work) -> Table | None:
    """Return the table by the name that it has now; None where it is gone."""
    names = [work.item.target]
    if CatchUpFacts.of(work.item).switch_to:
        names.append(final_path(work.item))
    for path in names:
        entry = work.target_tables.find(path)
        if entry is not None and is_table_of(work.item, entry):
            return Table.of(entry)
    return None


def _version_written(work: Work, dataset: lance.LanceDataset) -> int | None:
    """Return the version that a run of the step has made, or None."""
    before = CatchUpFacts.of(work.item).version_before
    transaction = transaction_of(work.mark, ROWS)
    return find_commit(dataset, lambda each: each.uuid == transaction, before)
