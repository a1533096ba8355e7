"""``catch-up``: adds to a converted table the rows that its source has received since.

Each increment is a plan that follows the previous one; `next_increment` makes its options. The last
increment can do the cutover, which renames the table if it has all rows of the source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
)
from pydantic import Field

from lance_bridge.catalog import Path
from lance_bridge.dotted_names import first_names
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display, invalid, table_not_found
from lance_bridge.requests import Ref
from lance_bridge.table import Table
from lance_bridge.tables import Tables
from lance_bridge.transaction_versions import find_commit
from lance_bridge_spark.rows import (
    Clauses,
    Delete,
    Insert,
    Merge,
    Snapshot,
    Update,
    address_in,
    apply_change,
    find_table,
)

from .. import Level
from ..endpoints import Endpoints
from ..migration import ItemFacts, MigrationType, Step, StepContext, Survey
from ..plan import Facts, Item, Options, Problem, blocker, warning
from ..record import Check, ItemState, Record
from ..spark import changes, delta_iceberg, listing, sources, writing
from ..spark.changes import DELETED, ChangeRange, Increment, RangeSize
from ..spark.session import become_active, session_at, spark_errors
from ..spark.sources import SourceTable
from ..spark.writing import append, read_back
from ..targets import MARK, entry_identity
from .loading import origin_version, writing_options
from .verification import sample_row_numbers

ROWS = "rows"
"""The step that writes the rows of an increment, and the name in its transaction."""

_NOTHING = RangeSize(ChangeRange(), 0, 0, 0)
_NEEDS_KEY = "give a key, by which rows are updated and deleted"
_OTHER_TABLE = (
    "It is not the table that was converted: it was recreated, or its entry was replaced. Convert "
    "to another name"
)
_NEXT = "Stop the writers of the source, and run another increment with --switch-to"


# -- options and facts -----------------------------------------------------------------------------


class Tracked(Options):
    """One table to catch up: the source as the previous increment read it, and the target.

    Attributes:
        version: The version of the target that has these rows.
        mark: The mark of the target's entry (`targets.MARK`), which its conversion set.
    """

    source: SourceTable
    target: tuple[str, ...]
    version: int
    mark: str
    casts: dict[str, str] = Field(default_factory=dict)
    renames: dict[str, str] = Field(default_factory=dict)


class CatchUpOptions(Options):
    """Which tables to bring up to date, and how new rows are found.

    Attributes:
        tables: See `next_increment`.
        by: ``column``: rows with a greater value than any in the target. ``partition``: partitions
            that are missing in the target or have another number of rows there. ``snapshot``: the
            difference between two snapshots of Delta or Iceberg.
        column: With ``column``, for example an increasing id or the time of the last change. Like
            `key`, it is the column's name in the target.
        key: Columns that identify rows and are never null. With a key, rows are also updated, and
            deleted if the source no longer has them (except by ``column``, which cannot detect
            that). Without a key, rows are only added.
        switch_to: The final name of each table, with ``{table}`` for the name of the source; by
            default tables keep their names.
        data_storage_version: The version of the Lance files written without a key; likewise
            max_rows_per_file.
    """

    tables: tuple[Tracked, ...]
    by: Literal["column", "partition", "snapshot"]
    column: str | None = None
    key: tuple[str, ...] = ()
    switch_to: str | None = None
    data_storage_version: str | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)


class CatchUpFacts(ItemFacts):
    """The facts about a table to bring up to date.

    Attributes:
        source: The source, pinned by the plan.
        range: The range of the increment.
        version_before: The version of the table when the plan was made.
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
        return writing.as_target(frame, self.casts, self.renames)

    def read(self, spark: Any) -> Any:
        """Return all rows of the pinned source."""
        return self.as_target(self.source.read(spark))

    def increment(self, options: CatchUpOptions) -> Increment:
        """Return the increment of the plan."""
        partitions = writing.renamed(self.source.partitions, self.renames)
        columns = [str(options.column)] if options.by == "column" else partitions
        return Increment(self.range, options.by, columns, options.key)

    def changes(self, spark: Any, increment: Increment, target: Any) -> Any:
        """Return the rows of the increment; see `changes.changed_rows`.

        Args:
            target: The table when the plan was made, if `Increment.needs_target`.
        """
        if increment.by != "snapshot":
            return changes.changed_rows(self.read(spark), target, increment)
        added, deleted = delta_iceberg.difference(spark, self.source, self.range.snapshot)
        deleted = None if deleted is None else self.as_target(deleted)
        return changes.changed_rows(self.as_target(added), deleted, increment)


