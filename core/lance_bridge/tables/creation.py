"""New tables: declared without data, or registered with data that exists; and their locations."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from .. import locations
from ..catalog import IMPLEMENTATION, MANAGED_BY, Column, NamespaceRecord, Path, TableRecord
from ..connection import DECLARED_AT, RESERVED, Connection, now
from ..entry import TableEntry, load_entry
from ..errors import (
    ManagedElsewhereError,
    OutcomeUnknownError,
    TableDataMissingError,
    TableNotWrittenError,
    concurrent_modification,
    display,
    invalid,
    retry_after_readback,
    table_already_exists,
    unsupported,
)
from ..managed import conversion, mark
from ..records import (
    FORCE,
    MANAGER,
    PUBLISH_COLUMNS,
    Published,
    check_properties,
    manager_in,
    parse_flag,
    pop_force,
    properties_of_new_table,
)
from ..storage import TableStorage
from ..table import Table, has_columns
from .protection import RemovalProtection

logger = logging.getLogger(__name__)

_ATTEMPTS, _PAUSE = 6, 0.1
"""The maximum number of attempts, and by how many seconds the longest wait grows each time."""


@dataclass(frozen=True)
class Declaration:
    """The entry that a declaration adds: checked properties, location, and who manages it."""

    properties: Mapping[str, str]
    location: NewLocation
    is_managed: bool


def plan_declaration(
    connection: Connection, path: Path, location: str | None, properties: Mapping[str, str] | None
) -> Declaration:
    """Return the entry that `declare` would add.

    Raises:
        UnsupportedOperationError: (0), InvalidInputError: (13) as `declare`.
    """
    checked = check_properties(properties)
    given = NewLocation(locations.check(location)) if location is not None else None
    namespace = LazyNamespace(connection, path[:-1])
    is_managed = wants_management(path, namespace, properties)
    chosen = given or allocate(path, namespace, must_read=False)
    return Declaration(with_publishing(namespace, checked), chosen, is_managed)


def wants_management(
    path: Path, namespace: LazyNamespace, properties: Mapping[str, str] | None
) -> bool:
    """Implement `Tables.wants_management`."""
    connection = namespace.connection
    manager = manager_in(properties)
    if manager is not None:
        if manager == IMPLEMENTATION:
            connection.require_manageable(f"Table '{display(path)}'")
        return manager == IMPLEMENTATION
    if connection.capabilities.no_managed_tables or connection.capabilities.no_alter:
        return False
    return namespace.record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION


def with_publishing(namespace: LazyNamespace, properties: Mapping[str, str]) -> dict[str, str]:
    """Return a new table's checked properties with its namespace's `PUBLISH_COLUMNS`, if any.

    A namespace that the operation did not need so far is not read for it: see DeclareTable of
    ``common.md``.

    Raises:
        UnsupportedOperationError: (0) the table's own property asks for columns, and the catalog's
            entries have none that can change.
        InvalidInputError: (13) the namespace has an unknown value.
        NamespaceNotFoundError: (1)
    """
    can_publish = namespace.connection.capabilities.publishes_columns
    if properties.get(PUBLISH_COLUMNS) == "true" and not can_publish:
        raise unsupported(
            f"Columns of tables in '{display(namespace.path)}' cannot be published: the catalog "
            f"has no columns that commits could change. Leave {PUBLISH_COLUMNS} out"
        )
    if PUBLISH_COLUMNS in properties or not can_publish or not namespace.is_loaded:
        return dict(properties)
    value = namespace.record.properties.get(PUBLISH_COLUMNS)
    if value is None:
        return dict(properties)
    try:
        return {**properties, PUBLISH_COLUMNS: parse_flag(PUBLISH_COLUMNS, value)}
    except InvalidInputError as error:
        raise invalid(f"Namespace '{display(namespace.path)}': {error}") from error


def declare(
    connection: Connection,
    path: Path,
    location: str | None,
    properties: Mapping[str, str] | None,
    *,
    vend: bool | None,
) -> tuple[Table, dict[str, str] | None]:
    """Add an entry without data, or repeat a declaration that was never followed by data.

    Repeating lets a client retry a failed first write; `Declarations` says which clients may.
    Returns the table, and the storage options to write to it. Source: DeclareTable.

    Args:
        vend: False leaves all credentials out of the options.

    Raises:
        TableAlreadyExistsError: (5) the name belongs to a table with data, another client's recent
            declaration, one with another location, or an entry that is not Lance's.
        InvalidTableStateError: (19) the data of the existing table is missing.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) bad location or properties, or no location can be found.
        PermissionDeniedError: (15) the catalog gives no credentials; then nothing is declared.
        UnsupportedOperationError: (0) the catalog should manage the table, and cannot.
    """
    new = plan_declaration(connection, path, location, properties)
    if location:
        _refuse_managed(connection, path, location)
    table, is_new = add_or_find(connection, path, new.location, new.properties, declared=True)
    with after_drops(path):
        if is_new:
            with removed_on_failure(table, is_declared=True):
                table = conversion.begin(table) if new.is_managed else table
                return table, table.answer_options(vend=vend, write=True)
        _require_declaration(table)
        if location and locations.key(location) != locations.key(table.location):
            raise table_already_exists(path, f"declared at {table.location}")
        table = table.set_properties(new.properties) if properties else table
        table = conversion.begin(table) if new.is_managed else table
    return table, table.answer_options(vend=vend, write=True)


def _refuse_managed(connection: Connection, path: Path, location: str) -> None:
    """Check that no other entry manages the versions at a location.

    Raises:
        ManagedElsewhereError: (19)
    """
    manager = mark.find_manager(connection, path, location)
    if manager is not None:
        raise ManagedElsewhereError(
            f"'{display(path)}' is not added: the versions at {locations.for_lance(location)} are "
            f"managed by {manager}. Use that entry; or register one that only reads, with the "
            f"property {FORCE}=true (`lance-bridge table register --force`)"
        )


@contextmanager
def after_drops(path: Path) -> Iterator[None]:
    """Raise ConcurrentModification (14) if a table that was created or found is dropped meanwhile.

    TableNotFound would be the answer to another request.
    """
    try:
        yield
    except TableNotFoundError as error:
        raise concurrent_modification(path) from error


@contextmanager
def removed_on_failure(table: Table, *, is_declared: bool) -> Iterator[None]:
    """Remove a new entry again if what belongs to it cannot be created.

    Args:
        is_declared: Whether it was added without data. It is kept if another client has written
            data since.
    """
    try:
        yield
    except LanceNamespaceError:
        try:
            if not (is_declared and _has_data(table)) and table.remove():
                release_unused(table)
        except LanceNamespaceError as error:
            logger.warning("the entry of %s stays: %s", table.name, error)
        raise


def _has_data(table: Table) -> bool:
    """Return whether a declared table is known to have data.

    Raises:
        ConcurrentModificationError: (14) the name has another entry now.
        TableNotFoundError: (4) the entry no longer exists.
    """
    table = table.reloaded()
    try:
        return not table.is_declared()
    except LanceNamespaceError:
        return False  # the credentials may be what failed


def _require_declaration(table: Table) -> None:
    """Raise TableAlreadyExists (5) unless the entry is a declaration that may be repeated.

    Raises:
        InvalidTableStateError: (19) the data of the table is missing.
    """
    connection = table.connection
    if _has_been_written(table):
        raise table_already_exists(table.path)
    if not connection.declarations.may_repeat(table.record):
        raise table_already_exists(
            table.path,
            f"declared {connection.declarations.age(table.record):.0f} s ago and not written yet. "
            "Its data can be created with CreateTable or written with mode 'overwrite'; it can be "
            f"declared again after {connection.config.declare_grace:.0f} s",
        )


def _has_been_written(table: Table) -> bool:
    try:
        if table.managed is not None and table.is_declared():
            return False
        table.require_data()
    except TableNotWrittenError:
        return False
    except (TableDataMissingError, TableNotFoundError):
        raise
    except LanceNamespaceError as error:
        raise table_already_exists(table.path, f"its storage cannot be read: {error}") from error
    return True


def register(
    connection: Connection,
    path: Path,
    location: str,
    properties: Mapping[str, str] | None,
    *,
    overwrite: bool,
    columns: tuple[Column, ...] = (),
) -> Table:
    """Add an entry for data that exists; the data is neither read nor changed.

    Args:
        overwrite: Whether a Lance table of that name gets the location and properties.
        columns: The columns of the data, if they are known; a new entry gets them.

    Raises:
        TableAlreadyExistsError: (5) the name is taken; with ``overwrite``, by an entry that is not
            a Lance table.
        ManagedElsewhereError: (19) another entry manages the versions there, and the properties do
            not have `FORCE`.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) bad location or properties.
    """
    checked_location = locations.check(location)
    properties, is_forced = pop_force(properties)
    checked = check_properties(properties)
    namespace = LazyNamespace(connection, path[:-1])
    is_managed = wants_management(path, namespace, properties)
    checked = with_publishing(namespace, checked)
    if not is_forced:
        _refuse_managed(connection, path, checked_location)
    elif not is_managed:
        manager = mark.find_manager(connection, path, checked_location)
        checked = checked if manager is None else {**checked, MANAGER: str(manager)}
    table, is_new = add_or_find(
        connection, path, NewLocation(checked_location), checked, columns=columns
    )
    if is_new:
        with removed_on_failure(table, is_declared=False):
            table = conversion.begin(table, force=is_forced) if is_managed else table
        table.publish_after_commit()
        return table
    if not overwrite:
        raise table_already_exists(path)
    RemovalProtection(connection).require_table(table.record, "overwritten")
    if is_managed:
        moved = table.with_record(replace(table.record, location=checked_location))
        moved.latest_in_storage()
    table = _move_registration(table, checked_location, checked)
    table = conversion.begin(table, force=is_forced) if is_managed else table
    table.publish_after_commit()
    return table


def _move_registration(table: Table, location: str, properties: Mapping[str, str]) -> Table:
    """Point an entry to another location; the files at the old one stay."""
    table.require_alterable("Deregister it first, for the location of")
    with conversion.finished_for_removal(table) as finished:
        moved = finished.with_record(
            replace(
                finished.record,
                location=locations.for_catalog(location),
                properties=properties_of_new_table(properties),
                published=Published() if has_columns(finished.record) else None,
            )
        )
        retry_after_readback(
            lambda: finished.connection.catalog.alter_table(moved.record), moved.is_in_catalog
        )
    return moved


def add_or_find(
    connection: Connection,
    path: Path,
    location: NewLocation,
    properties: Mapping[str, str],
    *,
    declared: bool = False,
    columns: tuple[Column, ...] = (),
) -> tuple[Table, bool]:
    """Create a Lance entry, or return the Lance table that has the name, and whether it is new.

    Raises:
        TableAlreadyExistsError: (5) an entry that is not a Lance table has the name.
        NamespaceNotFoundError: (1)
        ConcurrentModificationError: (14) other clients keep creating and dropping the table.
    """
    for attempt in range(_ATTEMPTS):
        time.sleep(random.uniform(0, attempt * _PAUSE))  # let the other client finish
        try:
            made = add(connection, path, location, properties, declared=declared, columns=columns)
        except ConcurrentModificationError:
            continue  # another creator won; the next attempt finds its entry
        except TableAlreadyExistsError as error:
            cause = error
        else:
            return made, True
        try:
            entry = load_entry(connection, path)
        except TableNotFoundError:
            continue  # dropped concurrently
        except PermissionDeniedError as error:
            raise table_already_exists(path, "as an entry that you may not read") from error
        if not entry.record.is_lance or not entry.location:
            raise table_already_exists(path, f"as {entry.describe_type()}") from cause
        return Table.of(entry), False
    raise concurrent_modification(path)


def add(
    connection: Connection,
    path: Path,
    location: NewLocation,
    properties: Mapping[str, str],
    *,
    declared: bool = False,
    columns: tuple[Column, ...] = (),
) -> Table:
    """Implement `Tables.add_entry`."""
    own = properties_of_new_table(properties)
    if declared:
        own[DECLARED_AT] = now()
    record = TableRecord(path, locations.for_catalog(location.uri), own, columns=columns)
    connection.declarations.remember(record)
    with reserved(Table(connection, record), location, declared=declared) as is_reserved:
        if is_reserved and declared:
            record = record.with_properties({**own, RESERVED: "true"})
        table = Table(connection, record)
        made = retry_after_readback(
            lambda: connection.catalog.create_table(record), table.is_in_catalog
        )
    return table if made is None else table.with_record(made)


# -- the location of a new table -------------------------------------------------------------------


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
