"""Changes of an implementation-managed table's entry: compare, set, and read back lost replies.

Every change goes through here, so that none overwrites a commit made after the entry was read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from .. import locations
from ..catalog import Path
from ..entry import EntryT, TableEntry
from ..errors import OutcomeUnknownError, concurrent_modification, display, retry_after_readback
from ..managed_state import State

_ATTEMPTS = 10

POLL_SECONDS, WAIT_SECONDS = 0.05, 2.0
"""How often, and for how long, a commit checks whether a new hold has ended."""

logger = logging.getLogger(__name__)

IsLater = Callable[[State | None], bool]


def swap(table: EntryT, new: State, is_later: IsLater | None = None) -> EntryT:
    """Replace the loaded state with a new one; return the updated table.

    Concurrent changes to the rest of the entry do not conflict.

    Args:
        is_later: Returns whether a later state is known to be based on the new one; called with
            None if the table no longer has a state.

    Raises:
        ConcurrentModificationError: (14) the state has changed.
        TableNotFoundError: (4) the table was dropped concurrently.
        OutcomeUnknownError: (17) the reply was lost, and the outcome cannot be read back; with
            `is_later`, also if the table was dropped or renamed before it was read back.
    """
    old = table.managed
    for _ in range(_ATTEMPTS):
        changed = table.with_state(new)
        try:
            _alter(changed, new, is_later)
        except ConcurrentModificationError:
            table = table.reloaded()
            if _has_happened(table.managed, new, is_later):
                return table
            if table.managed != old:
                raise
        else:
            return changed
    raise concurrent_modification(table.path)


def _alter(changed: TableEntry, new: State, is_later: IsLater | None) -> None:
    def has_happened() -> bool:
        try:
            found = changed.reloaded().managed
        except (TableNotFoundError, NamespaceNotFoundError) as error:
            if is_later is None:
                raise
            if is_later(None):
                return True
            raise OutcomeUnknownError(str(error)) from error
        return _has_happened(found, new, is_later)

    retry_after_readback(
        lambda: changed.connection.catalog.alter_table(changed.record), has_happened
    )


def _has_happened(found: State | None, new: State, is_later: IsLater | None) -> bool:
    return found == new or (is_later is not None and is_later(found))


@contextmanager
def held(
    table: EntryT, other: Path = (), holder: str = "", *, brief: bool = False
) -> Iterator[EntryT]:
    """Keep other clients from committing to a table; does nothing for a storage-managed one.

    Yields the updated table. A hold expires, so clients can commit again if the holder died.

    Args:
        other: The name that the table is being copied to.
        holder: The id of a holder of which only one runs at a time: it may continue under a hold
            that it left when it died.
        brief: Whether it expires after `BRIEF_SECONDS`; for changes of the storage that lose
            nothing when they arrive late.

    Raises:
        ConcurrentModificationError: (14) another client commits, or holds the table.
        InvalidTableStateError: (19) an interrupted rename left it under two names.
        TableNotFoundError: (4) it was dropped concurrently.
        OutcomeUnknownError: (17) as `swap`.
    """
    state = table.managed
    if state is None:
        yield table
        return
    if not (holder and state.holder == holder):
        require_unlocked(table)
    changed = swap(table, state.hold(other, holder, brief=brief))
    try:
        yield changed.reloaded()
    finally:
        release(changed)


def require_held(table: TableEntry) -> None:
    """Check, before something is deleted, that a hold has not expired.

    Raises:
        ConcurrentModificationError: (14)
    """
    if table.reloaded().managed != table.managed:
        raise concurrent_modification(table.path)


def release(table: TableEntry) -> None:
    """End a hold, unless the entry is missing or has another holder."""
    state = table.managed
    if state is None or state.held is None:
        return
    try:
        now = table.reloaded()
        if now.managed == state:
            swap(now, state.without_pending())
    except (TableNotFoundError, NamespaceNotFoundError):
        return
    except LanceNamespaceError as error:
        logger.warning("%s remains held until the hold expires: %s", table.name, error)


def require_unlocked(table: TableEntry) -> None:
    """Check that commits to an implementation-managed table are possible.

    Raises:
        ConcurrentModificationError: (14) another client holds it.
        InvalidTableStateError: (19) an interrupted rename left it under two names: commits to one
            would not be seen by the other.
    """
    state = table.managed_state()
    if state.is_held:
        raise ConcurrentModificationError(
            f"Table '{table.name}' is being renamed or repaired: try again in a moment"
        )
    if state.prepared is not None:
        raise ConcurrentModificationError(
            f"A batch is committing to table '{table.name}': try again in a moment"
        )
    if state.other and _has_other_name(table, state.other):
        raise InvalidTableStateError(
            f"Table '{table.name}' has another name, '{display(state.other)}', since a rename was "
            "interrupted: deregister one of the two"
        )


def wait_until_unlocked(table: EntryT) -> EntryT:
    """Wait for a new hold to end, for up to `WAIT_SECONDS`; return the updated table.

    Lance would mistake a refusal for a lost reply, and not try again.
    """
    ends = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < ends:
        state = table.managed
        if state is None or not state.is_held or state.other or state.is_held_for_long:
            break
        time.sleep(POLL_SECONDS)
        table = table.reloaded()
    return table


def _has_other_name(table: TableEntry, other: Path) -> bool:
    found = table.connection.find_table(other)
    if found is None:
        return False
    return locations.key(found.location or "/") == locations.key(table.location or "/")