def next_increment(record: Record, **options: Any) -> dict[str, Any]:
    """Return the options for `make_plan` of the increment that follows a migration.

    Tables that the migration did not change keep their state from before it.

    Args:
        record: The record of the conversion or of the previous increment.
        options: The fields of `CatchUpOptions` except `tables`.

    Raises:
        InvalidInputError: (13) there is no table to catch up with.
        InvalidTableStateError: (19) the increment was cut off after it started to write a table.
    """
    # The option `tables` of a conversion has another meaning.
    tracked = record.plan.options["tables"] if record.plan.type == CatchUp.name else ()
    before = {tuple(each["target"]): each for each in tracked}
    found = [_track_table(record, state, before) for state in record.items.values()]
    tables = [each for each in found if each is not None]
    if not tables:
        raise invalid(f"Migration {record.plan.id} has converted nothing to catch up with")
    return {**options, "tables": tables}


def _track_table(
    record: Record, state: ItemState, before: Mapping[tuple[str, ...], dict[str, Any]]
) -> dict[str, Any] | None:
    """Return a table after a migration, as `Tracked` in JSON.

    None if Spark has not converted it: an increment is read by Spark.
    """
    facts, earlier = state.facts, before.get(state.item.target)
    version = facts.get("version_before" if state.item.nothing_to_do else "version")
    is_of_spark = "arrow_files" not in state.item.facts
    if version is not None and not state.undo_started and is_of_spark:
        tracked = Tracked(
            source=facts["source"],
            target=current_path(state.item, facts),
            version=version,
            mark=facts.get("mark_of_table", record.plan.mark(state.item)),
            casts=facts["casts"],
            renames=facts["renames"],
        )
        return tracked.model_dump(mode="json")
    if state.has_started and not state.is_undone and earlier is not None:
        raise InvalidTableStateError(
            f"Migration {record.plan.id} has started with '{state.item.name}' and was cut off: "
            "resume it, or undo it"
        )
    return earlier


# -- the migration ---------------------------------------------------------------------------------


class CatchUp(MigrationType):
    """The migration type that this module describes."""

    name = "catch-up"
    options_type = CatchUpOptions
    connect_source = staticmethod(session_at)

    def steps(self, item: Item) -> list[Step]:
        rows = Step(ROWS, _apply, _restore, _check_undo)
        renamed = Step("switch", switch, switch_back, _check_switch_back)
        return [rows, renamed] if CatchUpFacts.of(item).switch_to else [rows]

    def survey(self, endpoints: Endpoints, options: CatchUpOptions) -> Survey:
        if (options.by == "column") != (options.column is not None):
            raise invalid("The option column is needed with by=column, and only then")
        become_active(endpoints.source)
        listing.require_no_skipped_files(endpoints.source)
        return Survey([_item(endpoints, options, each) for each in options.tables])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        become_active(endpoints.source)
        source = CatchUpFacts.of(item).source
        table = endpoints.target_tables.load(item.target)
        version = int(table.open().version)
        return _fingerprint(listing.describe_again(endpoints.source, source), table, version)

    def verify(self, work: StepContext, level: Level) -> Iterator[Check]:
        """Compare the whole source, as the increment read it, with the table."""
        spark = work.endpoints.source
        become_active(spark)
        path, version = current_path(work.item, work.facts), int(work.facts["version"])
        dataset = work.target_tables.load(path).open(Ref(version=version))
        target = read_back(spark, address_in(work.endpoints.target, path), version)
        source = _source_as_read(work, target)
        if level.includes(Level.CHECKSUMS):
            yield from writing.compare_checksums(source, target)
            return
        with spark_errors(f"The rows of '{display(work.item.source)}' cannot be counted"):
            rows = source.count()
        count = dataset.count_rows()
        yield Check(name="rows", ok=rows == count, expected=rows, found=count)
        if level.includes(Level.SAMPLE):
            yield writing.compare_sample(source, dataset, sample_row_numbers(count))


