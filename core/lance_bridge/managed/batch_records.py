"""The record of a batch: the tables that it commits to, and its outcome.

Both are files of one of the tables, and never change. The record is written before any entry
refers to it. The outcome is written only if it does not exist, so the first client that writes it
decides for all. See ``specs/managed.md``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from lance_namespace.errors import InvalidTableStateError

from ..catalog import Path, TableRecord
from ..entry import TableEntry
from ..errors import OutcomeUnknownError, unsupported
from ..managed_state import PreparedVersion, State
from ..storage import TableFiles
from ..storage.lance_files import BATCH_OUTCOME, BATCH_RECORD
from ..storage.store import discard

_DIRECTORY = "_transactions"
_ATTEMPTS = 5


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
