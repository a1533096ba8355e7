"""The location of a new table, if the request names none."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, PermissionDeniedError

from .. import locations
from ..catalog import NamespaceRecord, Path, TableRecord
from ..connection import DECLARED_AT, RESERVED, Connection
from ..entry import TableEntry
from ..errors import OutcomeUnknownError, display, invalid
from ..storage import TableStorage

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

    @property
    def is_loaded(self) -> bool:
        """Whether `record` was read."""
        return "record" in vars(self)

    def require(self) -> None:
        """Raise NamespaceNotFound (1) if it does not exist."""
        _ = self.record


def default_location(path: Path, namespace: LazyNamespace) -> str:
    """Return the default location. With the property `root`, the namespace is not read."""
    root = namespace.connection.config.root
    if root is not None:
        return locations.check(locations.default_below(root, path))
    parent = namespace.connection.catalog.location_for_tables(namespace.record)
    if not parent or not locations.is_supported(parent):
        where = f"at {parent}, where Lance cannot write" if parent else "without a location"
        raise _needs_location(path, where)
    try:
        directory = locations.file_name(path[-1], locations.TABLE_ENDING)
        return locations.check(locations.join(parent, directory))
    except InvalidInputError as error:
        raise _needs_location(path, f"at a location that cannot hold tables ({error})") from error


def _needs_location(path: Path, where: str) -> InvalidInputError:
    return invalid(
        f"Table '{display(path)}' needs a location: namespace '{display(path[:-1])}' is {where}. "
        "Set the property 'root', or give a location"
    )


@dataclass(frozen=True)
class NewLocation:
    """The location of a table that is to be created.

    Attributes:
        is_free: Whether it was found to have no files.
        is_unique: Whether no other client can have chosen it.
    """

    uri: str
    is_free: bool = False
    is_unique: bool = False


def allocate(path: Path, namespace: LazyNamespace, *, must_read: bool) -> NewLocation:
    """Return the default location, with a short unique suffix unless it is known to be free.

    Args:
        must_read: Whether a namespace that does not exist, or storage that cannot be read, is an
            error. Declaring a table needs no access to storage, and a suffix is always safe; the
            catalog refuses an entry in a namespace that does not exist. Credentials that the
            catalog vends for tables, and refuses for a location without one, are no error.
    """
    if must_read:
        namespace.require()
    location, is_readable = default_location(path, namespace), True
    try:
        storage = _storage_before_entry(path, location, namespace.connection)
        if storage is not None and not storage.is_occupied(location):
            return NewLocation(location, is_free=True)
        is_readable = storage is not None
    except LanceNamespaceError as error:
        if must_read:
            raise
        is_readable = False
        logger.warning("could not check whether %s is free: %s", location, error)
    start, suffix = location.removesuffix(locations.TABLE_ENDING), uuid.uuid4().hex[:8]
    unique = f"{start}-{suffix}{locations.TABLE_ENDING}"
    return NewLocation(unique, is_free=is_readable, is_unique=True)


def _storage_before_entry(path: Path, location: str, connection: Connection) -> TableStorage | None:
    """Return the storage of a table that has no entry yet.

    None if the catalog refuses credentials for a location without an entry. It may vend them for
    the entry of the same caller: the open-source Unity Catalog server wants a right on an external
    location for the first, and for the second that the caller owns the table.
    """
    try:
        return TableEntry(connection, TableRecord(path, location)).storage(write=True)
    except PermissionDeniedError as error:
        if connection.credentials.is_configured(location):
            raise  # a vendor of our own, which decides by the location
        logger.info("no credentials for %s before it has an entry: %s", location, error)
        return None


@contextmanager
def reserved(table: TableEntry, location: NewLocation, *, declared: bool = False) -> Iterator[bool]:
    """Reserve a new table's location with a file; yield whether there is one.

    The file distinguishes a table that was never written from one that lost its data. It also keeps
    a catalog that creates directories from deleting one that it did not create: if two clients
    create one name, the catalog would delete the directory for the loser, with the data that the
    winner has already written.

    Args:
        declared: Whether the table has no data yet.
    """
    made = _reserve_new(table, location, declared=declared)
    if made is None:
        yield False
        return
    try:
        yield True
    except OutcomeUnknownError:
        raise
    except Exception:
        if location.is_unique or not _is_needed(table):
            _release(table, made)
        raise
    except BaseException:  # an interrupt: the entry may have been added
        if _is_absent(table):
            _release(table, made)
        raise
    if not declared:
        _release(table, [])  # the entry is for data that exists


def _reserve_new(table: TableEntry, location: NewLocation, *, declared: bool) -> list[str] | None:
    if location.is_free and declared:
        return _reserve(table)
    if table.connection.capabilities.makes_directories or (
        declared and locations.is_local(table.uri)
    ):
        return reserve_if_free(table)
    # Declaring a table at a given location needs no access to storage, and no credentials for it.
    return None


def reserve_if_free(table: TableEntry) -> list[str] | None:
    """Reserve an empty location; return the created directories, or None if it is not reserved."""
    try:
        if table.storage(write=True).is_occupied(table.location):
            return None
    except LanceNamespaceError as error:
        logger.warning("could not reserve %s: %s", table.location, error)
        return None
    return _reserve(table)


def _reserve(table: TableEntry) -> list[str] | None:
    try:
        return table.storage(write=True).reserve(table.location)
    except LanceNamespaceError as error:
        logger.warning("could not reserve %s: %s", table.location, error)
        return None


def release_unused(table: TableEntry) -> None:
    """Release the reservation of an entry that was removed again, and never had data."""
    if RESERVED in table.record.properties:
        _release(table, [table.uri] if locations.is_local(table.uri) else [])


def _release(table: TableEntry, created: list[str]) -> None:
    """Release a reservation; a failure is logged, so that the catalog's error is raised."""
    try:
        table.storage(write=True).release(table.location, created)
    except LanceNamespaceError as error:
        logger.warning("the reservation of %s stays: %s", table.location, error)


def is_taken(table: TableEntry) -> bool:
    """Return whether any entry has the table's name and overlaps its location."""
    return _overlaps(table, table.connection.find_table(table.path))


def _overlaps(table: TableEntry, found: TableRecord | None) -> bool:
    if found is None:
        return False
    own = locations.key(table.location)
    return locations.overlap(locations.key(found.location or table.location), own)


def _is_absent(table: TableEntry) -> bool:
    try:
        return table.connection.find_table(table.path) is None
    except LanceNamespaceError:
        return False


def _is_needed(table: TableEntry) -> bool:
    """Return whether the entry that has the table's name may rely on the file that was written.

    That is one of a client that found the file, and so wrote none. An entry that says that its
    location was reserved has lost that file, and its data with it.
    """
    try:
        found = table.connection.find_table(table.path)
    except LanceNamespaceError:
        return True
    if found is None or DECLARED_AT not in found.properties or RESERVED in found.properties:
        return False
    return _overlaps(table, found)
