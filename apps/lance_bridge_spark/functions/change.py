"""A change of rows: tasks write new rows as files and mark old rows deleted, in one commit.

The tasks have two steps, with a shuffle by fragment between them. Their files are not visible until
the driver commits them. A task that runs again may write other files, and Spark may pass the output
of its first attempt to some tasks of the second step, and that of its second attempt to others. So
all output contains the attempt that it is from, and the driver counts what has arrived of each.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence
from lance_namespace.errors import ConcurrentModificationError

from lance_bridge import blobs
from lance_bridge.dataset import BATCH_BYTES, field_ids, row_bytes
from lance_bridge.errors import invalid, translate_lance_errors

from ..jobs.tasks import task_failures
from ..schemas import ROW_ADDRESS, ROW_ID
from ..source import conversion
from ..source.worker_calls import spark_call
from ..source.writer import NO_FRAGMENT, Commit, Target, fragments_to_guard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .read_write import Snapshot

ACTION = "_lance_bridge_action"
"""The column with a row's action: an index into `Job.actions`."""
VALUE = "_lance_bridge_value_"
"""The prefix of the columns with new values, followed by an index into `Job.values`."""

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


# -- the job on the driver -------------------------------------------------------------------------


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
        rows = rows.sortWithinPartitions(ACTION, ROW_ID)
    sent = rows.mapInArrow(partial(write_rows, job), SENT)
    by_fragment = sent.repartition("fragment").sortWithinPartitions("fragment")
    with task_failures(f"Table '{table.name}' is not changed"):
        done = by_fragment.mapInArrow(partial(delete_rows, job), DONE).collect()
    return _collect_outcome(
        table, plan, [(row["fragment"], json.loads(row["body"])) for row in done]
    )


def _collect_outcome(table: Snapshot, plan: Plan, answers: Sequence[tuple[int, Any]]) -> Outcome:
    summaries = [body for fragment, body in answers if fragment == SUMMARY]
    fragments = {fragment: body for fragment, body in answers if fragment != SUMMARY}
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


# -- tasks -----------------------------------------------------------------------------------------

SENT = "fragment long, attempt string, changed binary, kept binary, summary string"
"""The schema of the first step's output, as Spark DDL."""
DONE = "fragment long, body string"
"""The schema of the second step's output, as Spark DDL."""
SUMMARY = -1
"""The fragment id of the row that summarizes a task."""

ROWS_PER_FILE = 1024 * 1024
_ROWS_PER_MESSAGE = 1024 * 1024
_OFFSET_BITS = 32

_SENT = pa.schema(
    [
        ("fragment", pa.int64()),
        ("attempt", pa.string()),
        ("changed", pa.binary()),
        ("kept", pa.binary()),
        ("summary", pa.string()),
    ]
)
_DONE = pa.schema([("fragment", pa.int64()), ("body", pa.string())])


class Kind(Enum):
    """What a change does with a row."""

    KEEP = "keep"
    """Nothing; but it counts as a match if a target row may have only one."""
    DELETE = "delete"
    UPDATE = "update"
    INSERT = "insert"


@dataclass(frozen=True)
class Action:
    """What a change does with some rows, and which columns get new values."""

    kind: Kind
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Job:
    """What every task of a change needs. Pickles, with the credentials."""

    target: Target
    actions: tuple[Action, ...]
    values: tuple[str, ...]
    """The columns of the table that get new values."""
    keeps_ids: bool
    """Whether the table has stable row ids, which updated rows keep."""
    needs_one_match: bool = True
    """Whether the change fails if a row is affected twice."""


@dataclass(frozen=True)
class Piece:
    """New rows in the table's schema; without rows, a point where a file may end."""

    rows: pa.RecordBatch | None = None
    ids: np.ndarray[Any, Any] | None = None
    """The row ids that the rows keep, or None for inserted rows."""


class Pieces:
    """An iterator of pieces with a lookahead."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self.next: Piece | None = None
        self.advance()

    def advance(self) -> None:
        """Set `next` to the following piece, or None at the end."""
        self.next = next(self._pieces, None)


# -- first step ------------------------------------------------------------------------------------


def write_rows(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the new rows of a task, and yield the offsets of the old rows that they replace."""
    with spark_call():
        yield from Writing(job).run(batches)


@dataclass
class TouchedRows:
    """Arrays of offsets of affected rows in one fragment."""

    changed: list[np.ndarray[Any, Any]] = field(default_factory=list)
    kept: list[np.ndarray[Any, Any]] = field(default_factory=list)


