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

from ..bridge import Bridge
from ..catalog import GUARD, IMPLEMENTATION, MANAGED_BY, Path, TableRecord
from ..entries.outcome import settle
from ..entries.placement import Home
from ..entries.properties import manager_in
from ..errors import concurrent_modification, display, unsupported
from ..tables.history.manifests import Manifest, Scheme, TableFiles, VersionDirectory
from . import entry
from .directory import directory_of
from .state import State, as_managed, as_unmanaged, own_state, require_own, state_of

_ATTEMPTS = 5

logger = logging.getLogger(__name__)


def is_wanted(bridge: Bridge, path: Path, home: Home, properties: Mapping[str, str] | None) -> bool:
    """Return whether a new table is to be managed: by its properties, or by its namespace's.

    Raises:
        UnsupportedOperationError: (0) its properties say so, and the catalog cannot.
        NamespaceNotFoundError: (1)
    """
    asked = manager_in(properties)
    if asked is not None:
        if asked == IMPLEMENTATION:
            require_possible(bridge, f"Table '{display(path)}'")
        return asked == IMPLEMENTATION
    if _reason(bridge):
        return False
    return home.record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION


def require_possible(bridge: Bridge, what: str) -> None:
    """Raise UnsupportedOperation (0) where the catalog cannot hold a table's versions."""
    reason = _reason(bridge)
    if reason:
        raise unsupported(f"{what} cannot be managed by the catalog: {reason}")


def _reason(bridge: Bridge) -> str:
    return bridge.capabilities.no_managed_tables or bridge.capabilities.no_alter


def begin(bridge: Bridge, record: TableRecord) -> TableRecord:
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
    require_possible(bridge, f"Table '{display(record.path)}'")
    has_begun = False
    for _ in range(_ATTEMPTS):
        require_own(record)
        if record.revision is None:
            # It has just been made, and nothing can be compared with what the catalog has.
            record = entry.reload(bridge, record)
        if state_of(record) is not None:
            return _caught_up(bridge, record) if has_begun else record
        state = State(latest_in_storage(bridge, record))
        guard = record.properties.get(GUARD) or bridge.catalog.commit_guard(record)
        with suppress(ConcurrentModificationError):
            _alter(bridge, as_managed(record, state, guard))
            has_begun = True
        record = entry.reload(bridge, record)
    raise concurrent_modification(record.path)


def _caught_up(bridge: Bridge, record: TableRecord) -> TableRecord:
    """Take in what was written to the storage until the entry was changed."""
    state = own_state(record)
    if state.staged or state.is_held:
        return record  # somebody has committed through the catalog already
    if latest_in_storage(bridge, record) <= state.version:
        return record
    with suppress(ConcurrentModificationError), entry.held(bridge, record) as held:
        latest = latest_in_storage(bridge, held)  # others may have set aside what there was
        if latest > state.version:
            entry.swap(bridge, held, State(latest))
    return entry.reload(bridge, record)


def finish_latest(bridge: Bridge, record: TableRecord) -> None:
    """Give the latest version its final name before the entry goes that tells of it.

    Storage that does not answer does not keep an entry from going.
    """
    try:
        state = state_of(record)
        if state is not None:
            directory_of(bridge, record, state, write=True).finish()
    except LanceNamespaceError as error:
        name = display(record.path)
        logger.warning("the latest version of %s may stay staged: %s", name, error)


def latest_in_storage(bridge: Bridge, record: TableRecord) -> int:
    """Return the latest version at a table's location, or 0; Lance commits on top of it.

    Raises:
        InvalidTableStateError: (19) it is a table whose versions no catalog can hold.
    """
    files = TableFiles(bridge.storage(record, write=True), record.location or "")
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


def end(bridge: Bridge, record: TableRecord, holder: str = "") -> TableRecord:
    """Leave a table's versions to its storage; return the entry then.

    Args:
        holder: See `entry.held`: who may go on where it died before.

    Raises:
        InvalidInputError: (13) it does so already.
        InvalidTableStateError: (19) there are versions that were never committed: adopt or discard
            them first.
        ConcurrentModificationError: (14) somebody commits.
    """
    with entry.held(bridge, record, holder=holder) as held:
        directory = directory_of(bridge, held, own_state(record), write=True)
        directory.finish()
        _refuse_foreign(held, directory.foreign())
        _alter(bridge, as_unmanaged(held))
    return entry.reload(bridge, record)


def _refuse_foreign(record: TableRecord, found: Sequence[Manifest]) -> None:
    if found:
        raise InvalidTableStateError(
            f"Version {found[0].version} of table '{display(record.path)}' was not committed "
            "through the catalog, and would show up: adopt or discard it first"
        )


def _alter(bridge: Bridge, changed: TableRecord) -> None:
    def has_happened() -> bool:
        found = entry.reload(bridge, changed).properties
        return all(found.get(key) == changed.properties.get(key) for key in (MANAGED_BY, GUARD))

    settle(lambda: bridge.catalog.alter_table(changed), has_happened)
