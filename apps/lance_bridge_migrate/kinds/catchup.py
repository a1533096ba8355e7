"""``catch-up``: a table that was converted gets what has come into its source since.

Each round is a plan of its own that follows the one before; `next_round` makes its options. The
last round can switch over: where nothing more has come, the table gets its final name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

import lance
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import TableRecord
from lance_bridge.entries.tables import load_lance
from lance_bridge.errors import display, invalid
from lance_bridge.ref import Ref
from lance_bridge.table import Table

from .. import targets
from ..ends import bridge_of
from ..journal import Check
from ..kind import Step, Survey
from ..levels import Level
from ..plan import Address, Item, Problem, blocker, warning
from ..record import ItemState, Record
from ..spark import changes, checksums, completeness, listing, schema
from ..spark.changes import Found, Since
from ..spark.session import become_active, session_at, told_by_spark
from ..spark.sources import SourceTable
from ..spark.writing import address_at, read_back, sample_of
from . import rounds, switching
from .catalogs import IntoCatalog, target_bridge
from .comparing import spread
from .lineage import origin
from .rounds import (
    CatchUpEnds,
    CatchUpOptions,
    CatchUpWork,
    Tracked,
    changes_of,
    final_path,
    path_now,
    range_of,
    source_frame,
)

_SWITCH = "switch"
_KEY = "give a key, by which rows are updated and deleted"
_OTHER_TABLE = (
    "It is not the table that was converted: somebody made it anew, or replaced its entry. Leave "
    "it to them, and convert to another name"
)


def next_round(record: Record, **options: Any) -> dict[str, Any]:
    """Return the options of the round after one, to be given to `make_plan`.

    Tables that the round has left as they were are tracked from where the one before left them.

    Args:
        record: Of the conversion, or of the round before.
        options: Those of `CatchUpOptions` without `tables`.

    Raises:
        InvalidInputError: (13) there is no table to catch up with.
        InvalidTableStateError: (19) the round has begun to write a table, and was cut off.
    """
    # A conversion has an option of this name, too, which is another one.
    tracked = record.plan.options["tables"] if record.plan.kind == CatchUp.name else ()
    before = {tuple(each["target"]): each for each in tracked}
    found = [_tracked(record, state, before) for state in record.items.values()]
    tables = [each for each in found if each is not None]
    if not tables:
        raise invalid(f"Migration {record.plan.id} has converted nothing to catch up with")
    return {**options, "tables": tables}


def _tracked(
    record: Record, state: ItemState, before: Mapping[tuple[str, ...], dict[str, Any]]
) -> dict[str, Any] | None:
    """Return where a table stands after a round, in the form of `Tracked`; None if nowhere."""
    facts, earlier = state.facts, before.get(state.item.target)
    version = facts.get("version")
    if state.item.nothing_to_do:
        version = facts.get("version_before")
    if version is not None and not state.undo_begun:
        return {
            "source": facts["source"],
            "target": list(path_now(state.item, facts)),
            "version": version,
            "mark": facts.get("mark_of_table", record.plan.mark(state.item)),
            "casts": facts.get("casts", record.plan.options.get("casts", {})),
            "renames": facts.get("renames", {}),
        }
    if state.has_begun and not state.is_undone and earlier is not None:
        raise InvalidTableStateError(
            f"Migration {record.plan.id} has begun with '{state.item.name}' and was cut off: run "
            "it to its end, or undo it"
        )
    return earlier


class CatchUp(IntoCatalog[Any, CatchUpOptions]):
    """See the module."""

    name = "catch-up"
    summary = "Bring converted tables up to date with their sources, and switch over"
    options_type = CatchUpOptions

    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        return session_at(address, secrets)

    def survey(self, ends: CatchUpEnds, options: CatchUpOptions) -> Survey:
        if (options.by == "column") != (options.column is not None):
            raise invalid("The option column goes with by=column, and that needs it")
        become_active(ends.source)
        return Survey([_item(ends, options, each) for each in options.tables])

    def fingerprint(self, ends: CatchUpEnds, options: CatchUpOptions, item: Item) -> str:  # noqa: ARG002
        become_active(ends.source)
        source = SourceTable.model_validate(item.facts["source"])
        record = load_lance(bridge_of(ends.target), item.target)
        version = int(Table(bridge_of(ends.target), record).open().version)
        return _fingerprint(listing.described_again(ends.source, source), record, version)

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:
        rows = Step(rounds.ROWS, rounds.apply, rounds.restore, rounds.require_own)
        if not item.facts.get("switch_to"):
            return [rows]
        back = switching.require_switchable_back
        return [rows, Step(_SWITCH, switching.switch, switching.switch_back, back)]

    def verify(self, work: CatchUpWork, level: Level) -> Sequence[Check]:
        become_active(work.ends.source)
        return list(_checks(work, level))


# -- planning --------------------------------------------------------------------------------------


def _item(ends: CatchUpEnds, options: CatchUpOptions, tracked: Tracked) -> Item:
    item = Item(source=tracked.source.names, target=tracked.target)
    try:
        return _surveyed(ends, options, tracked, item)
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _surveyed(ends: CatchUpEnds, options: CatchUpOptions, tracked: Tracked, item: Item) -> Item:
    spark, bridge = ends.source, bridge_of(ends.target)
    now = rounds.latest_of(spark, tracked.source)
    inventory = completeness.take_inventory(spark, now)
    if inventory.missing:  # a round would take their rows for deleted
        return item.with_problems(completeness.missing_problem(inventory))
    if not changes.same_columns(tracked.source, now):
        return item.with_problems(blocker("The columns of the source changed: convert it anew"))
    record = load_lance(bridge, item.target)
    if tracked.mark is None or record.properties.get(targets.MARK) != tracked.mark:
        return item.with_problems(blocker(_OTHER_TABLE))
    dataset = Table(bridge, record).open()
    version = int(dataset.version)
    target = read_back(spark, address_at(ends.target, item.target), version)
    settings = {"casts": tracked.casts, "renames": tracked.renames}
    source = schema.as_target(now.read(spark), settings)
    partitions = schema.renamed(now.partitions, tracked.renames)
    by_name = now.model_copy(update={"partitions": tuple(partitions)})
    found, problems = _found(options, tracked.source, source, target, by_name)
    switch_to = options.switch_to and options.switch_to.replace("{table}", now.names[-1])
    facts = {
        "source": now.model_dump(mode="json"),
        **settings,
        "since": asdict(found.since),
        "version_before": version,
        "mark_of_table": tracked.mark,
        "switch_to": switch_to,
    }
    item = item.model_copy(
        update={"facts": facts, "fingerprint": _fingerprint(now, record, version)}
    )
    problems += _of_target(bridge, item, dataset, tracked.version)
    return _counted(spark, options, item.with_problems(*problems), found, target)


def _fingerprint(source: SourceTable, record: TableRecord, version: int) -> str:
    parts = f"{source.fingerprint()} {targets.identity_of(record)} {version}"
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def _of_target(
    bridge: Bridge, item: Item, dataset: lance.LanceDataset, before: int
) -> list[Problem]:
    """Return what is wrong with the table: with its rows, and with the name that it is to get."""
    found = switching.problems(bridge, item.target, final_path(item)) if _switches(item) else []
    since = origin(dataset, before)
    if since is None:
        found.append(warning("Nobody can tell who wrote to the table: its versions since the round "
                             "before were cleaned up"))  # fmt: skip
    elif since != before:
        found.append(blocker(f"Version {since} of the table is not of the round before: catch up "
                             "after the last round, or leave its rows to that"))  # fmt: skip
    return found


def _switches(item: Item) -> bool:
    return bool(item.facts["switch_to"])


def _found(
    options: CatchUpOptions, before: SourceTable, source: Any, target: Any, now: SourceTable
) -> tuple[Found, list[Problem]]:
    """Return the range of a round, and what keeps it from being taken."""
    if options.by == "column":
        return _greater_found(str(options.column), source, target)
    if options.by == "partition":
        return _partitions_found(options, source, target, now)
    nothing = Found(Since(), 0, 0, 0)
    if not now.has_snapshots:
        return nothing, [blocker(f"{now.format} has no snapshots: catch up by a column")]
    if now.identity != before.identity:
        return nothing, [blocker("The source was made anew since: convert it anew")]
    since = Since(snapshot=before.snapshot)
    if before.snapshot == now.snapshot:
        return Found(since, 0, 0, 0), []
    with told_by_spark(f"The rows of '{now.name}' cannot be counted"):
        return Found(since, None, source.count(), target.count()), []


def _greater_found(column: str, source: Any, target: Any) -> tuple[Found, list[Problem]]:
    found = changes.column_since(source, target, column)
    if changes.is_above_nan(source, column, found.since):
        return found, [blocker(f"The greatest '{column}' in the table is NaN, and nothing is "
                               "greater: catch up by another column")]  # fmt: skip
    if found.nulls == found.target_nulls:
        return found, []
    return found, [warning(f"'{column}' is null in {found.nulls} rows of the source, and in "
                           f"{found.target_nulls} of the table: rows without a value are not "
                           "taken")]  # fmt: skip


def _partitions_found(
    options: CatchUpOptions, source: Any, target: Any, now: SourceTable
) -> tuple[Found, list[Problem]]:
    nothing = Found(Since(), 0, 0, 0)
    if not now.partitions:
        return nothing, [blocker("It has no partitions: catch up by a column")]
    others = [name for name in now.partitions if name not in source.columns]
    if others:
        shown = ", ".join(others)
        return nothing, [blocker(f"Its partitions are not of columns alone, but of {shown}: catch "
                                 "up by a column or by snapshot")]  # fmt: skip
    found = changes.partitions_since(source, target, now.partitions)
    if found.since.changed and not options.key:
        shown = "; ".join("/".join(map(str, each)) for each in found.since.changed[:5])
        return found, [blocker(f"Partitions changed that are there already ({shown}): {_KEY}")]
    return found, []


def _counted(spark: Any, options: CatchUpOptions, item: Item, found: Found, target: Any) -> Item:
    """Return the item with the number of rows that the round takes, and what that means."""
    if item.blockers:
        return item
    rows = came = found.rows or 0
    if options.key and not (options.by == "snapshot" and found.rows == 0):
        changed = changes_of(spark, range_of(options, item), item, target)
        keys = changes.keys_of(changed, options.key)
        rows = keys.rows
        if keys.null or keys.repeated:
            text = f"{keys.null} rows have a key that is null, and {keys.repeated} one of others"
            item = item.with_problems(blocker(f"{text}: a key tells rows apart, and is never null"))
        elif options.by == "column":
            came = changes.new_keys(changed, target, options.key) if rows else 0
    elif found.rows is None:
        changed = changes_of(spark, range_of(options, item), item, target)
        with told_by_spark(f"The changes of '{display(item.source)}' cannot be counted"):
            rows = came = changed.count()
    # With a key, partitions and snapshots are compared as a whole.
    is_counted = not item.blockers and (not options.key or options.by == "column")
    if is_counted and found.source != found.target + came:
        item = item.with_problems(_unseen(options, found.source, found.target + came))
    item = item.model_copy(update={"rows": rows})
    if not rows and not _switches(item) and not item.problems:
        return item.model_copy(update={"nothing_to_do": "Nothing has come since"})
    return item


def _unseen(options: CatchUpOptions, total: int, expected: int) -> Problem:
    text = f"The source has {total} rows, and the table would have {expected}: some were "
    if options.by == "snapshot":
        return blocker(f"{text}changed or deleted; {_KEY}")
    if options.key:
        return warning(f"{text}deleted, or came late with a value that was passed, which a column "
                       "does not show")  # fmt: skip
    return warning(f"{text}changed, deleted, or came late with a value that was passed; {_KEY}")


# -- verifying -------------------------------------------------------------------------------------


def _checks(work: CatchUpWork, level: Level) -> Iterator[Check]:
    """Compare all of the source, as the round read it, with the table."""
    spark, bridge = work.ends.source, target_bridge(work)
    path, version = path_now(work.item, work.facts), int(work.facts["version"])
    dataset = Table(bridge, load_lance(bridge, path)).open(Ref(version=version))
    target = read_back(spark, address_at(work.ends.target, path), version)
    source = _as_read(work, target)
    if level.includes(Level.CHECKSUMS):
        yield from checksums.compare_checksums(source, target)
        return
    with told_by_spark(f"The rows of '{display(work.item.source)}' cannot be counted"):
        rows = source.count()
    count = dataset.count_rows()
    yield Check(name="rows", ok=rows == count, expected=rows, found=count)
    if level.includes(Level.SAMPLE):
        yield checksums.compare_sample(source, sample_of(spark, dataset, spread(count)))


def _as_read(work: CatchUpWork, target: Any) -> Any:
    """Return the rows of the source that the table is to have; not those that came later."""
    source, range = source_frame(work.ends.source, work.item), range_of(work.options, work.item)
    if range.by == "column":
        return changes.up_to(source, range.columns[0], range.since)
    if range.by == "partition":
        return changes.without_later_partitions(source, target, range.columns, range.since)
    return source
