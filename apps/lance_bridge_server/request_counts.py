"""Request counters that all worker processes of a server share.

They are in an SQLite file: a killed process leaves it intact and unlocked. A restart needs none of
its content, so no write waits for the disk.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lance_namespace.errors import ServiceUnavailableError

_log = logging.getLogger(__name__)

_LOCK_SECONDS = 2.0
"""How long to wait for other processes. Each holds the lock for less than a millisecond."""
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS recent (counter TEXT, expires REAL);
CREATE INDEX IF NOT EXISTS by_counter ON recent (counter, expires);
CREATE INDEX IF NOT EXISTS by_expires ON recent (expires);
CREATE TABLE IF NOT EXISTS running (
    counter TEXT, process INTEGER, count INTEGER, PRIMARY KEY (counter, process)
);
"""


class RequestCounts:
    """Counters by name. Use in one thread of each process.

    Raises:
        ServiceUnavailableError: (17) the file cannot be used; nothing was counted.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Open the counters.

        Args:
            file: The shared file, None to count for this process alone. It is created if missing:
                do so before other processes open it, as SQLite does not let several create it.
        """
        target = str(file) if file else ":memory:"
        self._database = sqlite3.connect(
            target, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._database.executescript(_SCHEMA)
        self._running: Counter[str] = Counter()

    def add(self, counter: str, most: int, seconds: float) -> float:
        """Count an event, unless there were ``most`` of them in the last ``seconds``.

        Returns:
            0 if it was counted, else the seconds until the next one can be.
        """
        with self._transaction() as database:
            wait = self.wait(counter, most)
            if not wait:
                now = time.time()
                database.execute("DELETE FROM recent WHERE expires <= ?", [now])
                database.execute("INSERT INTO recent VALUES (?, ?)", [counter, now + seconds])
        return wait

    def wait(self, counter: str, most: int) -> float:
        """Return the seconds until the next event can be counted, or 0 if it can be now."""
        with _translate_errors():
            found = self._database.execute(
                "SELECT expires FROM recent WHERE counter = ? "
                "ORDER BY expires DESC LIMIT 1 OFFSET ?",
                [counter, most - 1],
            ).fetchone()
        return max(0.0, found[0] - time.time()) if found else 0.0

    def begin(self, counter: str, most: int) -> bool:
        """Count an event that lasts until `end`, unless ``most`` do. Return whether it counted."""
        with self._transaction() as database:
            query = "SELECT sum(count) FROM running WHERE counter = ?"
            (running,) = database.execute(query, [counter]).fetchone()
            if (running or 0) >= most:
                return False
            self._store(counter, self._running[counter] + 1)
        self._running[counter] += 1
        return True

    def end(self, counter: str) -> None:
        """Uncount an event that this process began; if that fails, the next change corrects it."""
        self._running[counter] -= 1
        try:
            with self._transaction():
                self._store(counter, self._running[counter])
        except ServiceUnavailableError as error:
            _log.error("%s", error)
        else:
            if not self._running[counter]:
                del self._running[counter]

    def forget_process(self, process: int) -> None:
        """Uncount all events of a process that has ended."""
        try:
            with self._transaction() as database:
                database.execute("DELETE FROM running WHERE process = ?", [process])
        except ServiceUnavailableError as error:
            _log.error("%s", error)

    def _store(self, counter: str, running: int) -> None:
        # The absolute number corrects the count after a change that could not be written.
        row = [counter, os.getpid(), running]
        self._database.execute("INSERT OR REPLACE INTO running VALUES (?, ?, ?)", row)
        self._database.execute("DELETE FROM running WHERE count = 0")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Lock the file against writes by other processes."""
        with _translate_errors(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        message = f"The request limits cannot be checked: {error}; nothing was done"
        raise ServiceUnavailableError(message) from error
