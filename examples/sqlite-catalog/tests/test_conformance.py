"""The conformance kit on the SQLite catalog."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from lance_catalog_sqlite import SqliteCatalog, SqliteNamespace
from lance_catalog_sqlite.database import Database

from lance_bridge.catalog import Catalog, NamespaceRecord
from lance_bridge.catalog import Path as TablePath
from lance_bridge.testing import (
    CatalogSuite,
    ConformanceSuite,
    Faults,
    Features,
    HeldChange,
    RawEntry,
    Target,
    from_capabilities,
    inherited_operations,
)

DEADLINE = 30.0
"""Seconds."""


class FaultyDatabase(Database):
    """A database whose changes can be held back, and whose commits can seem to fail."""

    def __init__(self, file: str) -> None:
        super().__init__(file, lock_timeout=0.1)
        self.commits = 0
        self.is_reply_lost = False
        self.held: HeldChange | None = None

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        held, self.held = self.held, None
        if held is not None:
            held.arrived.set()
            assert held.release.wait(DEADLINE)
        with super().change() as db:
            yield db

    def commit(self, db: sqlite3.Connection) -> None:
        super().commit(db)
        self.commits += 1
        if self.is_reply_lost:
            self.is_reply_lost = False
            raise sqlite3.OperationalError("disk I/O error")


class SqliteFaults(Faults):
    """Faults between the catalog and its file."""

    def __init__(self, file: str) -> None:
        self._database = FaultyDatabase(file)
        self._catalog = SqliteCatalog(self._database)

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @contextmanager
    def be_busy(self) -> Iterator[None]:
        with closing(sqlite3.connect(self._database.file)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield

    @contextmanager
    def be_broken(self) -> Iterator[None]:
        file = Path(self._database.file)
        content = file.read_bytes()
        file.write_bytes(b"not a database, " * 256)
        yield
        file.write_bytes(content)

    @contextmanager
    def lose_next_reply(self) -> Iterator[None]:
        self._database.is_reply_lost = True
        yield

    @contextmanager
    def hold_next_change(self) -> Iterator[HeldChange]:
        held = self._database.held = HeldChange()
        yield held

    def changes_received(self) -> int:
        return self._database.commits


class SqliteTarget(Target):
    """A file in a temporary directory. Other tools read and write its rows by SQL."""

    broken_entry_types = ("no location",)

    def __init__(self, directory: Path) -> None:
        self.data_root = str(directory / "data")
        self._directory = directory
        self._file = str(directory / "catalog.db")
        self.features = from_capabilities(
            self.catalog().capabilities,
            Features(absent=inherited_operations(SqliteNamespace), pickles=True),
        )

    def connect(self) -> SqliteNamespace:
        return SqliteNamespace(file=self._file, root=str(self._directory / "lake"))

    def catalog(self) -> Catalog:
        return self.connect().catalog

    def other_catalog(self) -> Catalog:
        return SqliteNamespace(file=str(self._directory / "other.db")).catalog

    def read_entry(self, path: TablePath) -> RawEntry:
        with closing(sqlite3.connect(self._file)) as db:
            query = "SELECT location, properties FROM tables WHERE namespace = ? AND name = ?"
            location, properties = db.execute(query, path).fetchone()
        return RawEntry(location, json.loads(properties))

    def write_entry(self, path: TablePath, entry: RawEntry) -> None:
        if not entry.is_external:
            pytest.skip("nothing that a row says gives files to the catalog")
        self.write_row(path, entry.location, json.dumps(dict(entry.properties)))

    def make_foreign_table(self, namespace_id: Sequence[str], name: str, location: str) -> None:
        self.write_row((*namespace_id, name), location, '{"table_type": "parquet"}')

    def make_entry(
        self,
        namespace_id: Sequence[str],
        name: str,
        location: str,  # noqa: ARG002 - the entry has none
        entry_type: str,  # noqa: ARG002 - there is one
    ) -> None:
        self.write_row((*namespace_id, name), None, '{"table_type": "lance"}')

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        with closing(sqlite3.connect(self._file)) as db, db:
            path = (*namespace_id, name)
            db.execute("DELETE FROM tables WHERE namespace = ? AND name = ?", path)

    @contextmanager
    def faults(self) -> Iterator[Faults]:
        yield SqliteFaults(self._file)

    def write_row(self, path: TablePath, location: str | None, properties: str) -> None:
        """Add a row of ``tables`` as another program would."""
        row = (*path, location, properties, uuid.uuid4().hex, uuid.uuid4().hex)
        with closing(sqlite3.connect(self._file)) as db, db:
            db.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?)", row)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> SqliteTarget:
    return SqliteTarget(tmp_path_factory.mktemp("sqlite"))


class TestCatalog(CatalogSuite):
    """The methods of the catalog."""

    def test_a_damaged_row_is_an_entry_that_cannot_be_read(self, target: SqliteTarget) -> None:
        catalog = target.catalog()
        catalog.create_namespace(NamespaceRecord(("damaged",)))
        target.write_row(("damaged", "t"), "/somewhere", "{not JSON")
        try:
            [record] = catalog.scan_tables(("damaged",))
        finally:  # while it exists, no table's data is deleted
            target.remove_entry(["damaged"], "t")
            catalog.drop_namespace(("damaged",))
        assert not record.is_readable
        assert record.location is None


class TestNamespace(ConformanceSuite):
    """Every operation of the namespace."""
