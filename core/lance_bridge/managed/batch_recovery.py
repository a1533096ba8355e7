"""Recovery of batches: a client that writes to a table first ends the batch that it is part of.

A decided batch is finished in all of its tables. A batch that stays undecided is aborted: its
client has died, or is too slow.
"""

from __future__ import annotations

import logging
import time
import uuid
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from ..catalog import Path
from ..connection import Connection
from ..entry import EntryT, TableEntry
from ..errors import concurrent_modification
from ..managed_state import PreparedVersion, State
from . import compare_and_set
from .batch_records import BatchRecord, Outcome
from .versions import latest_in_storage

STALLED_SECONDS = 5.0
"""How long the client of an undecided batch may make no progress, by another client's clock."""
SECONDS_PER_TABLE = 0.2
"""How much longer a client that makes progress may take, for each of the batch's tables."""
POLL_SECONDS = 0.1
_ROUNDS = 20
_ATTEMPTS = 5
_THREADS = 8
_CONVERTER = "manage-"
"""The beginning of the id of a holder that makes a table managed."""

logger = logging.getLogger(__name__)


def resolve_batch(table: EntryT) -> EntryT:
    """End the batch that a table is part of, if any; return the updated table.

    Waits for an undecided batch, and finally aborts it. Also finishes a conversion whose client
    died.

    Raises:
        ConcurrentModificationError: (14) batches keep following each other.
        InvalidTableStateError: (19) the record of the batch is missing, or cannot be read.
        ServiceUnavailableError: (17) or another error of the storage that has the record.
    """
    if _is_conversion_left(table):
        table = finish_conversion(table)
    for _ in range(_ROUNDS):
        state = table.managed
        if state is None or state.prepared is None:
            return table
        _end_batch(table, state.prepared)
        table = table.reloaded()
    raise ConcurrentModificationError(
        f"Other batches keep committing to table '{table.name}'; retry later"
    )


def begin_conversion(version: int) -> State:
    """Return the state with which a table becomes managed: held, until `finish_conversion`."""
    return State(version).hold(holder=f"{_CONVERTER}{uuid.uuid4().hex[:16]}", brief=True)


def finish_conversion(table: EntryT) -> EntryT:
    """Adopt all versions in the storage, and end the hold; return the updated table.

    Versions that were committed after the conversion began may be missing in its state. Their
    writers read the entry before it was changed, and succeeded.

    Raises:
        InvalidTableStateError: (19) as `latest_in_storage`.
    """
    latest = max(latest_in_storage(table), table.managed_state().version)
    with suppress(ConcurrentModificationError):  # another client has finished it
        compare_and_set.swap(table, State(latest))
    return table.reloaded()


def _is_conversion_left(table: TableEntry) -> bool:
    """Return whether the client died that made a table managed."""
    state = table.managed
    return state is not None and state.holder.startswith(_CONVERTER) and not state.is_held


def _end_batch(table: TableEntry, prepared: PreparedVersion) -> None:
    record = BatchRecord.of(table, prepared, write=True)
    outcome = _await_outcome(table, record)
    if outcome is not None:
        _finish(table, prepared, record, outcome)


class _Progress:
    """The progress of an undecided batch, whose client prepares the entries in their order."""

    def __init__(self, connection: Connection, record: BatchRecord) -> None:
        self._connection, self._record = connection, record
        self._prepared = 0
        self._began = self._changed = time.monotonic()

    def is_stalled(self, tables: Sequence[Path]) -> bool:
        """Return whether the client has made no progress for too long, or is far too slow."""
        prepared = self._count_prepared(tables)
        if prepared > self._prepared:
            self._prepared, self._changed = prepared, time.monotonic()
        limit = STALLED_SECONDS + SECONDS_PER_TABLE * len(tables)
        now = time.monotonic()
        return now - self._changed > STALLED_SECONDS or now - self._began > limit

    def _count_prepared(self, tables: Sequence[Path]) -> int:
        """Return how many entries are prepared; reads few of them."""
        first = self._prepared
        if first == len(tables) or not self._is_prepared(tables[first]):
            return first
        return bisect_left(tables, True, first + 1, key=lambda path: not self._is_prepared(path))

    def _is_prepared(self, path: Path) -> bool:
        record = self._connection.find_table(path)
        return record is not None and refers_to(
            TableEntry(self._connection, record), self._record.id
        )


def refers_to(table: TableEntry, batch: str) -> bool:
    """Return whether an entry depends on a batch."""
    state = table.managed
    return state is not None and state.prepared is not None and state.prepared.batch == batch


def _await_outcome(table: TableEntry, record: BatchRecord) -> Outcome | None:
    """Return the outcome of a batch, or None when it is finished in this table."""
    progress = _Progress(table.connection, record)
    while True:
        outcome = record.outcome()
        if outcome is Outcome.ABORTED:
            return outcome
        tables = record.tables()
        if outcome is Outcome.COMMITTED and tables is not None:
            return outcome
        if table.reloaded().managed != table.managed:
            return None
        if tables is None:
            raise record.missing_record_error(table)
        if progress.is_stalled(tables):
            logger.warning("%s stays undecided: it is aborted", record)
            return record.decide(Outcome.ABORTED)
        time.sleep(POLL_SECONDS)


def _finish(
    table: TableEntry, prepared: PreparedVersion, record: BatchRecord, outcome: Outcome
) -> None:
    """Finish a batch in all of its tables, last in the one that has the record.

    So the record exists as long as any entry refers to it, even if that table is dropped next.

    Raises:
        LanceNamespaceError: the batch could not be finished in this table, or, if it has the
            record, in another one.
    """
    connection, has_record = table.connection, table.path == prepared.table
    others = [each for each in record.tables() or () if each not in (table.path, prepared.table)]
    is_complete = True
    try:
        finish_entries(connection, others, record.id, outcome)
    except LanceNamespaceError as error:
        if has_record:
            raise
        logger.warning("%s is not finished in all tables: %s", record, error)
        is_complete = False
    finish_entries(connection, [table.path], record.id, outcome)
    if is_complete and not has_record:
        finish_entries(connection, [prepared.table], record.id, outcome)


def finish_entries(
    connection: Connection, tables: Sequence[Path], batch: str, outcome: Outcome
) -> None:
    """Apply the outcome of a batch to the entries that still refer to it, in any order.

    Raises:
        ConcurrentModificationError: (14) other clients keep changing an entry.
        OutcomeUnknownError: (17) a reply was lost, and the entry cannot be read back.
    """

    def finish(path: Path) -> None:
        for _ in range(_ATTEMPTS):
            record = connection.find_table(path)
            table = None if record is None else TableEntry(connection, record)
            if table is None or not refers_to(table, batch):
                return
            committed = outcome is Outcome.COMMITTED
            try:
                compare_and_set.swap(table, table.managed_state().with_outcome(committed=committed))
            except (ConcurrentModificationError, TableNotFoundError, NamespaceNotFoundError) as why:
                logger.debug("%s was changed by another client: %s", table.name, why)
            else:
                return
        raise concurrent_modification(path)

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(finish, tables))
