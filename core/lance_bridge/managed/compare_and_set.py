"""Changing the entry of an implementation-managed table: compare, set, and know what became of it.

Every change goes through here, so that a commit is never overwritten by what was read before it.
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

from .. import location as locations
from ..catalog import Path, TableRecord
from ..connection import Connection
from ..errors import concurrent_modification, display
from ..lost_replies import settle
from ..managed_state import State, state_of, with_state
from ..properties import ENTRY_ID

_ATTEMPTS = 10

POLL_SECONDS, WAIT_SECONDS = 0.05, 2.0
"""How often, and for how long, a commit looks whether a hold that began just now has ended."""

logger = logging.getLogger(__name__)

IsLater = Callable[[State], bool]


def swap(
    connection: Connection,
    record: TableRecord,
    new: State,
    is_later: IsLater = lambda _: False,
) -> TableRecord:
    """Put one state of a table in the place of the one that was loaded; return the entry then.

    Other changes of the entry meanwhile do not matter.

    Args:
        is_later: Whether a state that came after is known to stand on the new one.

    Raises:
        ConcurrentModificationError: (14) the state is another one by now.
        TableNotFoundError: (4) the table was dropped meanwhile.
        OutcomeUnknownError: (17) the reply was lost, and what became of it cannot be found out.
    """
    old = state_of(record)
    for _ in range(_ATTEMPTS):
        changed = with_state(record, new)
        try:
            _alter(connection, changed, new, is_later)
        except ConcurrentModificationError:
            record = reload(connection, record)
            found = state_of(record)
            if _has_happened(found, new, is_later):
                return record
            if found != old:
                raise
        else:
            return changed
    raise concurrent_modification(record.path)


def _alter(connection: Connection, changed: TableRecord, new: State, is_later: IsLater) -> None:
    settle(
        lambda: connection.catalog.alter_table(changed),
        lambda: _has_happened(state_of(reload(connection, changed)), new, is_later),
    )


def _has_happened(found: State | None, new: State, is_later: IsLater) -> bool:
    return found == new or (found is not None and is_later(found))


def reload(connection: Connection, record: TableRecord) -> TableRecord:
    """Return the entry as it is now.

    Raises:
        TableNotFoundError: (4)
        ConcurrentModificationError: (14) another table has the name by now.
    """
    found = connection.catalog.load_table(record.path)
    if found.properties.get(ENTRY_ID) != record.properties.get(ENTRY_ID):
        raise concurrent_modification(record.path)
    return found


@contextmanager
def held(
    connection: Connection,
    record: TableRecord,
    other: Path = (),
    holder: str = "",
    *,
    brief: bool = False,
) -> Iterator[TableRecord]:
    """Keep everybody from committing to a table; does nothing for one that storage manages.

    Yields the entry as it is then. After the time of a hold others may commit again, whatever
    became of the holder.

    Args:
        other: The name that the table is being copied to.
        holder: Who holds it, where that is known to be one at a time: a hold that it left when it
            died is its own.
        brief: Whether it ends after `BRIEF_SECONDS`: nothing is lost that a holder who is late
            changes in the storage.

    Raises:
        ConcurrentModificationError: (14) somebody commits, or holds the table.
    """
    state = state_of(record)
    if state is None:
        yield record
        return
    if not (holder and state.holder == holder):
        require_free(connection, record, state)
    changed = swap(connection, record, state.hold(other, holder, brief=brief))
    try:
        yield reload(connection, changed)
    finally:
        release(connection, changed)


def require_held(connection: Connection, record: TableRecord) -> None:
    """Check, before something is deleted, that a hold has not ended by its age meanwhile.

    Raises:
        ConcurrentModificationError: (14)
    """
    if state_of(reload(connection, record)) != state_of(record):
        raise concurrent_modification(record.path)


def release(connection: Connection, record: TableRecord) -> None:
    """End a hold. Where the entry is gone, or is not held by this hold any more, there is none."""
    state = state_of(record)
    if state is None or state.held is None:
        return
    try:
        now = reload(connection, record)
        if state_of(now) == state:
            swap(connection, now, state.free())
    except (TableNotFoundError, NamespaceNotFoundError):
        return
    except LanceNamespaceError as error:
        logger.warning("%s stays held for a while: %s", display(record.path), error)


def require_free(connection: Connection, record: TableRecord, state: State) -> None:
    """Check that a table may be committed to.

    Raises:
        ConcurrentModificationError: (14) somebody holds it.
        InvalidTableStateError: (19) a rename was cut off, and left it under two names: commits to
            one would not be seen by the other.
    """
    name = display(record.path)
    if state.is_held:
        raise ConcurrentModificationError(
            f"Table '{name}' is being renamed or mended: try again in a moment"
        )
    if state.other and _is_same_table(connection, record, state.other):
        raise InvalidTableStateError(
            f"Table '{name}' has another name, '{display(state.other)}', since a rename was cut "
            "off: deregister one of the two"
        )


def await_free(connection: Connection, record: TableRecord) -> TableRecord:
    """Return the entry when a hold that began just now has ended, or after `WAIT_SECONDS`.

    Lance takes a refusal for a lost reply, and does not try again.
    """
    ends = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < ends:
        state = state_of(record)
        if state is None or not state.is_held or state.other or state.is_held_for_long:
            break
        time.sleep(POLL_SECONDS)
        record = reload(connection, record)
    return record


def _is_same_table(connection: Connection, record: TableRecord, other: Path) -> bool:
    try:
        found = connection.catalog.load_table(other)
    except (TableNotFoundError, NamespaceNotFoundError):
        return False
    own = locations.key(record.location or "/")
    return locations.key(found.location or "/") == own
