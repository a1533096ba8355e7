"""Making a table implementation-managed, and leaving it to its storage again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
)

from ..catalog import GUARD, IMPLEMENTATION, MANAGED_BY, Path, TableRecord
from ..connection import Connection
from ..errors import concurrent_modification, display, unsupported
from ..lost_replies import settle
from ..managed_state import State, as_managed, as_unmanaged, own_state, require_own, state_of
from ..properties import manager_in
from ..storage.manifests import Manifest, Scheme, TableFiles, VersionDirectory
from ..tables.locations import Home
from . import compare_and_set as entry
from .versions import directory_of

_ATTEMPTS = 5

logger = logging.getLogger(__name__)


def is_wanted(
    connection: Connection, path: Path, home: Home, properties: Mapping[str, str] | None
) -> bool:
    """Return whether a new table is to be managed: by its properties, or by its namespace's.

    Raises:
        UnsupportedOperationError: (0) its properties say so, and the catalog cannot.
        NamespaceNotFoundError: (1)
    """
    asked = manager_in(properties)
    if asked is not None:
        if asked == IMPLEMENTATION:
            require_possible(connection, f"Table '{display(path)}'")
        return asked == IMPLEMENTATION
    if _reason(connection):
        return False
    return home.record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION


def require_possible(connection: Connection, what: str) -> None:
    """Raise UnsupportedOperation (0) where the catalog cannot hold a table's versions."""
    reason = _reason(connection)
    if reason:
        raise unsupported(f"{what} cannot be managed by the catalog: {reason}")


def _reason(connection: Connection) -> str:
    return connection.capabilities.no_managed_tables or connection.capabilities.no_alter


def begin(connection: Connection, record: TableRecord) -> TableRecord:
    """Have the catalog hold a table's versions from now on; return the entry then.

    What the storage has by then is the table's. Writers that opened the table before go on writing
    to the storage, and what they write is not shown: stop them first.

    Raises:
        UnsupportedOperationError: (0) the catalog cannot, or another implementation manages it.
        InvalidTableStateError: (19) the table has branches, or manifests of the first naming
            scheme.
        ConcurrentModificationError: (14) others change the entry all the time.
        TableNotFoundError: (4) the table was dropped meanwhile.
    """
    require_possible(connection, f"Table '{display(record.path)}'")
    has_begun = False
    for _ in range(_ATTEMPTS):
        require_own(record)
        if record.revision is None:
            # It has just been made, and nothing can be compared with what the catalog has.
            record = entry.reload(connection, record)
        if state_of(record) is not None:
            return _caught_up(connection, record) if has_begun else record
        state = State(latest_in_storage(connection, record))
        guard = record.properties.get(GUARD) or connection.catalog.commit_guard(record)
        with suppress(ConcurrentModificationError):
            _alter(connection, as_managed(record, state, guard))
            has_begun = True
        record = entry.reload(connection, record)
    raise concurrent_modification(record.path)


def _caught_up(connection: Connection, record: TableRecord) -> TableRecord:
    """Take in what was written to the storage until the entry was changed."""
    state = own_state(record)
    if state.staged or state.is_held:
        return record  # somebody has committed through the catalog already
    if latest_in_storage(connection, record) <= state.version:
        return record
    with suppress(ConcurrentModificationError), entry.held(connection, record) as held:
        latest = latest_in_storage(connection, held)  # others may have set aside what there was
        if latest > state.version:
            entry.swap(connection, held, State(latest))
    return entry.reload(connection, record)


def finish_latest(connection: Connection, record: TableRecord) -> None:
    """Give the latest version its final name before the entry goes that tells of it.

    Storage that does not answer does not keep an entry from going.
    """
    try:
        state = state_of(record)
        if state is not None:
            directory_of(connection, record, state, write=True).finish()
    except LanceNamespaceError as error:
        name = display(record.path)
        logger.warning("the latest version of %s may stay staged: %s", name, error)


def latest_in_storage(connection: Connection, record: TableRecord) -> int:
    """Return the latest version at a table's location, or 0; Lance commits on top of it.

    Raises:
        InvalidTableStateError: (19) it is a table whose versions no catalog can hold.
    """
    files = TableFiles(connection.storage(record, write=True), record.location or "")
    if files.list("tree") or files.list("_refs/branches"):
        raise InvalidTableStateError(
            f"Table '{display(record.path)}' has branches, which its catalog cannot hold: delete "
            "them first"
        )
    latest = VersionDirectory(files).latest()
    if latest is None:
        return 0
    if latest.scheme is not Scheme.V2:
        raise InvalidTableStateError(
            f"The manifests of table '{display(record.path)}' are named in scheme "
            f"{latest.scheme.value}: rename them first, with migrate_manifest_paths_v2 of pylance"
        )
    return latest.version


def end(connection: Connection, record: TableRecord, holder: str = "") -> TableRecord:
    """Leave a table's versions to its storage; return the entry then.

    Args:
        holder: See `entry.held`: who may go on where it died before.

    Raises:
        InvalidInputError: (13) it does so already.
        InvalidTableStateError: (19) there are versions that were never committed: adopt or discard
            them first.
        ConcurrentModificationError: (14) somebody commits.
    """
    with entry.held(connection, record, holder=holder) as held:
        directory = directory_of(connection, held, own_state(record), write=True)
        directory.finish()
        _refuse_foreign(held, directory.foreign())
        _alter(connection, as_unmanaged(held))
    return entry.reload(connection, record)


def _refuse_foreign(record: TableRecord, found: Sequence[Manifest]) -> None:
    if found:
        raise InvalidTableStateError(
            f"Version {found[0].version} of table '{display(record.path)}' was not committed "
            "through the catalog, and would show up: adopt or discard it first"
        )


def _alter(connection: Connection, changed: TableRecord) -> None:
    def has_happened() -> bool:
        found = entry.reload(connection, changed).properties
        return all(found.get(key) == changed.properties.get(key) for key in (MANAGED_BY, GUARD))

    settle(lambda: connection.catalog.alter_table(changed), has_happened)