def with_new_names(source: SourceTable, renames: Mapping[str, str]) -> SourceTable:
    """Return a source whose partition columns have their names in the target."""
    partitions = tuple(writing.renamed(source.partitions, renames))
    return source.model_copy(update={"partitions": partitions})


def final_path(item: Item) -> Path:
    """Return the path of a table after the cutover."""
    return (*item.target[:-1], item.facts["switch_to"])


def current_path(item: Item, facts: Mapping[str, Any]) -> Path:
    """Return the current path of a table, according to the facts of its increment."""
    return final_path(item) if facts.get("switched") else item.target


def is_table_of(item: Item, entry: TableEntry | None) -> bool:
    """Return whether an entry is that of the plan's table."""
    mark = CatchUpFacts.of(item).mark_of_table
    return entry is not None and entry.record.properties.get(MARK) == mark


# -- planning --------------------------------------------------------------------------------------


def _item(endpoints: Endpoints, options: CatchUpOptions, tracked: Tracked) -> Item:
    item = Item(source=tracked.source.names, target=tracked.target)
    try:
        return _plan_table(endpoints, options, tracked, item)
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _plan_table(
    endpoints: Endpoints, options: CatchUpOptions, tracked: Tracked, item: Item
) -> Item:
    spark, tables = endpoints.source, endpoints.target_tables
    now = listing.describe_latest(spark, tracked.source)
    inventory = listing.take_inventory(spark, now)
    if inventory.missing:  # an increment would treat their rows as deleted
        return item.with_problems(listing.missing_problem(inventory))
    if not changes.same_columns(tracked.source, now):
        return item.with_problems(blocker("The columns of the source changed: convert it again"))
    table = tables.load(item.target)
    if table.record.properties.get(MARK) != tracked.mark:
        return item.with_problems(blocker(_OTHER_TABLE))
    dataset = table.open()
    version = int(dataset.version)
    target = read_back(spark, address_in(endpoints.target, item.target), version)
    read = now.read(spark)
    source = writing.as_target(read, tracked.casts, tracked.renames)
    by_name = with_new_names(now, tracked.renames)
    found, problems = _find_range(options, tracked.source, source, target, by_name)
    facts = CatchUpFacts(
        source=now,
        casts=tracked.casts,
        renames=tracked.renames,
        range=found.range,
        version_before=version,
        mark_of_table=tracked.mark,
        switch_to=options.switch_to and options.switch_to.replace("{table}", now.names[-1]),
    )
    fingerprint = _fingerprint(now, table, version)
    item = item.model_copy(update={"facts": facts.to_json(), "fingerprint": fingerprint})
    problems += sources.problems_of(spark, now, read, tracked.casts)
    problems += _target_problems(tables, item, dataset, tracked.version)
    return _count(spark, options, item.with_problems(*problems), found, target)


def _fingerprint(source: SourceTable, entry: TableEntry, version: int) -> str:
    parts = f"{source.fingerprint()} {entry_identity(entry)} {version}"
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def _target_problems(
    tables: Tables, item: Item, dataset: lance.LanceDataset, before: int
) -> Iterator[Problem]:
    """Yield problems of the table's rows and of its final name."""
    if CatchUpFacts.of(item).switch_to:
        yield from _name_problems(tables, item.target, final_path(item))
    version = origin_version(dataset, before)
    if version is None:
        text = "It is not known what wrote to the table: versions since the last increment were"
        yield warning(f"{text} cleaned up")
    elif version != before:
        text = f"The last increment did not make version {version} of the table: catch up after the"
        yield blocker(f"{text} last increment, or restore its rows")


def _find_range(
    options: CatchUpOptions, before: SourceTable, source: Any, target: Any, now: SourceTable
) -> tuple[RangeSize, list[Problem]]:
    """Return the range of an increment, and the problems that prevent it."""
    if options.by == "column":
        return _column_range(str(options.column), source, target)
    if options.by == "partition":
        return _partition_range(options, source, target, now)
    if not now.has_snapshots:
        return _NOTHING, [blocker(f"{now.format} has no snapshots: catch up by a column")]
    if now.identity != before.identity:
        return _NOTHING, [blocker("The source was recreated since: convert it again")]
    range = ChangeRange(snapshot=before.snapshot)
    if before.snapshot == now.snapshot:
        return RangeSize(range, 0, 0, 0), []
    with spark_errors(f"The rows of '{now.name}' cannot be counted"):
        return RangeSize(range, None, source.count(), target.count()), []


