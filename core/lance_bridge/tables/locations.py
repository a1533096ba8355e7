"""Where a new table goes, when its creator does not say."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from .. import location as locations
from ..catalog import NamespaceRecord, Path, TableRecord
from ..connection import Connection
from ..errors import OutcomeUnknownError, display, invalid

logger = logging.getLogger(__name__)


@dataclass
class Home:
    """The namespace of a new table, read when it is asked for, and once."""

    connection: Connection
    path: Path

    @cached_property
    def record(self) -> NamespaceRecord:
        """Raises NamespaceNotFound (1)."""
        return self.connection.catalog.load_namespace(self.path)


def default_location(connection: Connection, path: Path, home: Home) -> str:
    """Return ``<root>/<namespace>.db/<table>.lance``, or ``<namespace's location>/<table>.lance``.

    Raises:
        InvalidInputError: (13) there is no root, and the namespace has no place for Lance.
        NamespaceNotFoundError: (1)
    """
    *namespace, table = path
    record = home.record
    file_name = locations.file_name(table, ".lance")
    if connection.config.root is not None:
        parents = locations.namespace_directories(namespace)
        return locations.check(locations.join(connection.config.root, *parents, file_name))
    parent = connection.catalog.place_for_tables(record)
    if not parent or not locations.is_supported(parent):
        where = f"at {parent}, where Lance cannot write" if parent else "without a location"
        raise _needs_location(path, where)
    try:
        return locations.check(locations.join(parent, file_name))
    except InvalidInputError as error:
        raise _needs_location(path, f"at a place that none can be under ({error})") from error


def _needs_location(path: Path, where: str) -> InvalidInputError:
    *namespace, _ = path
    return invalid(
        f"Table '{display(path)}' needs a location: namespace '{display(namespace)}' is {where}. "
        "Set the property 'root', or give a location"
    )


@contextmanager
def reserved(connection: Connection, record: TableRecord) -> Iterator[None]:
    """Keep a catalog that makes directories from deleting one that is not its own to delete.

    Of two creators of one name, the one that loses would have the catalog delete the directory,
    with the data that the winner has written meanwhile. A mark in it, left before the catalog is
    asked, makes the directory one that was there before.
    """
    made = (
        reserve_if_free(connection, record) if connection.capabilities.makes_directories else None
    )
    if made is None:
        yield
        return
    try:
        yield
    except OutcomeUnknownError:
        raise
    except Exception:
        if not _may_be_taken(connection, record):
            connection.storage(record, write=True).release(record.location or "", made)
        raise


def reserve_if_free(connection: Connection, record: TableRecord) -> list[str] | None:
    """Mark a place where nothing is; return what was made for it, or None without a mark."""
    place = record.location or ""
    try:
        storage = connection.storage(record, write=True)
        if not storage.is_occupied(place):
            return storage.reserve(place)
    except LanceNamespaceError as error:
        logger.warning("could not reserve %s: %s", place, error)
    return None


def is_taken(connection: Connection, record: TableRecord) -> bool:
    """Return whether the record's name has an entry, whoever made it, at the record's place."""
    try:
        found = connection.catalog.load_table(record.path)
    except (TableNotFoundError, NamespaceNotFoundError):
        return False
    own = record.location or ""
    return locations.overlap(locations.key(found.location or own), locations.key(own))


def _may_be_taken(connection: Connection, record: TableRecord) -> bool:
    try:
        return is_taken(connection, record)
    except LanceNamespaceError:
        return True


def free_location(connection: Connection, path: Path, home: Home, *, must_look: bool) -> str:
    """Return the default location, with a short unique suffix where it is not known to be free.

    Args:
        must_look: Whether storage that cannot be looked at is an error. Declaring a table needs
            no access to storage, and a suffix is always safe.
    """
    location = default_location(connection, path, home)
    try:
        storage = connection.storage(TableRecord(path, location), write=True)
        if not storage.is_occupied(location):
            return location
    except LanceNamespaceError as error:
        if must_look:
            raise
        logger.warning("could not look whether %s is free: %s", location, error)
    return f"{location.removesuffix('.lance')}-{uuid.uuid4().hex[:8]}.lance"
