"""Table entries: declare, load, register, deregister, rename, drop."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from .. import location as locations
from .. import properties as entry_properties
from ..catalog import Column, Path, TableRecord
from ..connection import Connection
from ..declarations import DECLARED_AT, now
from ..errors import (
    OutcomeUnknownError,
    concurrent_modification,
    display,
    invalid,
    table_already_exists,
    table_not_found,
    unsupported,
)
from ..lost_replies import settle
from ..managed import conversion
from ..managed_state import state_of
from ..storage.table_files import LocationFiles
from ..table import Table
from . import locations as placement
from .overlap import LocationIndex

_ATTEMPTS = 3
_LOOKS, _PAUSE = 6, 0.1  # seconds, by which the longest wait before each look grows

logger = logging.getLogger(__name__)

# -- reading -------------------------------------------------------------------------------------


def load(connection: Connection, path: Path) -> TableRecord:
    """Return any entry, Lance or not.

    Raises:
        TableNotFoundError: (4) the namespace is there, and the table is not.
        NamespaceNotFoundError: (1) the namespace does not exist either.
    """
    try:
        return connection.catalog.load_table(path)
    except TableNotFoundError as error:
        connection.catalog.load_namespace(path[:-1])
        raise table_not_found(path) from error


def load_lance(connection: Connection, path: Path) -> TableRecord:
    """Return a Lance table's entry.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) the entry is not a Lance table.
        InvalidTableStateError: (19) the entry has no location.
    """
    record = load(connection, path)
    if not record.is_lance:
        raise invalid(f"'{display(path)}' is not a Lance table but {what_is(record)}")
    if not record.location:
        raise InvalidTableStateError(
            f"Table '{display(path)}' has no location: deregister it, and register it with one"
        )
    return record


def what_is(record: TableRecord) -> str:
    """Return what the catalog calls an entry, for messages."""
    return f"an entry of kind {record.kind or 'unknown'}"


# -- creating ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewEntry:
    """What a declaration adds: checked properties, a place, and whether the catalog manages it."""

    properties: Mapping[str, str]
    location: str
    managed: bool


def planned(
    connection: Connection, path: Path, location: str | None, properties: Mapping[str, str] | None
) -> NewEntry:
    """Return the entry that a declaration would add. Raises 0, 1 and 13, as `declare` does."""
    given = entry_properties.checked(properties)
    chosen = locations.check(location) if location is not None else None
    home = placement.Home(connection, path[:-1])
    managed = conversion.is_wanted(connection, path, home, properties)
    place = chosen or placement.free_location(connection, path, home, must_look=False)
    return NewEntry(given, place, managed)


def declare(
    connection: Connection,
    path: Path,
    location: str | None,
    properties: Mapping[str, str] | None,
    *,
    vend: bool | None,
) -> tuple[TableRecord, dict[str, str] | None]:
    """Add an entry without data, or repeat a declaration that was never followed by data.

    Repeating lets a failed first write be tried again without anyone's help; `declarations` says
    who may. Returns the options to write there, too. Source: DeclareTable.

    Raises:
        TableAlreadyExistsError: (5) a table with data, somebody's fresh declaration, one with
            another location, or an entry that is not Lance's has the name.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) bad location or properties, or no location can be found.
        PermissionDeniedError: (15) the catalog gives no credentials; then nothing is declared.
        UnsupportedOperationError: (0) the catalog is to manage the table, and cannot.
    """
    new = planned(connection, path, location, properties)
    record, is_new = add_or_find(connection, path, new.location, new.properties, declared=True)
    if is_new:
        with undone(connection, record):
            record = conversion.begin(connection, record) if new.managed else record
            return record, connection.answer_options(record, vend=vend, write=True)
    _require_declaration(connection, record)
    if location and locations.key(new.location) != locations.key(record.location or ""):
        raise table_already_exists(path, f"declared at {record.location}")
    record = set_properties(connection, record, new.properties) if properties else record
    record = conversion.begin(connection, record) if new.managed else record
    return record, connection.answer_options(record, vend=vend, write=True)


@contextmanager
def undone(connection: Connection, record: TableRecord) -> Iterator[None]:
    """Take a new entry back where what belongs to it cannot be had."""
    try:
        yield
    except LanceNamespaceError:
        try:
            drop_entry(connection, record)
        except LanceNamespaceError as error:
            logger.warning("the entry of %s stays: %s", display(record.path), error)
        raise


def _require_declaration(connection: Connection, record: TableRecord) -> None:
    """Raise code 5 unless a Lance table's entry is a declaration that may be repeated."""
    path = record.path
    try:
        declared = Table(connection, record).is_declared()
    except LanceNamespaceError as error:
        raise table_already_exists(path, f"its storage cannot be looked at: {error}") from error
    if not declared:
        raise table_already_exists(path)
    if not connection.declarations.may_repeat(record):
        raise table_already_exists(
            path,
            f"declared {connection.declarations.age(record):.0f} s ago and not written yet. Its data "
            "can be created with CreateTable or written with mode 'overwrite'; it can be declared "
            f"again after {connection.config.declare_grace:.0f} s",
        )


