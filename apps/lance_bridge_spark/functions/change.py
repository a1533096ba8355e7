"""A table at the version that a change reads, and its rows as a DataFrame."""

from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import ConcurrentModificationError, TableColumnNotFoundError
from pyspark.sql.types import LongType, StructField, StructType

from lance_bridge.dataset import field_ids
from lance_bridge.errors import invalid
from lance_bridge.names import find_name
from lance_bridge.requests import LATEST, Ref

from ..addresses import Access, address_of
from ..lookup import find_table
from ..schemas import ROW_ID, require_distinct, require_writable, spark_schema
from ..source.options import SCAN_OPTION, load
from ..source.writer import NO_FRAGMENT, Commit, Target, fragments_to_guard
from . import change_tasks as tasks
from .change_tasks import Action, Job, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..spark_tables import SparkTable

# -- snapshots -------------------------------------------------------------------------------------

_ALL = re.compile(r"(?:^|[(.,])\s*\*")
"""A star that means all columns, and not a multiplication."""


@dataclass(frozen=True)
class Snapshot:
    """One version of a table. Used on the driver only: tasks get its `access`."""

    spark: Any
    table: SparkTable
    dataset: lance.LanceDataset

    @classmethod
    def open(cls, spark: Any, name: str, ref: Ref = LATEST, *, write: bool = False) -> Snapshot:
        """Open a table by its name or location.

        Raises:
            InvalidInputError: (13) no such catalog, a malformed name, or no Lance table.
            TableNotFoundError: (4)
            TableVersionNotFoundError: (11)
            TableTagNotFoundError: (8)
            TableBranchNotFoundError: (22)
            InvalidTableStateError: (19) it is declared, and has no data yet.
            ServiceUnavailableError: (17)
        """
        table = find_table(address_of(spark, name))
        return cls(spark, table, table.open(ref, write=write))

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return self.table.address.name

    @property
    def version(self) -> int:
        return int(self.dataset.version)

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's schema in Lance."""
        return self.dataset.schema

    @cached_property
    def types(self) -> StructType:
        """The table's schema in Spark."""
        return spark_schema(self.schema)

    def access(self, *, write: bool = False) -> Access:
        """Return what tasks need to open this version."""
        return self.table.access(self.dataset, write=write)

    def require_changeable(self, *, rewrites: bool = True) -> None:
        """Check that a change by Spark's expressions changes only the columns that it names.

        Args:
            rewrites: Whether the change writes rows, and does not only delete some.

        Raises:
            InvalidInputError: (13)
        """
        require_distinct(self.spark, self.schema, self.name)
        if rewrites:
            require_writable(self.schema.names, self.name)

    def column(self, name: str) -> str:
        """Return the table's column for a name; case matters only if columns differ only by case.

        Raises:
            TableColumnNotFoundError: (12)
            InvalidInputError: (13) it may mean several.
        """
        names = self.schema.names
        found = find_name(name, names)
        if found is not None:
            return found
        raise TableColumnNotFoundError(
            f"Table '{self.name}' has no column '{name}': it has {', '.join(names)}"
        )

    def columns_in(self, *expressions: str | None) -> list[str]:
        """Return a superset of the columns that Spark expressions read.

        A column is included if its name occurs anywhere, even in a string literal.
        """
        text = " ".join(each for each in expressions if each is not None)
        if _ALL.search(text):
            return list(self.schema.names)
        folded = text.lower()
        return [each for each in self.schema.names if each.replace("`", "``").lower() in folded]

    def scan(self, columns: Iterable[str], row_keys: Sequence[str] = ()) -> DataFrame:
        """Return columns of this version, followed by `row_keys` (row id or address)."""
        wanted = set(columns)
        fields = [each for each in self.types.fields if each.name in wanted]
        fields += [StructField(key, LongType(), nullable=False) for key in row_keys]
        scan = {SCAN_OPTION: json.dumps({"version": self.version})}
        return load(self.spark, self.table.address, scan, StructType(fields))


# -- changes ---------------------------------------------------------------------------------------

RETRIES = 3
"""How often a change is retried by default if it conflicts with another writer's."""


