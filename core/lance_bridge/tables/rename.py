"""RenameTable: the entry gets another name, and its files stay where they are."""

from __future__ import annotations

import uuid
from dataclasses import replace

from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    TableNotFoundError,
)

from ..catalog import Capabilities, Path
from ..entry import EntryT, TableEntry, load_entry
from ..errors import (
    concurrent_modification,
    display,
    retry_after_readback,
    table_already_exists,
    unsupported,
)
from ..managed import batches, mark
from ..managed.compare_and_set import held, release
from ..records import ENTRY_ID
from ..storage import DataState
from ..table import Table
from .creation import reserve_if_free


def require_possible(capabilities: Capabilities, path: Path, new_path: Path) -> None:
    """Raise UnsupportedOperation (0) if the catalog cannot rename, or not across namespaces."""
    reason = capabilities.no_rename
    if not reason and path[:-1] != new_path[:-1]:
        reason = capabilities.no_rename_across
    if reason:
        raise unsupported(f"Table '{display(path)}' cannot be renamed: {reason}")


def rename(table: Table, new_path: Path) -> None:
    """Rename a table's entry. Source: RenameTable.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1) of the table, or of its new name.
        TableAlreadyExistsError: (5) the new name is taken.
        ConcurrentModificationError: (14) another client changed the entry concurrently.
        InvalidTableStateError: (19) its data is missing: with the file that reserves a location,
            the table would look as if it was never written.
    """
    if table.path == new_path:
        raise table_already_exists(new_path, "it is the table itself")
    by_copy = table.connection.capabilities.renames_by_copy
    if table.require_not_missing().state is not DataState.PRESENT:
        # If the location is empty, the next table of the old name would be given it, too.
        reserve_if_free(table)
    resolved = batches.resolve_batch(table)
    # A commit to the entry during the rename would be lost.
    with held(resolved, new_path if by_copy else ()) as current:
        moved = (_copy_and_drop if by_copy else _move)(current, new_path)
    release(moved)
    mark.move(moved)


def _move(table: TableEntry, new_path: Path) -> TableEntry:
    moved = table.with_record(replace(table.record, path=new_path))
    try:
        retry_after_readback(
            lambda: table.connection.catalog.rename_table(table.record, new_path),
            moved.is_in_catalog,
        )
    except ConcurrentModificationError:
        load_entry(table.connection, table.path)
        raise
    return moved


def _copy_and_drop(table: TableEntry, new_path: Path) -> TableEntry:
    """Create the entry under its new name, then remove the old one; undo if that fails.

    The copy has its own id: of several clients that rename one table at once, each can recognise
    the copy that it has to remove.
    """
    properties = {**table.record.properties, ENTRY_ID: uuid.uuid4().hex}
    copy = table.with_record(replace(table.record, path=new_path, properties=properties))
    if copy.managed is not None:
        copy = copy.with_state(replace(copy.managed, other=table.path))
    retry_after_readback(
        lambda: table.connection.catalog.copy_table(table.record, copy.record),
        copy.is_in_catalog,
    )
    try:
        _require_unchanged(table)
    except LanceNamespaceError as error:
        _remove_copy(copy, error)
        raise
    try:
        table.remove()
    except LanceNamespaceError as error:
        # "Not found" means that another client removed the entry. After any other failure, this
        # call may have removed it, and then the copy is all that is left of the table.
        if isinstance(error, TableNotFoundError) or _still_exists(table, copy, error):
            _remove_copy(copy, error)
            raise
    return copy


def _require_unchanged(table: TableEntry) -> None:
    if table.connection.catalog.load_table(table.path).revision != table.record.revision:
        raise concurrent_modification(table.path)


def _still_exists(table: EntryT, copy: EntryT, cause: LanceNamespaceError) -> bool:
    try:
        return table.is_in_catalog()
    except LanceNamespaceError as error:
        raise _rename_error("It may be left under both names", copy, cause) from error


def _remove_copy(copy: TableEntry, cause: LanceNamespaceError) -> None:
    try:
        if copy.is_in_catalog():
            copy.remove()
    except LanceNamespaceError as error:
        raise _rename_error("It is left under both names", copy, cause) from error


def _rename_error(state: str, copy: TableEntry, cause: LanceNamespaceError) -> LanceNamespaceError:
    return type(cause)(
        f"The table could not be renamed to '{copy.name}': {cause}. {state}: deregister one of them"
    )