def add_or_find(
    connection: Connection,
    path: Path,
    location: str,
    properties: Mapping[str, str],
    *,
    declared: bool = False,
    columns: tuple[Column, ...] = (),
) -> tuple[TableRecord, bool]:
    """Create a Lance entry, or return the Lance table that has the name, and whether it is new.

    Raises:
        TableAlreadyExistsError: (5) the name is taken by something else than a Lance table.
        NamespaceNotFoundError: (1)
        ConcurrentModificationError: (14) others make and drop the table all the time.
    """
    for attempt in range(_LOOKS):
        time.sleep(random.uniform(0, attempt * _PAUSE))  # let the other creator's change end
        try:
            made = add(connection, path, location, properties, declared=declared, columns=columns)
        except ConcurrentModificationError:
            continue  # other creators were in the way; the next look finds whoever won
        except TableAlreadyExistsError as error:
            cause = error
        else:
            return made, True
        try:
            record = load(connection, path)
        except TableNotFoundError:
            continue  # dropped meanwhile
        if not record.is_lance or not record.location:
            raise table_already_exists(path, f"as {what_is(record)}") from cause
        return record, False
    raise concurrent_modification(path)


def add(
    connection: Connection,
    path: Path,
    location: str,
    properties: Mapping[str, str],
    *,
    declared: bool = False,
    columns: tuple[Column, ...] = (),
) -> TableRecord:
    """Create a Lance entry at ``location``; ``properties`` are checked already.

    Args:
        declared: Whether the data is still to come.
        columns: Those of the data, where it is known.

    Raises:
        TableAlreadyExistsError: (5) any entry has the name.
        NamespaceNotFoundError: (1)
    """
    marked = entry_properties.for_new_table(properties)
    if declared:
        marked[DECLARED_AT] = now()
    record = TableRecord(path, locations.for_catalog(location), marked, columns=columns)
    connection.declarations.remember(record)
    with placement.reserved(connection, record):
        made = settle(
            lambda: connection.catalog.create_table(record), lambda: is_same(connection, record)
        )
    return made or record


def is_same(connection: Connection, record: TableRecord) -> bool:
    """Return True where the catalog has this very entry under its name."""
    try:
        found = connection.catalog.load_table(record.path)
    except (TableNotFoundError, NamespaceNotFoundError):
        return False
    return _identity(found) == _identity(record)


def _identity(record: TableRecord) -> object:
    own = record.properties.get(entry_properties.ENTRY_ID)
    return own or (record.identity, locations.key(record.location or "/"))


def set_properties(
    connection: Connection, record: TableRecord, properties: Mapping[str, str]
) -> TableRecord:
    """Replace the caller's own properties of an entry; commits to it meanwhile do not matter."""
    for _ in range(_ATTEMPTS):
        record = Table(connection, record).refreshed().record
        try:
            return _set_properties(connection, record, properties)
        except ConcurrentModificationError:
            if state_of(record) is None:
                raise
    raise concurrent_modification(record.path)