def _column_range(column: str, source: Any, target: Any) -> tuple[RangeSize, list[Problem]]:
    found = changes.column_range(source, target, column)
    if changes.is_above_nan(source, column, found.range):
        text = f"The greatest '{column}' in the table is NaN, and no value is greater: catch up by"
        return found, [blocker(f"{text} another column")]
    if found.nulls == found.target_nulls:
        return found, []
    text = f"'{column}' is null in {found.nulls} rows of the source, and in {found.target_nulls} of"
    return found, [warning(f"{text} the table: rows without a value are not taken")]


def _partition_range(
    options: CatchUpOptions, source: Any, target: Any, now: SourceTable
) -> tuple[RangeSize, list[Problem]]:
    if not now.partitions:
        return _NOTHING, [blocker("It has no partitions: catch up by a column")]
    others = [name for name in now.partitions if name not in source.columns]
    if others:
        text = f"It is partitioned by {', '.join(others)}, which are not columns: catch up by a"
        return _NOTHING, [blocker(f"{text} column or by snapshot")]
    found = changes.partition_range(source, target, now.partitions)
    if found.range.changed and not options.key:
        names = ["/".join(map(str, each)) for each in found.range.changed]
        shown = first_names(names, 5, "; ")
        return found, [blocker(f"Existing partitions changed ({shown}): {_NEEDS_KEY}")]
    return found, []


def _count(spark: Any, options: CatchUpOptions, item: Item, found: RangeSize, target: Any) -> Item:
    """Return the item with the number of rows in the increment, and problems with them."""
    if item.blockers:
        return item
    facts = CatchUpFacts.of(item)
    rows = added = found.rows or 0
    if options.key and not (options.by == "snapshot" and found.rows == 0):
        changed = facts.changes(spark, facts.increment(options), target)
        rows, null, repeated = changes.count_keys(changed, options.key)
        if null or repeated:
            text = f"The key is null in {null} rows, and {repeated} rows share one"
            item = item.with_problems(blocker(f"{text}: a key is unique and never null"))
        elif options.by == "column":
            added = changes.count_new_keys(changed, target, options.key) if rows else 0
    elif found.rows is None:
        changed = facts.changes(spark, facts.increment(options), target)
        with spark_errors(f"The changes of '{display(item.source)}' cannot be counted"):
            rows = added = changed.count()
    # With a key, partitions and snapshots are compared as a whole.
    is_counted = not item.blockers and (not options.key or options.by == "column")
    if is_counted and found.source != found.target + added:
        item = item.with_problems(_missed_changes(options, found.source, found.target + added))
    item = item.model_copy(update={"rows": rows})
    if not rows and not facts.switch_to and not item.problems:
        return item.model_copy(update={"nothing_to_do": "There are no new rows"})
    return item


def _missed_changes(options: CatchUpOptions, total: int, expected: int) -> Problem:
    text = f"The source has {total} rows, and the table would have {expected}: some were "
    if options.by == "snapshot":
        return blocker(f"{text}changed or deleted; {_NEEDS_KEY}")
    late = "or arrived late, with a value below the last one"
    if options.key:
        return warning(f"{text}deleted, {late}, which a column does not show")
    return warning(f"{text}changed, deleted, {late}; {_NEEDS_KEY}")


def _source_as_read(work: StepContext, target: Any) -> Any:
    """Return the source rows that the table should have, without those that came later."""
    facts = CatchUpFacts.of(work.item)
    source, increment = facts.read(work.endpoints.source), facts.increment(work.options)
    if increment.by == "column":
        return changes.up_to(source, increment.columns[0], increment.range)
    if increment.by == "partition":
        return changes.without_later_partitions(source, target, increment.columns, increment.range)
    return source


# -- rows ------------------------------------------------------------------------------------------