@dataclass(frozen=True)
class Changed:
    """The numbers of rows that a change inserted, updated and deleted, and its version."""

    version: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether no row was changed, so that no version was committed."""
        return not (self.inserted or self.updated or self.deleted)


@dataclass(frozen=True)
class Plan:
    """A change to execute."""

    rows: DataFrame
    """Row id, address, action and new values of the affected rows."""
    actions: Sequence[Action]
    values: Sequence[str]
    """The table's columns that have new values in `rows`."""
    needs_one_match: bool = True
    """Whether the change fails if a row is affected twice."""
    guards_all: bool = False
    """Whether a concurrent change of any existing row, affected or not, is a conflict."""


@dataclass(frozen=True)
class TransactionSpec:
    """The transaction of a change, by which later processes can find it.

    Attributes:
        uuid: Its identifier.
        properties: Its properties.
        alone: Whether any later version is a conflict.
    """

    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    properties: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False


@dataclass(frozen=True)
class Outcome:
    """The files that the tasks have written, which are not committed yet."""

    counts: Mapping[Kind, int]
    new: list[str]
    left: Mapping[int, str]
    """Fragments that lost some rows, in JSON, by id."""
    gone: list[int]
    """Fragments that lost all rows."""


class MixedAttemptsError(Exception):
    """The results of a task mix two attempts."""


def retry(retries: int, attempt: Callable[[], Changed]) -> Changed:
    """Return the result of an attempt, which is retried if it conflicts with another writer's.

    Raises:
        InvalidInputError: (13) ``retries`` is negative.
        ConcurrentModificationError: (14) every attempt conflicted with another writer's change.
    """
    if retries < 0:
        raise invalid(f"retries must be 0 or more, not {retries}")
    for left in range(retries, -1, -1):
        try:
            return attempt()
        except ConcurrentModificationError:
            if not left:
                raise
        except MixedAttemptsError as error:
            if not left:
                raise ConcurrentModificationError(str(error)) from error
    raise AssertionError("the last attempt returns or raises")


def apply_change(
    table: Snapshot, plan: Plan, transaction: TransactionSpec | None = None
) -> Changed:
    """Execute a change, and commit it.

    Args:
        transaction: A transaction with a new identifier by default.

    Raises:
        InvalidInputError: (13) a row of the table would be changed twice.
        ConcurrentModificationError: (14) the same fragments were changed concurrently.
        OutcomeUnknownError: (17) it is unknown whether the change was committed.
        ServiceUnavailableError: (17)
    """
    outcome = _run(table, plan)
    counts = (outcome.counts[kind] for kind in (Kind.INSERT, Kind.UPDATE, Kind.DELETE))
    changed = Changed(table.version, *counts)
    if changed.is_empty:
        return changed
    version = _commit(table, outcome, plan, transaction or TransactionSpec())
    return replace(changed, version=version)


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
        # A file contains either rows that keep their ids or rows that get new ids: sort for one of
        # each. The ids are stored in the manifest, and are smallest in order.
        rows = rows.sortWithinPartitions(tasks.ACTION, ROW_ID)
    sent = rows.mapInArrow(partial(tasks.write, job), tasks.SENT)
    by_fragment = sent.repartition("fragment").sortWithinPartitions("fragment")
    done = by_fragment.mapInArrow(partial(tasks.delete, job), tasks.DONE).collect()
    return _collect_outcome(
        table, plan, [(row["fragment"], json.loads(row["body"])) for row in done]
    )


def _collect_outcome(table: Snapshot, plan: Plan, answers: Sequence[tuple[int, Any]]) -> Outcome:
    summaries = [body for fragment, body in answers if fragment == tasks.SUMMARY]
    fragments = {fragment: body for fragment, body in answers if fragment != tasks.SUMMARY}
    _check_attempts(summaries, fragments.values())
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


def _check_attempts(summaries: Sequence[Any], bodies: Any) -> None:
    """Raise MixedAttemptsError unless each task's results are complete and of one attempt."""
    arrived: dict[str, int] = defaultdict(int)
    for body in bodies:
        for attempt, count in body["arrived"].items():
            arrived[attempt] += count
    sent = {each["attempt"]: each["touched"] for each in summaries if each["touched"]}
    if sent != dict(arrived):
        raise MixedAttemptsError(
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
        entry=table.table.entry_id,
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
    """Return the operation that commits a change with its new fragments.

    Args:
        dataset: The version that was read.
        values: The columns that have new values.
        guards_all: Whether a concurrent change of any existing row is a conflict.
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
        # Rows that keep a stable id are still covered by indices, except those on these columns.
        fields_for_preserving_frag_bitmap=field_ids(dataset, values),
        update_mode="rewrite_rows",
    )
