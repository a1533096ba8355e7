"""InsertIntoTable: fragments are written first, and made visible in one commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar
from weakref import WeakValueDictionary

import lance
import pyarrow as pa
from lance.fragment import write_fragments
from lance_namespace.errors import (
    ConcurrentModificationError,
    TableAlreadyExistsError,
    TableSchemaValidationError,
)

from .. import blobs
from ..errors import (
    LANCE_ERRORS,
    TableNotWrittenError,
    concurrent_modification,
    first_line,
    panics_as_errors,
)
from ..forks import restart_in_children
from ..requests import Ref
from ..table import Table, transaction_properties
from .arrow_compat import empty_reader
from .create import write_first
from .rows import Rows

ResultT = TypeVar("ResultT")

_TURN_SECONDS = 10.0
"""How long to wait for a turn to commit. A commit without its turn is safe too. A turn can be long
if the storage does not respond, and other operations should not wait for all of that time."""

_RETRY_SECONDS, _MOST_RETRY_SECONDS = 3.0, 10.0
"""How long commits of this process wait for clients to retry refused commits."""
_CALLS_OF_RETRY = 16
"""The time of a retry, as a multiple of the time of the refused call: Lance makes about four calls
in an attempt, and pauses for up to three times the attempt's time before the next one."""
_GIVEN_UP_SECONDS = 60.0
"""How long after its refusal a client may still retry: Lance gives up after 30 s."""
_STALE_SECONDS = 1.0
"""The age of an open dataset above which an append loads the latest version to commit to."""


class InsertMode(Enum):
    """Whether existing rows are kept. Source: InsertIntoTable."""

    APPEND = "Append"
    OVERWRITE = "Overwrite"


@dataclass(frozen=True)
class Inserted:
    """What an insert did. The first version of a table has no transaction here."""

    rows: int
    version: int
    transaction_id: str | None = None


def insert(table: Table, rows: Rows, mode: InsertMode, ref: Ref) -> Inserted:
    """Append rows to a table, or replace all its rows. Source: InsertIntoTable.

    The table keeps its schema in either mode. Columns can be in any order, and nullable ones can be
    omitted. A declared table gets its first version, with the schema of the rows. Overwrite also
    replaces what other writers committed since the table was opened.

    Raises:
        InvalidInputError: (13) bad rows.
        ConcurrentModificationError: (14) the table was overwritten concurrently.
        TableSchemaValidationError: (20) the rows do not fit the table's schema.
        TableBranchNotFoundError: (22)
    """
    opened = time.monotonic()
    dataset = open_or_none(table, ref)
    if dataset is None:
        return write_first_or_retry(table, rows, lambda now: insert(now, rows, mode, ref), Inserted)
    if mode is InsertMode.OVERWRITE:
        require_fit(table, rows.schema, dataset.schema)  # Lance would change the table's schema
        reader = _complete_rows(rows, dataset.schema)
    else:
        reader = rows.reader(into=dataset.schema)
    with table.committing(
        dataset,
        rows=rows,
        check_input=lambda: require_fit(table, rows.schema, dataset.schema),
    ):
        transaction = write_fragments(
            reader, dataset, mode=mode.value.lower(), return_transaction=True
        )
    transaction.transaction_properties = transaction_properties()
    options = table.storage_options(write=True)
    yield_to_rejected_writers(table.uri)
    with table.committing(dataset), _commit_turn(table.uri):
        is_stale = mode is InsertMode.APPEND and time.monotonic() - opened > _STALE_SECONDS
        base = _advance(table, ref, dataset, transaction) if is_stale else dataset
        with table.committing(base):  # it has the error, if the catalog refuses the commit
            committed = lance.LanceDataset.commit(base, transaction, storage_options=options)
    table.note_commit(int(base.version), int(committed.version), committed)
    return Inserted(rows.count, int(committed.version), transaction.uuid)


def _advance(
    table: Table, ref: Ref, dataset: lance.LanceDataset, transaction: lance.Transaction
) -> lance.LanceDataset:
    """Move an append to the latest version, if that has the same schema and all old fragments.

    Otherwise, Lance reads every version in between at each of its attempts, and keeps them: 300
    versions of 2,000 fragments took 400 MB and half a second. If the schema differs or fragments
    are missing, Lance still does so, to find out whether the append conflicts.
    """
    latest = table.open(ref, write=True)
    if not _has_fragments_of(latest, dataset) or latest.lance_schema != dataset.lance_schema:
        return dataset
    transaction.read_version = latest.version
    return latest


def _has_fragments_of(latest: lance.LanceDataset, before: lance.LanceDataset) -> bool:
    """Return whether a version has all fragments of an earlier one.

    After an overwrite, the same ids can have other files. Only the files of the first and the last
    fragment are compared: reading those of 1,000 fragments blocks other threads for 15 ms.
    """
    ids = set(before.fragment_ids())
    if not ids <= set(latest.fragment_ids()):
        return False
    ends = {min(ids), max(ids)} if ids else set()
    return all(_files_of(latest, each) == _files_of(before, each) for each in ends)


def _files_of(dataset: lance.LanceDataset, fragment_id: int) -> list[str]:
    fragment = dataset.get_fragment(fragment_id)
    return [file.path for file in fragment.metadata.files] if fragment else []


