"""The storage of migrations, in ``<state directory>/migrations/<id>/``."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lance_namespace.errors import ConcurrentModificationError, InvalidInputError

from lance_bridge.errors import invalid
from lance_bridge.user_files import MIGRATIONS, default_directory

from .journal import Journal, file_errors, read, sync_directory
from .plan import Plan
from .record import Record

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_PLAN, _JOURNAL, _LOCK = "plan.json", "journal.jsonl", "lock"


class Migrations:
    """The migrations in a state directory, by default `default_directory`."""

    def __init__(self, directory: Path | str | None = None) -> None:
        self.directory = Path(directory or default_directory()) / MIGRATIONS

    def add(self, plan: Plan) -> Migration:
        """Store a new plan. Raises ServiceUnavailable (17): it cannot be written."""
        migration = Migration(self._directory(plan.id))
        with file_errors(migration.directory):
            migration.directory.mkdir(mode=0o700, parents=True, exist_ok=False)
            _write_atomically(migration.directory / _PLAN, plan.to_json())
            sync_directory(self.directory)
        return migration

    def get(self, id: str) -> Migration:
        """Return a stored migration. Raises InvalidInput (13): it does not exist."""
        migration = Migration(self._directory(id))
        with file_errors(self.directory):
            exists = (migration.directory / _PLAN).exists()
        if not exists:
            raise invalid(
                f"There is no migration '{id}' in {self.directory}: see `lance-bridge migrate list`"
            )
        return migration

    def ids(self) -> list[str]:
        """Return the identifiers of all migrations, sorted by creation time."""
        with file_errors(self.directory):
            if not self.directory.exists():
                return []
            found = (each for each in self.directory.iterdir() if _ID.fullmatch(each.name))
            return sorted(each.name for each in found if (each / _PLAN).exists())

    def _directory(self, id: str) -> Path:
        if not _ID.fullmatch(id):
            raise invalid(f"{id[:60]!r} is not an identifier of a migration")
        return self.directory / id


@dataclass(frozen=True)
class Migration:
    """One migration on disk."""

    directory: Path

    def plan(self) -> Plan:
        """Return the plan. Raises InvalidInput (13): the file is not a plan."""
        path = self.directory / _PLAN
        with file_errors(self.directory):
            content = path.read_bytes()
        try:
            return Plan.from_json(content)
        except InvalidInputError as error:
            raise invalid(f"{path}: {error}") from error

    def record(self) -> Record:
        """Return the current record. Raises InvalidTableState (19): the journal is damaged."""
        plan = self.plan()
        with file_errors(self.directory):
            return Record.of(plan, read(self.directory / _JOURNAL))

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """Open the journal, and lock the migration until the block ends or the process dies.

        Raises:
            ConcurrentModificationError: (14) another process holds the lock.
        """
        with self._locked():
            with file_errors(self.directory):
                journal = Journal(self.directory / _JOURNAL)
            try:
                yield journal
            finally:
                journal.close()

    @property
    def is_running(self) -> bool:
        """True while a process holds the migration's lock."""
        try:
            with self._locked():
                return False
        except ConcurrentModificationError:
            return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The operating system releases the lock when the process dies.
        with file_errors(self.directory):
            lock = (self.directory / _LOCK).open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConcurrentModificationError(
                    f"Migration {self.directory.name} is being run by another process: wait until "
                    "it ends, or stop it"
                ) from error
            yield


def _write_atomically(path: Path, text: str) -> None:
    """Write a file atomically."""
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)
