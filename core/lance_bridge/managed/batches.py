"""Batches: their records, and the recovery of those whose client died.

The record of a batch, the tables that it commits to, is a file of one of these tables, and so is
its outcome; neither ever changes. The record is written before any entry refers to it. The outcome
is written only if it does not exist, so the first client that writes it decides for all. See
``specs/managed.md``.

A client that writes to a table first ends the batch that it is part of: a decided batch is finished
in all of its tables. A batch that stays undecided is aborted: its client has died, or is too slow.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from ..catalog import Path, TableRecord
from ..connection import Connection
from ..entry import EntryT, TableEntry
from ..errors import OutcomeUnknownError, concurrent_modification, unsupported
from ..managed_state import PreparedVersion, State
from ..storage import TableFiles
from ..storage.lance_format import BATCH_OUTCOME, BATCH_RECORD
from ..storage.store import discard
from . import compare_and_set

STALLED_SECONDS = 5.0
"""How long the client of an undecided batch may make no progress, by another client's clock."""
SECONDS_PER_TABLE = 0.2
"""How much longer a client that makes progress may take, for each of the batch's tables."""
POLL_SECONDS = 0.1
_DIRECTORY = "_transactions"
_ROUNDS = 20
_ATTEMPTS = 5
_THREADS = 8
_CONVERTER = "manage-"
"""The beginning of the id of a holder that makes a table managed."""

logger = logging.getLogger(__name__)

# -- records ---------------------------------------------------------------------------------------


class Outcome(str, Enum):
    """The outcome of a batch; the value is the content of the file."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True)
class BatchRecord:
    """The record of one batch, in the files of the table that has it.

    Every method raises as `TableFiles` does if the storage does not respond.
    """

    files: TableFiles
    table: Path
    id: str

    @classmethod
    def new(cls, table: TableEntry) -> BatchRecord:
        """Return a new record, not yet written."""
        return cls(table.files(write=True), table.path, str(uuid.uuid4()))

    @classmethod
    def of(
        cls, entry: TableEntry, prepared: PreparedVersion, *, write: bool = False
    ) -> BatchRecord:
        """Return the record that an entry refers to."""
        record = entry.record
        if prepared.table != entry.path:
            record = TableRecord(prepared.table, prepared.location)
        files = TableEntry(entry.connection, record).files(write=write)
        return cls(files, prepared.table, prepared.batch)

    def __str__(self) -> str:
        """Return the batch's name for messages."""
        return f"batch {self.id} ({self.files.location}/{self._record_path})"

    def prepared(self, staged: str) -> PreparedVersion:
        """Return the reference in an entry to a version that this batch has staged."""
        return PreparedVersion(self.id, self.table, self.files.location, staged)

    def write(self, tables: Sequence[Path]) -> None:
        """Write the record: the paths of all tables, this one's first.

        It is written twice: a store that accepts the second write would let two clients write two
        outcomes.

        Raises:
            UnsupportedOperationError: (0) the store accepts the second write.
        """
        data = json.dumps({"tables": [list(each) for each in tables]}).encode()
        self.files.put_own(self._record_path, data)
        if self.files.put_new(self._record_path, data):
            discard(self.files, self._record_path)
            raise unsupported(
                f"The storage at {self.files.location} ignores conditional writes, so it cannot "
                "store the outcome of a batch. Commit to the tables one by one"
            )

    def is_recorded(self) -> bool:
        """Return whether the record exists; without it, the batch cannot be committed."""
        return self.files.read(self._record_path) is not None

    def tables(self) -> Sequence[Path] | None:
        """Return the paths of all tables, or None if there is no record.

        Raises:
            InvalidTableStateError: (19) it cannot be read.
        """
        data = self.files.read(self._record_path)
        if data is None:
            return None
        try:
            return [tuple(map(str, each)) for each in json.loads(data)["tables"]]
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable_error(self._record_path) from error

    def outcome(self) -> Outcome | None:
        """Return the outcome, or None if there is none yet.

        Raises:
            InvalidTableStateError: (19) it cannot be read.
        """
        data = self.files.read(self._outcome_path)
        if data is None:
            return None
        try:
            return Outcome(data.decode())
        except ValueError as error:
            raise self._unreadable_error(self._outcome_path) from error

    def decide(self, wanted: Outcome) -> Outcome | None:
        """Write the outcome if it does not exist, and return the existing one.

        Returns None if the record is missing, so that the batch can no longer be committed: another
        client aborted it, and its first table was dropped; or its client has finished it.

        Raises:
            OutcomeUnknownError: (17) the storage neither writes the outcome nor has one.
            InvalidTableStateError: (19) the existing outcome cannot be read.
        """
        for _ in range(_ATTEMPTS):
            is_new = self.files.put_own(self._outcome_path, wanted.value.encode())
            found = wanted if is_new else self.outcome()
            if found is Outcome.ABORTED:
                return found
            if not self.is_recorded():
                return None
            if found is not None:
                return found
        raise OutcomeUnknownError(f"The outcome of {self} was removed: reload its tables")

    def remove(self) -> None:
        """Remove the record and then the outcome; call it only when no entry refers to them.

        In this order, a record without an outcome always belongs to an undecided batch. So the
        outcome stays if the record cannot be removed.
        """
        if discard(self.files, self._record_path):
            discard(self.files, self._outcome_path)

    def missing_record_error(self, table: TableEntry) -> InvalidTableStateError:
        """Return the error for a table whose entry refers to a missing record."""
        return InvalidTableStateError(
            f"Whether version {table.managed_state().version + 1} of table '{table.name}' is "
            f"committed is unknown: the record of {self} is missing. Restore that file, or "
            "deregister the table and register it again, without that version"
        )

    def _unreadable_error(self, path: str) -> InvalidTableStateError:
        return InvalidTableStateError(
            f"The outcome of {self} is unknown: {self.files.location}/{path} has another content "
            "than lance-bridge writes. Restore that file"
        )

    @property
    def _record_path(self) -> str:
        return f"{_DIRECTORY}/{self.id}{BATCH_RECORD}"

    @property
    def _outcome_path(self) -> str:
        return f"{_DIRECTORY}/{self.id}{BATCH_OUTCOME}"


def latest_state(table: TableEntry) -> State:
    """Return the latest version of a table, also while a batch commits to it.

    A version that a batch has prepared is the latest as soon as the batch is committed. Reads the
    record of the batch, and changes nothing.

    Raises:
        InvalidInputError: (13) its storage manages the table.
        InvalidTableStateError: (19) the record is missing, or cannot be read.
        ServiceUnavailableError: (17) or another error of the storage that has the record.
    """
    for _ in range(_ATTEMPTS):
        state = table.managed_state()
        if state.prepared is None:
            return state
        record = BatchRecord.of(table, state.prepared)
        outcome = record.outcome()
        if outcome is not Outcome.ABORTED and record.tables() is not None:
            return state.with_outcome(committed=outcome is Outcome.COMMITTED)
        # If the record is missing, or another client aborted a batch whose record was already
        # removed, the batch was finished after the entry was read.
        now = table.reloaded()
        if now.managed == state:
            if outcome is not Outcome.ABORTED:
                raise record.missing_record_error(table)
            return state.without_pending()
        table = now
    raise OutcomeUnknownError(f"Table '{table.name}' keeps changing; retry later")


# -- recovery --------------------------------------------------------------------------------------


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
        InvalidTableStateError: (19) as `TableEntry.latest_in_storage`.
    """
    latest = max(table.latest_in_storage(), table.managed_state().version)
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
