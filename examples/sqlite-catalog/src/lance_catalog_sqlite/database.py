"""The SQLite file: transactions, and what its failures are reported as."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lance_namespace.errors import ServiceUnavailableError

from lance_bridge import OutcomeUnknownError

SCHEMA = """
CREATE TABLE IF NOT EXISTS namespaces (name TEXT PRIMARY KEY, properties TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tables (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    location TEXT,
    properties TEXT NOT NULL,
    revision TEXT NOT NULL,
    identity TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
);
"""


class Database:
    """Opens a connection for each transaction: none is shared between threads, or left open."""

    def __init__(self, file: str, lock_timeout: float) -> None:
        self.file = str(Path(file).absolute())
        self._lock_timeout = lock_timeout

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction in which all reads see one state."""
        with self._connect() as db:
            db.execute("BEGIN")
            yield db

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that holds the file's write lock, and commit it.

        What is read in it does not change until the commit: comparing and setting is atomic. An
        error inside rolls it back.
        """
        with self._connect() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            try:
                self.commit(db)
            except sqlite3.Error as error:
                # SQLite may have written the change before it failed: core reads back.
                raise OutcomeUnknownError(f"Commit to {self.file} failed: {error}") from error

    def commit(self, db: sqlite3.Connection) -> None:
        """Commit a transaction."""
        db.execute("COMMIT")

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            # With isolation_level=None, sqlite3 begins and commits nothing by itself.
            opened = sqlite3.connect(self.file, timeout=self._lock_timeout, isolation_level=None)
            with closing(opened) as db:
                db.executescript(SCHEMA)
                yield db
        except sqlite3.Error as error:
            raise ServiceUnavailableError(f"SQLite file {self.file}: {error}") from error
