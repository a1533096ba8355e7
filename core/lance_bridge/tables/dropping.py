"""DropTable: the entry first, then the files, after all checks."""

from __future__ import annotations

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableNotFoundError,
)

from .. import locations
from ..entry import TableEntry, load_entry
from ..errors import OutcomeUnknownError, display, marking_other_entries
from ..managed.removal import held_for_removal
from ..storage.lance_files import LocationFiles
from .new_location import is_taken
from .overlap import LocationIndex


def drop(table: TableEntry) -> None:
    """Remove the entry, then the table's files. Source: DropTable.

    Raises:
        InvalidTableStateError: (19) another entry shares the location, Lance cannot delete there,
            or the table or its namespace is a link; nothing is changed.
    """
    namespace = table.path[:-1]
    link_to = table.connection.catalog.load_namespace(namespace).link_to
    if link_to:
        raise InvalidTableStateError(
            f"Table '{table.name}' is in a link to {link_to}, and its data is not deleted through "
            "that: drop it there, or deregister it"
        )
    try:
        files = require_droppable(table, LocationIndex(table.connection, [table.record]))
    except LanceNamespaceError:
        load_entry(table.connection, table.path)  # a concurrent drop may have removed the entry
        raise
    drop_with_data(table, files)


def require_droppable(table: TableEntry, index: LocationIndex) -> LocationFiles:
    """Check all that can be checked before anything is changed, and return the table's files.

    Raises:
        InvalidTableStateError: (19)
    """
    if table.record.link_to:
        raise InvalidTableStateError(
            f"Table '{table.name}' is a link to {table.record.link_to}, and its data is not its "
            "own to delete: deregister it instead"
        )
    try:
        locations.check(table.location)
    except InvalidInputError as error:
        raise InvalidTableStateError(
            f"Nothing can be deleted at the location of table '{table.name}': {error}. Deregister "
            "it instead"
        ) from error
    if not locations.is_supported(table.location):
        raise InvalidTableStateError(
            f"The files of table '{table.name}' at {table.location} can be read and written by "
            "Lance, but lance-bridge cannot list or delete them. Deregister the table instead, and "
            "delete the files with the tools of that storage"
        )
    index.refuse_shared(table.record)
    return index.require_own_files(table.record)


def drop_with_data(table: TableEntry, files: LocationFiles | None = None) -> None:
    """Remove the entry, then the files from `require_droppable`; None lists them after that.

    Raises:
        TableNotFoundError: (4) another client renamed the table concurrently; no file is deleted.
    """
    with held_for_removal(table) as held:
        storage = held.storage(write=True)  # a catalog may vend none after the removal
        try:
            is_confirmed = held.remove()
        except OutcomeUnknownError as error:
            raise OutcomeUnknownError(
                f"{error}. If the entry is gone, its files are left at {table.location}"
            ) from error
    if not is_confirmed:
        _require_not_renamed(table)
    try:
        if not is_taken(table):  # not created again concurrently
            storage.delete_table(table.location, files)
    except LanceNamespaceError as error:
        raise type(error)(
            f"Table '{table.name}' is dropped, but files are left at {table.location}: delete them "
            f"there. {error}"
        ) from error


def _require_not_renamed(table: TableEntry) -> None:
    """Check that no other entry is the table, which is missing under its name."""
    try:
        index = LocationIndex(table.connection, [table.record])
    except LanceNamespaceError as error:
        raise type(error)(
            f"Table '{table.name}' was dropped or renamed, and its files are left at "
            f"{table.location}, because the entries could not be read again: {error}"
        ) from error
    found = index.find_renamed(table.record)
    if found is not None:
        with marking_other_entries():
            raise TableNotFoundError(
                f"Table '{table.name}' no longer exists, and '{display(found)}' may be the "
                "same table, renamed concurrently: no file is deleted"
            )