def _set_properties(
    connection: Connection, record: TableRecord, properties: Mapping[str, str]
) -> TableRecord:
    require_settable(connection, record, properties)
    wanted = entry_properties.replaced(record.properties, properties)
    if wanted == dict(record.properties):
        return record
    changed = record.with_properties(wanted)
    settle(
        lambda: connection.catalog.alter_table(changed),
        lambda: dict(connection.catalog.load_table(record.path).properties) == wanted,
    )
    return changed


def require_settable(
    connection: Connection, record: TableRecord, properties: Mapping[str, str]
) -> None:
    """Check that `set_properties` could be done, before anything else is.

    Raises:
        UnsupportedOperationError: (0) it would have to change what cannot change.
        InvalidInputError: (13) the entry is a link.
    """
    if entry_properties.replaced(record.properties, properties) != dict(record.properties):
        require_change(connection, record, "Properties of")


def require_change(connection: Connection, record: TableRecord, what: str) -> None:
    name = display(record.path)
    if connection.capabilities.no_alter:
        raise unsupported(f"{what} '{name}' cannot change: {connection.capabilities.no_alter}")
    if record.link_to:
        raise invalid(f"{what} '{name}' cannot change: it is a link to {record.link_to}")


# -- dropping ----------------------------------------------------------------------------------


def deregister(connection: Connection, path: Path) -> TableRecord:
    """Remove the entry and no file. Source: DeregisterTable.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) the entry is not a Lance table.
    """
    record = load(connection, path)
    if not record.is_lance:
        raise invalid(f"'{display(path)}' is not a Lance table but {what_is(record)}")
    conversion.finish_latest(connection, record)
    drop_entry(connection, record)
    return record


def drop(connection: Connection, path: Path) -> TableRecord:
    """Remove the entry, then the table's files. Source: DropTable.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) the entry is not a Lance table.
        InvalidTableStateError: (19) another entry shares the location, Lance cannot delete there,
            or the table or its namespace is a link; nothing is changed.
    """
    record = load_lance(connection, path)
    link_to = connection.catalog.load_namespace(path[:-1]).link_to
    if link_to:
        raise InvalidTableStateError(
            f"Table '{display(path)}' is in a link to {link_to}, and its data is not deleted "
            "through that: drop it there, or deregister it"
        )
    try:
        files = require_droppable(record, LocationIndex(connection, [path[:-1]]))
    except LanceNamespaceError:
        load(connection, path)  # another drop may have removed the entry, and be deleting the files
        raise
    drop_with_data(connection, record, files)
    return record


def require_droppable(record: TableRecord, index: LocationIndex) -> LocationFiles:
    """Check all that can be checked before anything is changed, and return the table's files.

    Raises:
        InvalidTableStateError: (19)
    """
    if record.link_to:
        raise InvalidTableStateError(
            f"Table '{display(record.path)}' is a link to {record.link_to}, and its data is not "
            "its own to delete: deregister it instead"
        )
    try:
        locations.check(record.location or "")
    except InvalidInputError as error:
        raise InvalidTableStateError(
            f"Table '{display(record.path)}' is where nothing can be deleted: {error}. "
            "Deregister it instead"
        ) from error
    index.refuse_shared(record)
    return index.require_own_files(record)


def drop_with_data(
    connection: Connection, record: TableRecord, files: LocationFiles | None = None
) -> None:
    """Remove the entry, then the files that `require_droppable` returned; None lists them then."""
    storage = connection.storage(
        record, write=True
    )  # a catalog may vend none once the entry is gone
    try:
        drop_entry(connection, record)
    except OutcomeUnknownError as error:
        raise OutcomeUnknownError(
            f"{error}. If the entry is gone, its files are left at {record.location}"
        ) from error
    try:
        if not placement.is_taken(connection, record):  # made anew meanwhile
            storage.delete_table(record.location or "", files)
    except LanceNamespaceError as error:
        raise type(error)(
            f"Table '{display(record.path)}' is dropped, but files are left at "
            f"{record.location}: delete them there. {error}"
        ) from error


def drop_entry(connection: Connection, record: TableRecord) -> None:
    """Remove the entry and no file, whatever becomes of the reply."""
    settle(lambda: connection.catalog.drop_table(record), lambda: not is_same(connection, record))
