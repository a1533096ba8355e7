"""RenameTable: the entry gets another name, and its files stay where they are."""

from __future__ import annotations

import uuid
from dataclasses import replace

from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    TableNotFoundError,
)

from ..catalog import Path, TableRecord
from ..connection import Connection
from ..errors import concurrent_modification, display, table_already_exists, unsupported
from ..lost_replies import settle
from ..managed.compare_and_set import held, release
from ..managed_state import copied
from ..properties import ENTRY_ID
from . import collection as tables
from . import locations as placement


def rename(connection: Connection, path: Path, new_path: Path) -> None:
    """Move the entry to another name; its files stay where they are. Source: RenameTable.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1) of the table, or of its new place.
        TableAlreadyExistsError: (5) the new name is taken.
        InvalidInputError: (13) the entry is not a Lance table.
        ConcurrentModificationError: (14) somebody changed the entry meanwhile.
        UnsupportedOperationError: (0) the catalog cannot rename, or not across namespaces.
    """
    capabilities = connection.capabilities
    reason = capabilities.no_rename
    if not reason and path[:-1] != new_path[:-1]:
        reason = capabilities.no_rename_across
    if reason:
        raise unsupported(f"Table '{display(path)}' cannot be renamed: {reason}")
    record = tables.load_lance(connection, path)
    if path == new_path:
        raise table_already_exists(new_path, "it is the table itself")
    # Without data there, the next table of the old name would be given the same place.
    placement.reserve_if_free(connection, record)
    # A commit to an entry that is on its way would be lost.
    with held(connection, record, new_path if capabilities.renames_by_copy else ()) as still:
        way = _copy_and_drop if capabilities.renames_by_copy else _move
        moved = way(connection, still, new_path)
    release(connection, moved)


def _move(connection: Connection, record: TableRecord, new_path: Path) -> TableRecord:
    moved = replace(record, path=new_path)
    try:
        settle(
            lambda: connection.catalog.rename_table(record, new_path),
            lambda: tables.is_same(connection, moved),
        )
    except ConcurrentModificationError:
        tables.load(connection, record.path)
        raise
    return moved


def _copy_and_drop(connection: Connection, record: TableRecord, new_path: Path) -> TableRecord:
    """Make the entry under its new name, then remove the old one; undo where that fails.

    The copy has an id of its own: of several that rename one table at once, each can tell which
    copy is its own to take back.
    """
    properties = {**record.properties, ENTRY_ID: uuid.uuid4().hex}
    copy = copied(replace(record, path=new_path, properties=properties), record.path)
    settle(
        lambda: connection.catalog.copy_table(record, copy),
        lambda: tables.is_same(connection, copy),
    )
    try:
        _require_unchanged(connection, record)
    except LanceNamespaceError as error:
        _take_back(connection, copy, error)
        raise
    try:
        tables.drop_entry(connection, record)
    except LanceNamespaceError as error:
        # "Not found" is said of an entry that somebody else removed; after any other failure it
        # may be gone by this very call, and the copy is all that is left of the table.
        if isinstance(error, TableNotFoundError) or _is_left(connection, record, copy, error):
            _take_back(connection, copy, error)
            raise
    return copy


def _require_unchanged(connection: Connection, record: TableRecord) -> None:
    if connection.catalog.load_table(record.path).revision != record.revision:
        raise concurrent_modification(record.path)


def _is_left(
    connection: Connection, record: TableRecord, copy: TableRecord, cause: LanceNamespaceError
) -> bool:
    try:
        return tables.is_same(connection, record)
    except LanceNamespaceError as error:
        raise _both_names(record.path, copy, cause) from error


def _take_back(connection: Connection, copy: TableRecord, cause: LanceNamespaceError) -> None:
    try:
        if tables.is_same(connection, copy):
            tables.drop_entry(connection, copy)
    except LanceNamespaceError as error:
        raise _both_names(None, copy, cause) from error


def _both_names(
    path: Path | None, copy: TableRecord, cause: LanceNamespaceError
) -> LanceNamespaceError:
    state = "It may be left under both names" if path else "It is left under both names"
    return type(cause)(
        f"The table could not be renamed to '{display(copy.path)}': {cause}. {state}: "
        f"deregister one of them"
    )
