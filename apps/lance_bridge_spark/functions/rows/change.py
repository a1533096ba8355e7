"""A change of rows, from the driver's side: one Spark job, then one commit.

Every change is read, computed and written on one version of the table, and committed as a change of
that version. If another writer has changed the same fragments since, the commit fails and the table
is as it was; then all of it is done again on the new version, a few times.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
from lance.fragment import FragmentMetadata
from lance_namespace.errors import ConcurrentModificationError

from lance_bridge.dataset import field_ids
from lance_bridge.errors import invalid
from lance_bridge.records import ENTRY_ID

from ...source.commit import NO_FRAGMENT, Commit, fragments_to_guard
from ...source.types import ROW_ID
from ...source.writer import Target
from . import tasks
from .snapshot import Snapshot
from .tasks import Action, Job, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RETRIES = 3
"""How often a change is done again by default, after others came first."""


@dataclass(frozen=True)
class Changed:
    """What a change did to a table's rows, and the version that has it."""

    version: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether no row was changed; then no version was made."""
        return not (self.inserted or self.updated or self.deleted)


@dataclass(frozen=True)
class Plan:
    """What a change is to do."""

    rows: DataFrame
    """Row id, address, action and new values of the rows that the change is about."""
    actions: Sequence[Action]
    values: Sequence[str]
    """The columns of the table that `rows` has new values of."""
    needs_one_match: bool = True
    """Whether a row that is touched twice makes the change fail."""
    guards_all: bool = False
    """Whether a concurrent change of any row there is, touched or not, makes this one fail."""


@dataclass(frozen=True)
class TransactionSpec:
    """The transaction of a change that is to be recognised by later processes.

    Attributes:
        uuid: Its identifier.
        properties: What is kept with it.
        alone: Whether any later version that another writer made is a conflict.
    """

    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    properties: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False


@dataclass(frozen=True)
class Outcome:
    """What the tasks have written; nothing of it is visible yet."""

    counts: Mapping[Kind, int]
    new: list[str]
    left: Mapping[int, str]
    """Fragments that lost some rows, in JSON, by id."""
    gone: list[int]
    """Fragments that lost all rows."""


class MixedTriesError(Exception):
    """What arrived of a task is partly of one try, and partly of another."""


def retry(retries: int, attempt: Callable[[], Changed]) -> Changed:
    """Return what an attempt did; it is made again where others came first.

    Raises:
        InvalidInputError: (13) ``retries`` is negative.
        ConcurrentModificationError: (14) others came first every time.
    """
    if retries < 0:
        raise invalid(f"retries must be 0 or more, not {retries}")
    for left in range(retries, -1, -1):
        try:
            return attempt()
        except ConcurrentModificationError:
            if not left:
                raise
        except MixedTriesError as error:
            if not left:
                raise ConcurrentModificationError(str(error)) from error
    raise AssertionError("the last attempt returns or raises")


def apply(table: Snapshot, plan: Plan, transaction: TransactionSpec | None = None) -> Changed:
    """Do a change, and commit it.

    Args:
        transaction: One with a new identifier by default.

    Raises:
        InvalidInputError: (13) a row of the table would be changed twice.
        ConcurrentModificationError: (14) others changed the same fragments meanwhile.
        OutcomeUnknownError: (17) whether it was committed is not known.
        ServiceUnavailableError: (17)
    """
    outcome = _run(table, plan)
    changed = Changed(
        table.version,
        outcome.counts[Kind.INSERT],
        outcome.counts[Kind.UPDATE],
        outcome.counts[Kind.DELETE],
    )
    if changed.is_empty:
        return changed
    version = _commit(table, outcome, plan, transaction or TransactionSpec())
    return Changed(version, changed.inserted, changed.updated, changed.deleted)


# -- the job ---------------------------------------------------------------------------------------


def _run(table: Snapshot, plan: Plan) -> Outcome:
    job = Job(
        target=Target.appending(table.access(write=True), table.schema),
        actions=tuple(plan.actions),
        values=tuple(plan.values),
        keeps_ids=bool(table.dataset.has_stable_row_ids),
        needs_one_match=plan.needs_one_match,
    )
    rows = plan.rows
    kinds = {action.kind for action in plan.actions}
    if job.keeps_ids and Kind.UPDATE in kinds:
        # Files hold rows that keep an id, or rows that get one: let there be one of each. The ids
        # go through the driver into the manifest, and take the least room in their order.
        rows = rows.sortWithinPartitions(tasks.ACTION, ROW_ID)
    sent = rows.mapInArrow(partial(tasks.write, job), tasks.SENT)
    by_fragment = sent.repartition("fragment").sortWithinPartitions("fragment")
    done = by_fragment.mapInArrow(partial(tasks.delete, job), tasks.DONE).collect()
    return _outcome(table, plan, [(row["fragment"], json.loads(row["body"])) for row in done])


def _outcome(table: Snapshot, plan: Plan, answers: Sequence[tuple[int, Any]]) -> Outcome:
    summaries = [body for fragment, body in answers if fragment == tasks.SUMMARY]
    fragments = {fragment: body for fragment, body in answers if fragment != tasks.SUMMARY}
    _require_whole(summaries, fragments.values())
    doubled = sum(body["doubled"] for body in fragments.values())
    if doubled and plan.needs_one_match:
        raise invalid(
            f"[MERGE_CARDINALITY_VIOLATION] {doubled} more source rows than one match a row of "
            f"table '{table.name}', and it can be changed once only: leave one row per match in "
            "the source. Nothing is changed"
        )
    touched = {each: body["metadata"] for each, body in fragments.items() if "metadata" in body}
    counts = {kind: sum(each[kind.value] for each in summaries) for kind in Kind}
    counts[Kind.DELETE] -= doubled
    return Outcome(
        counts=counts,
        new=[text for each in summaries for text in each["fragments"]],
        left={each: text for each, text in touched.items() if text is not None},
        gone=sorted(each for each, text in touched.items() if text is None),
    )


def _require_whole(summaries: Sequence[Any], bodies: Any) -> None:
    """Check that of each task one try has arrived, and all of it."""
    arrived: dict[str, int] = defaultdict(int)
    for body in bodies:
        for attempt, count in body["arrived"].items():
            arrived[attempt] += count
    sent = {each["attempt"]: each["touched"] for each in summaries if each["touched"]}
    if sent != dict(arrived):
        raise MixedTriesError(
            "A task of the job ran twice, and results of both were mixed: nothing is changed. "
            "Run it again"
        )


# -- the commit ------------------------------------------------------------------------------------


def _commit(table: Snapshot, outcome: Outcome, plan: Plan, transaction: TransactionSpec) -> int:
    commit = Commit(
        table.table.address,
        table.access().location,
        table.version,
        transaction.uuid,
        properties=transaction.properties,
        alone=transaction.alone,
        entry=table.table.record.properties.get(ENTRY_ID),
    )
    operation = partial(
        build_operation, table.dataset, outcome, plan.values, guards_all=plan.guards_all
    )
    return commit.run(outcome.new, operation)


def build_operation(
    dataset: lance.LanceDataset,
    outcome: Outcome,
    values: Sequence[str],
    new: list[FragmentMetadata],
    *,
    guards_all: bool,
) -> Any:
    """Return what the commit of a change does, with its new fragments.

    Args:
        dataset: Of the version that was read.
        values: The columns that have new values.
        guards_all: Whether a concurrent change of any row there is makes it fail.
    """
    left = {each: FragmentMetadata.from_json(text) for each, text in outcome.left.items()}
    gone = list(outcome.gone)
    if guards_all:
        left.update({each.id: each for each in fragments_to_guard(dataset, {*gone, *left})})
        gone += [] if left or gone else [NO_FRAGMENT]
    return lance.LanceOperation.Update(
        removed_fragment_ids=gone,
        updated_fragments=list(left.values()),
        new_fragments=new,
        fields_modified=[],
        # Rows that keep a stable id are still covered by indices, except those on these.
        fields_for_preserving_frag_bitmap=field_ids(dataset, values),
        update_mode="rewrite_rows",
    )