def _apply(work: StepContext) -> Facts:
    """Append the rows of the increment, or merge them by key, unless an earlier run did.

    Raises:
        InvalidInputError: (13) the session skips files that it cannot read.
        ConcurrentModificationError: (14) another writer changed the table, or it was recreated.
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
    listing.require_no_skipped_files(spark)
    inventory = listing.take_inventory(spark, facts.source)
    if inventory.missing:
        raise InvalidTableStateError(listing.missing_problem(inventory).text)
    increment, target = facts.increment(work.options), None
    if increment.needs_target:
        address = address_in(work.endpoints.target, work.item.target)
        target = read_back(spark, address, facts.version_before)
    rows = facts.changes(spark, increment, target)
    write = _merge if increment.key else _append
    return write(work, rows, facts.version_before)


def _append(work: StepContext, rows: Any, version: int) -> Facts:
    address = address_in(work.endpoints.target, work.item.target)
    options = writing_options(work.options)
    loaded = append(rows, address, version, writing.once(work.mark, ROWS), options)
    work.advance(rows=loaded.rows)
    return {"version": loaded.version, "rows_written": loaded.rows}


def _merge(work: StepContext, rows: Any, version: int) -> Facts:
    spark = work.endpoints.source
    table = find_table(address_in(work.endpoints.target, work.item.target))
    snapshot = Snapshot(spark, table, table.open(Ref(version=version), write=True))
    is_deleted = f"source.`{DELETED}`"
    clauses = Clauses((Delete(is_deleted), Update()), Insert(where=f"NOT {is_deleted}"))
    with spark_errors(f"The changes are not merged into '{work.item.name}'"):
        plan = Merge(snapshot, rows, list(work.options.key), clauses).plan()
        changed = apply_change(snapshot, plan, writing.once(work.mark, ROWS))
    work.advance(rows=changed.inserted + changed.updated + changed.deleted)
    return {
        "version": changed.version,
        "rows_written": changed.inserted + changed.updated,
        "rows_deleted": changed.deleted,
    }


# -- undoing ---------------------------------------------------------------------------------------


def _restore(work: StepContext) -> None:
    """Restore the version before the increment, as a new version."""
    table = _check_undo(work)
    if table is None:
        return
    before = CatchUpFacts.of(work.item).version_before
    dataset = table.open(Ref(version=before), write=True)
    with table.committing(dataset, f"version {before} was not restored"):
        dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types


def _check_undo(work: StepContext) -> Table | None:
    """Return the table if the increment has changes to undo, or None.

    Raises:
        InvalidTableStateError: (19) other writers have changed rows since.
    """
    table = _find_table(work)
    if table is None:
        return None
    dataset = table.open()
    before = CatchUpFacts.of(work.item).version_before
    made = work.facts.get("version") or _version_written(work, dataset)
    found = before if made in (None, before) else origin_version(dataset, before)
    if found == before:
        return None
    # Restoring would also undo rows that other writers wrote between the two versions.
    if found == made == before + 1:
        return table
    raise InvalidTableStateError(
        f"'{work.item.name}' has rows in version {int(dataset.version)} that migration "
        f"{work.plan.id} did not write, which undoing would delete: skip the table"
    )


def _find_table(work: StepContext) -> Table | None:
    """Return the table under its original or final name, or None if it does not exist."""
    names = [work.item.target]
    if CatchUpFacts.of(work.item).switch_to:
        names.append(final_path(work.item))
    for path in names:
        entry = work.target_tables.find(path)
        if entry is not None and is_table_of(work.item, entry):
            return Table.of(entry)
    return None


def _version_written(work: StepContext, dataset: lance.LanceDataset) -> int | None:
    """Return the version that an earlier run of the step committed, or None."""
    before = CatchUpFacts.of(work.item).version_before
    transaction = writing.once(work.mark, ROWS).uuid
    return find_commit(dataset, lambda each: each.uuid == transaction, before)


# -- cut-over --------------------------------------------------------------------------------------


def _name_problems(tables: Tables, path: Path, final: Path) -> Iterator[Problem]:
    """Yield the problems that prevent renaming a table to its final name."""
    if path == final:
        yield blocker(f"It already has the name '{final[-1]}': choose another to switch to")
    elif tables.find(tables.path_of(final)) is not None:
        yield blocker(f"The name to switch to, '{display(final)}', already exists")


def _is_at(work: StepContext, path: Path) -> bool:
    return is_table_of(work.item, work.target_tables.find(path))


def switch(work: StepContext) -> Facts:
    """Rename the table, unless an earlier run did.

    Raises:
        InvalidInputError: (13) the session skips files that it cannot read.
        ConcurrentModificationError: (14) source and table have different rows.
        LanceNamespaceError: What renaming raises.
    """
    path, final = work.item.target, final_path(work.item)
    if _is_at(work, path):
        has_both = work.is_repeated and _is_at(work, final)
        if not has_both:
            _require_nothing_new(work)
        _rename(work.target_tables, path, final, has_both=has_both)
    elif not _is_at(work, final):
        raise table_not_found(path)
    return {"switched": True}


def _rename(tables: Tables, path: Path, new_path: Path, *, has_both: bool) -> None:
    """Rename a table, or drop its old entry if an earlier run died before that."""
    if has_both:
        tables.load(path).remove()
    else:
        tables.rename(path, new_path)


def _require_nothing_new(work: StepContext) -> None:
    """Raise ConcurrentModification (14) if source and table have different rows.

    Raises InvalidInput (13) if the session skips files, whose rows would count as deleted.
    """
    spark, item, facts = work.endpoints.source, work.item, CatchUpFacts.of(work.item)
    become_active(spark)
    listing.require_no_skipped_files(spark)
    now = listing.describe_latest(spark, facts.source)
    address = address_in(work.endpoints.target, item.target)
    target = read_back(spark, address, int(work.facts["version"]))
    difference, advice = _difference(spark, facts, work.options, now, target)
    if difference:
        raise ConcurrentModificationError(
            f"'{display(item.source)}' does not match the table '{item.name}': {difference}. The "
            f"table keeps its name. {advice}"
        )


def _difference(
    spark: Any, facts: CatchUpFacts, options: CatchUpOptions, now: SourceTable, target: Any
) -> tuple[str, str]:
    """Return how source and table differ, or "", and advice for the user."""
    if now.snapshot != facts.source.snapshot:
        text = f"snapshot {now.snapshot} is newer than {facts.source.snapshot}, which was read"
        return text, _NEXT
    if not changes.same_columns(facts.source, now):
        return "its columns changed", _NEXT
    source = facts.as_target(now.read(spark))
    found = _pending_changes(options, source, target, with_new_names(now, facts.renames))
    if found:
        return found, _NEXT
    with spark_errors(f"The rows of '{now.name}' cannot be counted"):
        here, there = source.count(), target.count()
    if here == there:
        return "", ""
    text = f"it has {here} rows, and the table {there}"
    return text, _advice(options, now, here - there)


def _pending_changes(options: CatchUpOptions, source: Any, target: Any, now: SourceTable) -> str:
    """Return a description of what the next increment would add, or ""."""
    if options.by == "column":
        found = changes.column_range(source, target, str(options.column))
        if found.rows:
            return f"{found.rows} rows have a greater value of '{options.column}'"
        if found.nulls != found.target_nulls:
            nulls = f"in {found.nulls} rows, and in {found.target_nulls} of the table"
            return f"'{options.column}' is null {nulls}"
    elif options.by == "partition":
        range = changes.partition_range(source, target, now.partitions).range
        count = len(range.new) + len(range.changed)
        if count:
            return f"{count} partitions have other numbers of rows"
    return ""


def _advice(options: CatchUpOptions, now: SourceTable, more: int) -> str:
    """Return advice about a difference that an increment of this kind may not detect."""
    if options.by != "column":
        return _NEXT
    if more > 0:
        return (
            f"{_NEXT}. If that fails in the same way, rows arrived late, with values that were "
            "passed already, which a column does not show: convert the table again, to another name"
        )
    kinds = {"snapshot": now.has_snapshots, "partition": now.partitions}
    ways = [f"by {kind} with --key" for kind, is_possible in kinds.items() if is_possible]
    another = f"run an increment {' or '.join(ways)}, or " if ways else ""
    return (
        "Rows were deleted in the source, which a column does not show, so that another increment "
        f"by column would fail in the same way: {another}convert the table again, to another name"
    )


def _check_switch_back(work: StepContext) -> None:
    """Raise InvalidTableState (19) if another table has taken the original name."""
    path = work.item.target
    is_switched = _is_at(work, final_path(work.item)) and not _is_at(work, path)
    if is_switched and work.target_tables.find(path) is not None:
        raise InvalidTableStateError(
            f"The name '{work.item.name}' is already used by another table"
        )


def switch_back(work: StepContext) -> None:
    """Rename the table back to its original name."""
    path, final = work.item.target, final_path(work.item)
    _check_switch_back(work)
    if _is_at(work, final):
        _rename(work.target_tables, final, path, has_both=_is_at(work, path))
