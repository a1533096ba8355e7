"""DropTable: the entry first, then the files, after all checks."""

from __future__ import annotations

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
)

from .. import locations
from ..entry import TableEntry, load_entry
from ..errors import OutcomeUnknownError
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
        files = require_droppable(table, LocationIndex(table.connection, [namespace]))
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
    index.refuse_shared(table.record)
    return index.require_own_files(table.record)


def drop_with_data(table: TableEntry, files: LocationFiles | None = None) -> None:
    """Remove the entry, then the files from `require_droppable`; None lists them after that."""
    with held_for_removal(table) as held:
        storage = held.storage(write=True)  # a catalog may vend none after the removal
        try:
            held.remove()
        except OutcomeUnknownError as error:
            raise OutcomeUnknownError(
                f"{error}. If the entry is gone, its files are left at {table.location}"
            ) from error
    try:
        if not is_taken(table):  # not created again concurrently
            storage.delete_table(table.location, files)
    except LanceNamespaceError as error:
        raise type(error)(
            f"Table '{table.name}' is dropped, but files are left at {table.location}: delete them "
            f"there. {error}"
        ) from error
