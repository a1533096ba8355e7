"""Versions in storage that were not committed through the catalog: show, adopt or discard them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
)

from ..catalog import TableRecord
from ..connection import Connection
from ..errors import display, invalid
from ..managed_state import State, own_state, state_of
from ..storage.manifests import Manifest, Scheme
from . import compare_and_set as entry
from .versions import ManagedDirectory, directory_of, version_aside

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutOfBand:
    """What lies in a table's storage without having been committed through its catalog.

    ``versions`` are where Lance looks for versions, and can be adopted. ``set_aside`` are the file
    names of manifests that made room for a commit. Until there was one, they can be adopted, too.
    """

    versions: tuple[Manifest, ...]
    set_aside: tuple[str, ...]

    @property
    def set_aside_versions(self) -> tuple[int | None, ...]:
        """The versions that the manifests set aside would have been, as their names say."""
        return tuple(map(version_aside, self.set_aside))


def look(connection: Connection, record: TableRecord) -> OutOfBand:
    """Return what was not committed. Raises InvalidInput (13) where storage manages the table."""
    directory = _directory(connection, record, write=False)
    # What is seen before the entry is read once more may have been committed by then.
    seen = directory.foreign()
    latest = own_state(entry.reload(connection, record)).version if seen else 0
    left = tuple(each for each in seen if each.version > latest)
    return OutOfBand(left, tuple(directory.aside()))


def adopt(connection: Connection, record: TableRecord) -> int:
    """Make the versions that were not committed the table's own; return its latest version then.

    Raises:
        InvalidInputError: (13) there are none, or storage manages the table.
        InvalidTableStateError: (19) they do not follow on the latest version.
        ConcurrentModificationError: (14) somebody commits.
    """
    _adoptable(connection, record)
    with entry.held(connection, record) as held:  # else somebody could set them aside meanwhile
        latest = _adoptable(connection, held)
        _directory(connection, held, write=True).put_back()
        entry.swap(connection, held, State(latest))
    return latest


def _adoptable(connection: Connection, record: TableRecord) -> int:
    """Return the latest of the versions that can be adopted. Raises as `adopt` does."""
    state = own_state(record)
    directory = _directory(connection, record, write=True)
    directory.finish()
    present = directory.foreign()
    aside = [] if present else directory.aside_after_latest()
    found = [each.version for each in present] + [version for version, _ in aside]
    if not found:
        raise invalid(f"Nothing lies beside the versions of table '{display(record.path)}'")
    expected = range(state.version + 1, state.version + 1 + len(found))
    if found != list(expected) or any(each.scheme is not Scheme.V2 for each in present):
        raise InvalidTableStateError(
            f"Versions {', '.join(map(str, found))} do not follow on version "
            f"{state.version} of table '{display(record.path)}': discard them"
        )
    if directory.rivals():
        raise InvalidTableStateError(
            f"Another version {state.version} of table '{display(record.path)}' was set aside, and "
            "what lies there now may stand on that, without the rows of the one committed: "
            "discard it"
        )
    return found[-1]


def discard(connection: Connection, record: TableRecord) -> int:
    """Delete the manifests that were not committed, also those set aside; return their number.

    The data files that only they name are deleted by Lance's clean-up.

    Raises:
        InvalidInputError: (13) storage manages the table.
        ConcurrentModificationError: (14) somebody commits.
    """
    clear(connection, record)
    directory = _directory(connection, record, write=True)
    names = directory.aside()
    directory.files.remove([directory.within(name) for name in names])
    return len(names)


def make_room(connection: Connection, record: TableRecord) -> TableRecord:
    """Set aside what lies where the next version goes; return the entry as it is then.

    Without that, Lance would find it while it commits, and build on it. Waits for another that
    does the same at the moment.

    Raises:
        ConcurrentModificationError: (14) somebody commits, or holds the table.
    """
    ends = time.monotonic() + entry.WAIT_SECONDS
    while _directory(connection, record, write=True).has_next():
        # It may have been committed since the entry was read.
        now = entry.reload(connection, record)
        if own_state(now).version == own_state(record).version:
            try:
                clear(connection, now)
            except ConcurrentModificationError:
                now = entry.reload(connection, now)
                if time.monotonic() > ends or own_state(now).is_held_for_long:
                    raise
                time.sleep(entry.POLL_SECONDS)
        record = now
    return record


def make_room_for_lance(connection: Connection, record: TableRecord) -> TableRecord:
    """Do as `make_room` where that can be done; return the entry as it is then.

    pylance asks for the latest version before it writes, and by that alone cannot be told from one
    that reads. Who may only read goes on as if nothing lay there.
    """
    if state_of(record) is None or not _directory(connection, record, write=False).has_next():
        return record
    try:
        return make_room(connection, record)
    except LanceNamespaceError as error:
        logger.info("what lies beside %s is not set aside: %s", display(record.path), error)
        return record


def clear(connection: Connection, record: TableRecord) -> None:
    """Set aside what was not committed, so that the next version can be.

    Raises:
        ConcurrentModificationError: (14) somebody commits.
    """
    now = entry.reload(connection, record)
    directory = _directory(connection, now, write=True)
    # Fails where the storage cannot be written to, and then without having kept others waiting.
    directory.keep(directory.foreign())
    with entry.held(connection, now, brief=True) as held:
        directory = _directory(connection, held, write=True)
        directory.finish()
        found = directory.foreign()
        entry.require_held(connection, held)
        directory.set_aside(found)


def _directory(connection: Connection, record: TableRecord, *, write: bool) -> ManagedDirectory:
    return directory_of(connection, record, own_state(record), write=write)
