"""Rows to records and back, inside a transaction of the caller."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lance_bridge import NamespaceRecord, TableRecord
from lance_bridge.catalog import Path
from lance_bridge.errors import namespace_not_found, table_already_exists, table_not_found

COLUMNS = "namespace, name, location, properties, revision, identity"


def new_token() -> str:
    """Return a revision or an identity that no entry has had before."""
    return uuid.uuid4().hex


def to_json(properties: Mapping[str, str]) -> str:
    """Return properties as the file has them."""
    return json.dumps(dict(properties))


def load_namespace(db: sqlite3.Connection, path: Path) -> NamespaceRecord:
    """Return a namespace. Raises NamespaceNotFound (1)."""
    row = db.execute("SELECT properties FROM namespaces WHERE name = ?", path).fetchone()
    if row is None:
        raise namespace_not_found(path)
    return NamespaceRecord(path, json.loads(row[0]))


def find_table(db: sqlite3.Connection, path: Path) -> TableRecord | None:
    """Return an entry, or None."""
    query = f"SELECT {COLUMNS} FROM tables WHERE namespace = ? AND name = ?"
    row = db.execute(query, path).fetchone()
    return None if row is None else to_record(row)


def load_table(db: sqlite3.Connection, path: Path) -> TableRecord:
    """Return an entry. Raises TableNotFound (4)."""
    found = find_table(db, path)
    if found is None:
        raise table_not_found(path)
    return found


def require_free(db: sqlite3.Connection, path: Path) -> None:
    """Raise NamespaceNotFound (1), or TableAlreadyExists (5) if any entry has the name."""
    load_namespace(db, path[:-1])
    if find_table(db, path) is not None:
        raise table_already_exists(path)


def add_table(db: sqlite3.Connection, record: TableRecord) -> TableRecord:
    """Add an entry; return it with the revision and the identity that it got."""
    added = replace(record, revision=new_token(), identity=new_token(), columns=())
    properties = to_json(added.properties)
    row = (*added.path, added.location, properties, added.revision, added.identity)
    db.execute(f"INSERT INTO tables ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)
    return added


def to_record(row: tuple[Any, ...]) -> TableRecord:
    """Return the record of a row, also of one that another program has damaged."""
    namespace, name, location, properties, revision, identity = row
    path = (namespace, name)
    try:
        found = json.loads(properties)
    except ValueError:
        return TableRecord.unreadable(path)
    return TableRecord(path, location, found, revision=revision, identity=identity)