class Writing:
    """One attempt of one task of the first step."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._schema = pa.ipc.read_schema(pa.py_buffer(job.target.schema))
        self._attempt = uuid.uuid4().hex
        self._dataset: lance.LanceDataset | None = None
        self._touched: dict[int, TouchedRows] = defaultdict(TouchedRows)
        self._pending = 0
        self._sent = 0
        self._counts = dict.fromkeys(Kind, 0)
        self._kept_bytes = dict[Action, int]()
        self._fragments: list[str] = []

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = Pieces(self._pieces(batches))
        while pieces.next is not None:
            if pieces.next.rows is None:
                pieces.advance()
            else:
                self._write_file(pieces)
            yield from self._messages()
        yield from self._messages()
        yield self._summary()

    def _pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        for batch in batches:
            numbers = batch.column(ACTION).to_numpy()
            for number, action in enumerate(self._job.actions):
                chosen = numbers == number
                if chosen.any():
                    yield from self._apply(action, batch.filter(pa.array(chosen)))
            if self._pending >= _ROWS_PER_MESSAGE:
                yield Piece()

    def _apply(self, action: Action, rows: pa.RecordBatch) -> Iterator[Piece]:
        self._counts[action.kind] += rows.num_rows
        if action.kind is Kind.INSERT:
            yield Piece(self._complete(rows, action))
            return
        self._record_touched(action, rows.column(ROW_ADDRESS).to_numpy())
        if action.kind is Kind.UPDATE:
            for start, length in self._slices(rows, action):
                some = rows.slice(start, length)
                yield Piece(self._complete(some, action), some.column(ROW_ID).to_numpy())

    def _slices(self, rows: pa.RecordBatch, action: Action) -> Iterable[tuple[int, int]]:
        """Return runs of rows whose old values fit in memory."""
        kept = [name for name in self._schema.names if name not in action.columns]
        if not kept:
            return [(0, rows.num_rows)]
        with_blobs = blobs.columns_with_blobs(self._schema, kept)
        sizes: np.ndarray[Any, Any] | None = np.zeros(rows.num_rows, np.int64)
        with self._reading() as dataset:
            if action not in self._kept_bytes:
                self._kept_bytes[action] = row_bytes(dataset, kept)
            if with_blobs:
                ids = rows.column(ROW_ID).cast(pa.uint64())
                found = dataset._take_rows(ids, columns=with_blobs)
                sizes = blobs.row_sizes([_combine_chunks(found.column(n)) for n in with_blobs])
        each = self._kept_bytes[action]
        if not with_blobs and each * rows.num_rows <= BATCH_BYTES:
            return [(0, rows.num_rows)]
        return blobs.slices(None if sizes is None else sizes + each, rows.num_rows)

    def _record_touched(self, action: Action, addresses: np.ndarray[Any, Any]) -> None:
        fragments = addresses >> _OFFSET_BITS
        offsets = (addresses & (2**_OFFSET_BITS - 1)).astype(np.uint32)
        for fragment in np.unique(fragments):
            touched = self._touched[int(fragment)]
            into = touched.kept if action.kind is Kind.KEEP else touched.changed
            into.append(offsets[fragments == fragment])
        self._pending += len(addresses)

    def _complete(self, rows: pa.RecordBatch, action: Action) -> pa.RecordBatch:
        """Return new rows in the table's schema; columns that are not set keep their old values."""
        columns = {
            name: conversion.to_lance(rows.column(f"{VALUE}{place}"), self._schema.field(name))
            for place, name in enumerate(self._job.values)
            if name in action.columns
        }
        rest = [name for name in self._schema.names if name not in columns]
        if action.kind is Kind.UPDATE:
            columns.update(self._read(rest, rows.column(ROW_ID)))
        else:
            columns.update({n: pa.nulls(len(rows), self._schema.field(n).type) for n in rest})
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )

    def _read(self, names: list[str], ids: pa.Array) -> Mapping[str, pa.Array]:
        """Return columns of the old rows, which do not pass through Spark."""
        if not names:
            return {}
        with self._reading() as dataset:
            found = blobs.take_rows(dataset, ids.cast(pa.uint64()), names)
        columns = {name: _combine_chunks(column) for name, column in found.items()}
        return {n: conversion.to_lance(c, self._schema.field(n)) for n, c in columns.items()}

    @contextmanager
    def _reading(self) -> Iterator[lance.LanceDataset]:
        with translate_lance_errors(
            f"Rows of table '{self._job.target.access.address.name}' are not read"
        ):
            if self._dataset is None:
                self._dataset = self._job.target.access.open()
            yield self._dataset

    def _write_file(self, pieces: Pieces) -> None:
        ids: list[np.ndarray[Any, Any]] = []
        written = self._job.target.write(self._file(pieces, ids))
        if not (self._job.keeps_ids and ids):
            self._fragments += written.fragments
            return
        kept, start = np.concatenate(ids), 0
        for text in written.fragments:
            fragment = FragmentMetadata.from_json(text)
            end = start + fragment.physical_rows
            fragment.row_id_meta = RowIdSequence(kept[start:end].tolist()).to_inline_metadata()
            self._fragments.append(json.dumps(fragment.to_json()))
            start = end

    def _file(self, pieces: Pieces, ids: list[np.ndarray[Any, Any]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the next file; with stable ids, either all or none keep their ids."""
        first, count = pieces.next, 0
        while (piece := pieces.next) is not None and piece.rows is not None:
            is_other = first is not None and (piece.ids is None) != (first.ids is None)
            if count >= ROWS_PER_FILE or (self._job.keeps_ids and is_other):
                return
            count += piece.rows.num_rows
            if piece.ids is not None:
                ids.append(piece.ids)
            pieces.advance()
            yield piece.rows

    def _messages(self) -> Iterator[pa.RecordBatch]:
        rows = [
            {
                "fragment": fragment,
                "attempt": self._attempt,
                "changed": _bytes(touched.changed),
                "kept": _bytes(touched.kept),
            }
            for fragment, touched in self._touched.items()
        ]
        self._sent += self._pending
        self._pending = 0
        self._touched.clear()
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_SENT)

    def _summary(self) -> pa.RecordBatch:
        summary = {
            "attempt": self._attempt,
            "touched": self._sent,
            "fragments": self._fragments,
            **{kind.value: self._counts[kind] for kind in Kind},
        }
        row = {"fragment": SUMMARY, "attempt": self._attempt, "summary": json.dumps(summary)}
        return pa.RecordBatch.from_pylist([row], schema=_SENT)


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _bytes(offsets: list[np.ndarray[Any, Any]]) -> bytes:
    return np.concatenate(offsets).tobytes() if offsets else b""


# -- second step -----------------------------------------------------------------------------------


def delete_rows(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Mark rows deleted, fragment by fragment: the input is sorted by fragment."""
    deleting = Deleting(job)
    with spark_call():
        for batch in batches:
            for row in batch.to_pylist():
                yield from deleting.take(row)
        yield from deleting.finish()


class Deleting:
    """One attempt of one task of the second step."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._dataset: lance.LanceDataset | None = None
        self._fragment: int | None = None
        self._touched = TouchedRows()
        self._arrived: dict[str, int] = defaultdict(int)

    def take(self, row: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        if row["fragment"] == SUMMARY:
            yield _answer(SUMMARY, row["summary"])
            return
        if row["fragment"] != self._fragment:
            yield from self.finish()
            self._fragment = row["fragment"]
        for into, data in ((self._touched.changed, "changed"), (self._touched.kept, "kept")):
            offsets = np.frombuffer(row[data], dtype=np.uint32)
            into.append(offsets)
            self._arrived[row["attempt"]] += len(offsets)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the result of the current fragment, if there is one."""
        if self._fragment is None:
            return
        changed = np.concatenate(self._touched.changed)
        touched = np.concatenate([changed, *self._touched.kept])
        doubled = len(touched) - len(np.unique(touched))
        summary: dict[str, Any] = {"arrived": dict(self._arrived), "doubled": doubled}
        if len(changed) and not (doubled and self._job.needs_one_match):
            summary["metadata"] = self._delete(self._fragment, changed)
        yield _answer(self._fragment, json.dumps(summary))
        self._fragment, self._touched = None, TouchedRows()
        self._arrived.clear()

    def _delete(self, fragment: int, offsets: np.ndarray[Any, Any]) -> str | None:
        """Return the fragment without these rows, as JSON, or None if no rows are left."""
        access = self._job.target.access
        with translate_lance_errors(f"Rows of table '{access.address.name}' are not deleted"):
            if self._dataset is None:
                self._dataset = access.open()
            found: Any = self._dataset.get_fragment(fragment)
            left = found.delete_rows(np.unique(offsets).tolist())
        return None if left is None else json.dumps(left.to_json())


def _answer(fragment: int, body: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"fragment": fragment, "body": body}], schema=_DONE)
