"""``catch-up``: adds to a converted table the rows that its source has received since.

Each increment is a plan that follows the previous one; `next_increment` makes its options. The last
increment can do the cutover, which renames the table if it has all rows of the source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import lance
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError

from lance_bridge.entry import TableEntry
from lance_bridge.errors import display, invalid
from lance_bridge.names import first_names
from lance_bridge.requests import Ref
from lance_bridge.tables import Tables
from lance_bridge_spark.rows import address_in

from .. import Level
from ..endpoints import Endpoints
from ..migration import MigrationType, StepContext, Survey
from ..plan import Item, Problem, blocker, warning
from ..record import Check, ItemState, Record
from ..spark import changes, listing, sources, writing
from ..spark.changes import ChangeRange, RangeSize
from ..spark.session import become_active, session_at, spark_errors
from ..spark.sources import SourceTable
from ..spark.writing import read_back
from ..targets import MARK, entry_identity
from . import incremental
from .incremental import CatchUpFacts, CatchUpOptions, Tracked, current_path, final_path
from .loading import origin_version
from .registration import sample_row_numbers

_NOTHING = RangeSize(ChangeRange(), 0, 0, 0)
_NEEDS_KEY = "give a key, by which rows are updated and deleted"
_OTHER_TABLE = (
    "It is not the table that was converted: it was recreated, or its entry was replaced. Convert "
    "to another name"
)


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


class CatchUp(MigrationType):
    """The migration type that this module describes."""

    name = "catch-up"
    options_type = CatchUpOptions
    connect_source = staticmethod(session_at)
    steps = staticmethod(incremental.steps)

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
    now = incremental.describe_latest(spark, tracked.source)
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
    by_name = incremental.with_new_names(now, tracked.renames)
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
        yield from incremental.name_problems(tables, item.target, final_path(item))
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
