"""The location of a new table, if the request names none."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from .. import locations
from ..catalog import NamespaceRecord, Path, TableRecord
from ..connection import Connection
from ..entry import TableEntry
from ..errors import OutcomeUnknownError, display, invalid

logger = logging.getLogger(__name__)


@dataclass
class LazyNamespace:
    """The namespace of a new table, loaded at first use, once."""

    connection: Connection
    path: Path

    @cached_property
    def record(self) -> NamespaceRecord:
        """Raises NamespaceNotFound (1)."""
        return self.connection.catalog.load_namespace(self.path)


def default_location(path: Path, namespace: LazyNamespace) -> str:
    """Implement `Tables.default_location`."""
    record = namespace.record
    root = namespace.connection.config.root
    if root is not None:
        return locations.check(locations.default_below(root, path))
    parent = namespace.connection.catalog.location_for_tables(record)
    if not parent or not locations.is_supported(parent):
        where = f"at {parent}, where Lance cannot write" if parent else "without a location"
        raise _needs_location(path, where)
    try:
        return locations.check(locations.join(parent, locations.file_name(path[-1], ".lance")))
    except InvalidInputError as error:
        raise _needs_location(path, f"at a location that cannot hold tables ({error})") from error


def _needs_location(path: Path, where: str) -> InvalidInputError:
    return invalid(
        f"Table '{display(path)}' needs a location: namespace '{display(path[:-1])}' is {where}. "
        "Set the property 'root', or give a location"
    )


def allocate(path: Path, namespace: LazyNamespace, *, must_read: bool) -> str:
    """Return the default location, with a short unique suffix unless it is known to be free.

    Args:
        must_read: Whether storage that cannot be read is an error. Declaring a table needs no
            access to storage, and a suffix is always safe.
    """
    location = default_location(path, namespace)
    try:
        storage = TableEntry(namespace.connection, TableRecord(path, location)).storage(write=True)
        if not storage.is_occupied(location):
            return location
    except LanceNamespaceError as error:
        if must_read:
            raise
        logger.warning("could not check whether %s is free: %s", location, error)
    return f"{location.removesuffix('.lance')}-{uuid.uuid4().hex[:8]}.lance"


@contextmanager
def reserved(table: TableEntry) -> Iterator[None]:
    """Keep a catalog that creates directories from deleting one that it did not create.

    If two clients create one name, the catalog would delete the directory for the loser, with the
    data that the winner has already written. It deletes no directory that existed before its call,
    so this writes a file in it first.
    """
    creates = table.connection.capabilities.makes_directories
    made = reserve_if_free(table) if creates else None
    if made is None:
        yield
        return
    try:
        yield
    except OutcomeUnknownError:
        raise
    except Exception:
        if not _may_be_taken(table):
            _release(table, made)
        raise


def reserve_if_free(table: TableEntry) -> list[str] | None:
    """Reserve an empty location; return the created directories, or None if it is not reserved."""
    try:
        storage = table.storage(write=True)
        if not storage.is_occupied(table.location):
            return storage.reserve(table.location)
    except LanceNamespaceError as error:
        logger.warning("could not reserve %s: %s", table.location, error)
    return None


def _release(table: TableEntry, created: list[str]) -> None:
    """Release a reservation; a failure is logged, so that the catalog's error is raised."""
    try:
        table.storage(write=True).release(table.location, created)
    except LanceNamespaceError as error:
        logger.warning("the reservation of %s stays: %s", table.location, error)


def is_taken(table: TableEntry) -> bool:
    """Return whether any entry has the table's name and overlaps its location."""
    found = table.connection.find_table(table.path)
    if found is None:
        return False
    own = locations.key(table.location)
    return locations.overlap(locations.key(found.location or table.location), own)


def _may_be_taken(table: TableEntry) -> bool:
    try:
        return is_taken(table)
    except LanceNamespaceError:
        return True
