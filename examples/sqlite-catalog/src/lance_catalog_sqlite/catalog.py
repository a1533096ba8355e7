"""The catalog: namespaces and entries as rows of a SQLite file."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping

from lance_namespace.errors import InvalidTableStateError

from lance_bridge import (
    GUARD,
    Capabilities,
    Catalog,
    NameRule,
    NamespaceRecord,
    TableRecord,
    select_tables,
)
from lance_bridge.catalog import Path
from lance_bridge.errors import (
    concurrent_modification,
    display,
    namespace_already_exists,
    namespace_not_empty,
    namespace_not_found,
)

from . import rows
from .database import Database

NAME = re.compile(r"[A-Za-z0-9_-]+")
ALLOWED = "letters, digits, '_' and '-'"
REVISION_GUARD = "sqlite.revision"
"""The guard of this adapter: the column ``revision`` is compared and set in one transaction."""


class SqliteCatalog(Catalog):
    """See `lance_bridge.Catalog` for what each method guarantees and raises."""

    port_version = 1

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            namespace_levels=(NameRule("namespace", NAME, ALLOWED, max_length=128),),
            table_rule=NameRule("table", NAME, ALLOWED, max_length=128),
            atomic_restrict=True,
            compares_drops=True,
        )

    def describe_connection(self) -> str:
        return self._database.file

    def describe_server(self) -> Mapping[str, str]:
        return {"sqlite": sqlite3.sqlite_version}

    def close(self) -> None:
        """Nothing stays open: each transaction has a connection of its own."""

    # -- namespaces

    def list_namespaces(self, parent: Path) -> Iterable[str]:  # noqa: ARG002 - always the root
        with self._database.read() as db:
            return sorted(name for (name,) in db.execute("SELECT name FROM namespaces"))

    def load_namespace(self, path: Path) -> NamespaceRecord:
        with self._database.read() as db:
            return rows.load_namespace(db, path)

    def create_namespace(self, record: NamespaceRecord) -> None:
        row = (record.path[0], rows.to_json(record.properties))
        with self._database.change() as db:
            added = db.execute("INSERT OR IGNORE INTO namespaces VALUES (?, ?)", row)
            if not added.rowcount:
                raise namespace_already_exists(record.path)

    def alter_namespace(self, record: NamespaceRecord) -> None:
        row = (rows.to_json(record.properties), record.path[0])
        with self._database.change() as db:
            changed = db.execute("UPDATE namespaces SET properties = ? WHERE name = ?", row)
            if not changed.rowcount:
                raise namespace_not_found(record.path)

    def drop_namespace(self, path: Path) -> None:
        with self._database.change() as db:
            rows.load_namespace(db, path)
            inside = db.execute("SELECT name FROM tables WHERE namespace = ?", path).fetchone()
            if inside:
                raise namespace_not_empty(path, f"It holds table {inside[0]}")
            db.execute("DELETE FROM namespaces WHERE name = ?", path)

    # -- tables

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        query = f"SELECT {rows.COLUMNS} FROM tables WHERE namespace = ?"
        with self._database.read() as db:
            rows.load_namespace(db, namespace)
            found = [rows.to_record(row) for row in db.execute(query, namespace)]
        return select_tables(found, lance_only=lance_only, after=after)

    def load_table(self, path: Path) -> TableRecord:
        with self._database.read() as db:
            return rows.load_table(db, path)

    def create_table(self, record: TableRecord) -> TableRecord:
        with self._database.change() as db:
            rows.require_free(db, record.path)
            return rows.add_table(db, record)

    def alter_table(self, record: TableRecord) -> None:
        change = (record.location, rows.to_json(record.properties), rows.new_token())
        with self._database.change() as db:
            _compare(rows.load_table(db, record.path), record)
            db.execute(
                "UPDATE tables SET location = ?, properties = ?, revision = ?"
                " WHERE namespace = ? AND name = ?",
                (*change, *record.path),
            )

    def commit_guard(self, record: TableRecord) -> str:
        self.load_table(record.path)
        return REVISION_GUARD

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        with self._database.change() as db:
            found = rows.load_table(db, record.path)
            if GUARD in found.properties or GUARD in record.properties:
                _compare(found, record)
            _require_same_table(found, record)
            rows.require_free(db, new_path)
            db.execute(
                "UPDATE tables SET namespace = ?, name = ?, revision = ?"
                " WHERE namespace = ? AND name = ?",
                (*new_path, rows.new_token(), *record.path),
            )

    def drop_table(self, record: TableRecord) -> None:
        with self._database.change() as db:
            _require_same_table(rows.load_table(db, record.path), record)
            db.execute("DELETE FROM tables WHERE namespace = ? AND name = ?", record.path)


def _compare(found: TableRecord, record: TableRecord) -> None:
    """Require a guard of this adapter, and that the entry is of the record's revision.

    Raises:
        InvalidTableStateError: (19) another adapter, or another version of this one, guards it.
        ConcurrentModificationError: (14) the entry has changed since the record was loaded.
    """
    for guard in (found.properties.get(GUARD), record.properties.get(GUARD)):
        if guard not in (None, REVISION_GUARD):
            name = display(record.path)
            raise InvalidTableStateError(f"Table '{name}' has guard {guard!r}, which is unknown")
    if found.revision != record.revision:
        raise concurrent_modification(record.path)


def _require_same_table(found: TableRecord, record: TableRecord) -> None:
    """Raise ConcurrentModification (14) if another table has got the name."""
    if found.identity != record.identity:
        raise concurrent_modification(record.path)