@contextmanager
def _commit_turn(uri: str) -> Iterator[None]:
    """Wait until other threads have committed to the table at a URI, or have taken too long.

    Lance commits optimistically: one of several writers succeeds, and the others read its commit
    and retry for 30 seconds, with growing pauses. If the catalog holds the versions, an attempt
    takes several calls, and threads of one process would keep each other from committing.
    """
    with _commits.turns_lock:
        turn = _commits.turns.setdefault(uri, threading.Lock())
    is_mine = turn.acquire(timeout=_TURN_SECONDS)
    try:
        yield
    finally:
        if is_mine:
            turn.release()


@dataclass
class RejectedWriters:
    """Clients that commit to a table on their own, were refused, and will retry."""

    count: int = 0
    wait_seconds: float = 0.0
    """Seconds to wait for them."""
    last: float = 0.0
    """When the last one was refused, by `time.monotonic`."""
    own_turn_ends: float = 0.0
    """The time until which this process commits without waiting for them."""


class _Commits:
    """The commits of this process to each table, by the table's URI."""

    def __init__(self) -> None:
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`: no thread that commits exists in the child."""
        self.turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self.turns_lock = threading.Lock()
        self.refused: dict[str, RejectedWriters] = {}
        self.refused_changed = threading.Condition()


_commits = _Commits()


@contextmanager
def track_client_commit(uri: str) -> Iterator[None]:
    """Record whether the commit of a client that writes to a table on its own is refused.

    Such a client pauses longer after each refusal. Unless threads of this process leave a gap
    between their turns, it would rarely succeed.
    """
    started = time.monotonic()
    try:
        yield
    except ConcurrentModificationError:
        _note_refusal(uri, time.monotonic() - started)
        raise
    with _commits.refused_changed:
        if uri in _commits.refused and _commits.refused[uri].count:
            _commits.refused[uri].count -= 1
            _commits.refused_changed.notify_all()


def _note_refusal(uri: str, seconds: float) -> None:
    now = time.monotonic()
    with _commits.refused_changed:
        for each in [
            each for each, at in _commits.refused.items() if now - at.last > _GIVEN_UP_SECONDS
        ]:
            del _commits.refused[each]
        clients = _commits.refused.setdefault(uri, RejectedWriters())
        clients.count, clients.last = clients.count + 1, now
        retry = min(_MOST_RETRY_SECONDS, _CALLS_OF_RETRY * seconds)
        clients.wait_seconds = max(_RETRY_SECONDS, retry)


def yield_to_rejected_writers(uri: str) -> None:
    """Wait until refused clients have committed, then reserve as much time for this process."""
    with _commits.refused_changed:
        clients, now = _commits.refused.get(uri), time.monotonic()
        if clients is None or not clients.count or now < clients.own_turn_ends:
            return
        _commits.refused_changed.wait_for(lambda: not clients.count, clients.wait_seconds)
        clients.count = 0
        clients.own_turn_ends = max(clients.own_turn_ends, 2 * time.monotonic() - now)


def open_or_none(table: Table, ref: Ref) -> lance.LanceDataset | None:
    """Return a table's dataset to write to, or None if the table has not been written yet."""
    try:
        return table.open(ref, write=True)
    except TableNotWrittenError:
        if ref.branch is not None:
            raise
        return None


def write_first_or_retry(
    table: Table,
    rows: Rows,
    retry: Callable[[Table], ResultT],
    make_result: Callable[[int, int], ResultT],
) -> ResultT:
    """Create the first version of a declared table, or retry if another writer was first.

    Raises:
        InvalidInputError: (13) bad rows.
        ConcurrentModificationError: (14) another writer was first, and the rows cannot be read
            again.
    """
    rows.require_storable()
    try:
        version = write_first(table, rows)
    except TableAlreadyExistsError as error:
        if not rows.is_readable:
            raise concurrent_modification(table.path) from error
        return retry(table.refreshed())
    return make_result(rows.count, version)


def require_fit(table: Table, rows: pa.Schema, schema: pa.Schema) -> None:
    """Check, without reading rows, that rows of one schema fit a table of another.

    Raises TableSchemaValidation (20).
    """
    if rows.equals(schema, check_metadata=True):
        return
    like_table = lance.write_dataset(empty_reader(schema), "memory://")
    try:
        with panics_as_errors():
            write_fragments(empty_reader(rows), like_table, mode="append")
    except LANCE_ERRORS as error:
        raise TableSchemaValidationError(
            f"The rows do not fit table '{table.name}': {first_line(error)}"
        ) from error


# -- overwriting -----------------------------------------------------------------------------------


def _complete_rows(rows: Rows, table: pa.Schema) -> pa.RecordBatchReader:
    """Return rows in the schema of a table, with null for missing columns."""
    reader = rows.reader(into=table)

    def complete(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        filled = [_fill(columns.get(each.name), each.type, batch.num_rows) for each in table]
        return pa.record_batch(filled, schema=table)

    return pa.RecordBatchReader.from_batches(table, map(complete, reader))


def _fill(array: pa.Array | None, dtype: pa.DataType, length: int) -> pa.Array:
    if array is None:
        return pa.nulls(length, dtype)
    if array.type.equals(dtype):
        return array
    if not pa.types.is_struct(dtype) and blobs.has_blobs(pa.field("", dtype)):
        return blobs.to_extension(array, dtype)
    if not pa.types.is_struct(dtype):
        return array.cast(dtype)  # such as a string view, which Lance stores as a string
    given = [array.type.field(i).name for i in range(array.type.num_fields)]
    parts = dict(zip(given, array.flatten(), strict=True))
    fields = [dtype.field(i) for i in range(dtype.num_fields)]
    filled = [_fill(parts.get(each.name), each.type, length) for each in fields]
    return pa.StructArray.from_arrays(filled, fields=fields, mask=array.is_null())
