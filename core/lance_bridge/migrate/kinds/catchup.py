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

from lance_namespace.errors import LanceNamespaceError

from ...catalog import TableRecord
from ...entries.tables import load_lance
from ...errors import display, invalid
from ...tables.dataset import open_dataset
from .. import targets
from ..ends import bridge_of
from ..journal import Check
from ..kind import Level, Step, Survey
from ..plan import Address, Item, Problem, blocker, warning
from ..record import Record
from ..spark import changes, checksums, schema, sources
from ..spark.changes import Since
from ..spark.session import become_active, session_at, told_by_spark
from ..spark.sources import SourceTable
from ..spark.writing import address_at, read_back
from . import rounds, switching
from .catalogs import IntoCatalog
from .rounds import CatchUpEnds, CatchUpOptions, CatchUpWork, Tracked, changes_of, source_frame


def next_round(record: Record, **options: Any) -> dict[str, Any]:
    """Return the options of the round after one that is done, to be given to `make_plan`.

    Args:
        record: Of the conversion, or of the round before.
        options: Those of `CatchUpOptions` without `tables`.

    Raises:
        InvalidInputError: (13) nothing of it is done.
    """
    tables = []
    for state in record.items.values():
        source = state.facts.get("source")
        # A round without changes had nothing to do, and is as good as done.
        if source and (state.is_done or state.item.nothing_to_do) and not state.undo_begun:
            casts = state.facts.get("casts", record.plan.options.get("casts", {}))
            table = {"source": source, "target": list(state.item.target), "casts": casts}
            tables.append(table)
    if not tables:
        raise invalid(f"Migration {record.plan.id} has converted nothing to catch up with")
    return {**options, "tables": tables}


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
        return Survey([_item(ends, options, each) for each in options.tables])

    def fingerprint(self, ends: CatchUpEnds, options: CatchUpOptions, item: Item) -> str:  # noqa: ARG002
        become_active(ends.source)
        source = SourceTable.model_validate(item.facts["source"])
        record = load_lance(bridge_of(ends.target), item.target)
        version = int(open_dataset(bridge_of(ends.target), record).version)
        return _fingerprint(sources.described_again(ends.source, source), record, version)

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:
        rows = Step(rounds.ROWS, rounds.apply, rounds.restore, rounds.require_own)
        if not item.facts.get("switch_to"):
            return [rows]
        return [
            rows,
            Step(
                "switch", switching.switch, switching.switch_back, switching.require_switchable_back
            ),
        ]

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
    if not changes.same_columns(tracked.source, now):
        return item.with_problems(blocker("The columns of the source changed: convert it anew"))
    record = load_lance(bridge, item.target)
    version = int(open_dataset(bridge, record).version)
    target = read_back(spark, address_at(ends.target, item.target), version)
    source = schema.cast(now.read(spark), tracked.casts)
    since, problems = _since(options, tracked.source, source, target, now)
    switch_to = options.switch_to and options.switch_to.replace("{table}", now.names[-1])
    facts = {
        "source": now.model_dump(mode="json"),
        "casts": tracked.casts,
        "since": asdict(since),
        "snapshot_before": tracked.source.snapshot,
        "version_before": version,
        "switch_to": switch_to,
    }
    found = item.model_copy(
        update={"facts": facts, "fingerprint": _fingerprint(now, record, version)}
    )
    return _counted(spark, options, found.with_problems(*problems), target)


def _fingerprint(source: SourceTable, record: TableRecord, version: int) -> str:
    parts = f"{source.fingerprint()} {targets.identity_of(record)} {version}"
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def _since(
    options: CatchUpOptions, before: SourceTable, source: Any, target: Any, now: SourceTable
) -> tuple[Since, list[Problem]]:
    """Return the range of a round, and what keeps it from being taken."""
    if options.by == "column":
        column = str(options.column)
        low, high = (changes.greatest(each, column) for each in (target, source))
        return Since(low=low, high=high), []
    if options.by == "partition":
        if not now.partitions:
            return Since(), [blocker("It has no partitions: catch up by a column")]
        since = changes.partitions_since(source, target, now.partitions)
        if since.changed and not options.key:
            shown = "; ".join("/".join(map(str, each)) for each in since.changed[:5])
            return since, [blocker(f"Partitions changed that are there already ({shown}): {_KEY}")]
        return since, []
    if not now.has_snapshots:
        return Since(), [blocker(f"{now.format} has no snapshots: catch up by a column")]
    return Since(snapshot=before.snapshot), []


_KEY = "give a key, by which rows are updated and deleted"


def _counted(spark: Any, options: CatchUpOptions, item: Item, target: Any) -> Item:
    """Return the item with the number of rows that changed, and what that means."""
    if item.blockers:
        return item
    rows = changes_of(spark, options, item, target)
    with told_by_spark(f"The changes of '{display(item.source)}' cannot be counted"):
        count = rows.count()
    found = item.model_copy(update={"rows": count})
    source = source_frame(spark, item)
    if options.key and (nulls := changes.without_key(rows, options.key)):
        return found.with_problems(blocker(f"{nulls} rows have no key: it must not be null"))
    with told_by_spark(f"The rows of '{display(item.source)}' cannot be counted"):
        total, there = source.count(), target.count()
    if not options.key and total != there + count:
        problem = _unseen(options, total, there + count)
        found = found.with_problems(problem)
    if not count and not item.facts["switch_to"] and not found.problems:
        return found.model_copy(update={"nothing_to_do": "Nothing has come since"})
    return found


def _unseen(options: CatchUpOptions, total: int, expected: int) -> Problem:
    text = f"The source has {total} rows, and the table would have {expected}: some were "
    if options.by == "snapshot":
        return blocker(f"{text}changed or deleted; {_KEY}")
    return warning(f"{text}changed, deleted, or came late with a value that was passed; {_KEY}")


# -- verifying -------------------------------------------------------------------------------------


def _checks(work: CatchUpWork, level: Level) -> Iterator[Check]:
    """Compare all of the source, as the round read it, with the table."""
    spark = work.ends.source
    path = switching.final_path(work) if work.facts.get("switched") else work.item.target
    source = source_frame(spark, work.item)
    if work.options.by == "column":
        until = Since(high=Since.of(work.item.facts["since"]).high)
        source = changes.in_range(source, str(work.options.column), until, with_low=False)
    version = int(work.facts["version"])
    target = read_back(spark, address_at(work.ends.target, path), version)
    if level.includes(Level.SAMPLE):
        yield from checksums.compare_checksums(source, target)
        return
    with told_by_spark(f"The rows of '{work.item.name}' cannot be counted"):
        rows, found = source.count(), target.count()
    yield Check(name="rows", ok=rows == found, expected=rows, found=found)
