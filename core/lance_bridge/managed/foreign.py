"""Versions in storage that were not committed through the catalog: show, adopt or discard them."""

from __future__ import annotations

from dataclasses import dataclass

from lance_namespace.errors import InvalidTableStateError

from ..bridge import Bridge
from ..catalog import TableRecord
from ..errors import display, invalid
from ..tables.history.manifests import Manifest, Scheme, parse_name
from . import entry
from .directory import FOREIGN, ManagedDirectory, directory_of
from .state import State, own_state


@dataclass(frozen=True)
class OutOfBand:
    """What lies in a table's storage without having been committed through its catalog.

    ``versions`` are where Lance looks for versions, and can be adopted. ``set_aside`` are the file
    names of manifests that made room for a commit; their rows can still be discarded, not adopted.
    """

    versions: tuple[Manifest, ...]
    set_aside: tuple[str, ...]

    @property
    def set_aside_versions(self) -> tuple[int | None, ...]:
        """The versions that the manifests set aside would have been, as their names say."""
        names = (each.partition(FOREIGN)[0] + ".manifest" for each in self.set_aside)
        return tuple(found[0] if (found := parse_name(name)) else None for name in names)


def look(bridge: Bridge, record: TableRecord) -> OutOfBand:
    """Return what was not committed. Raises InvalidInput (13) where storage manages the table."""
    directory = _directory(bridge, record, write=False)
    # What is seen before the entry is read once more may have been committed by then.
    seen = directory.foreign()
    latest = own_state(entry.reload(bridge, record)).version if seen else 0
    left = tuple(each for each in seen if each.version > latest)
    return OutOfBand(left, tuple(directory.aside()))


def adopt(bridge: Bridge, record: TableRecord) -> int:
    """Make the versions that were not committed the table's own; return its latest version then.

    Raises:
        InvalidInputError: (13) there are none, or storage manages the table.
        InvalidTableStateError: (19) they do not follow on the latest version.
        ConcurrentModificationError: (14) somebody commits.
    """
    _adoptable(bridge, record)
    with entry.held(bridge, record) as held:  # else somebody could set them aside meanwhile
        latest = _adoptable(bridge, held)
        entry.swap(bridge, held, State(latest))
    return latest


def _adoptable(bridge: Bridge, record: TableRecord) -> int:
    """Return the latest of the versions that can be adopted. Raises as `adopt` does."""
    state = own_state(record)
    directory = _directory(bridge, record, write=True)
    directory.finish()
    found = directory.foreign()
    if not found:
        raise invalid(f"Nothing lies beside the versions of table '{display(record.path)}'")
    expected = range(state.version + 1, state.version + 1 + len(found))
    if [each.version for each in found] != list(expected) or found[-1].scheme is not Scheme.V2:
        raise InvalidTableStateError(
            f"Versions {', '.join(str(each.version) for each in found)} do not follow on version "
            f"{state.version} of table '{display(record.path)}': discard them"
        )
    if directory.rivals():
        raise InvalidTableStateError(
            f"Another version {state.version} of table '{display(record.path)}' was set aside, and "
            "what lies there now may stand on that, without the rows of the one committed: "
            "discard it"
        )
    return found[-1].version


def discard(bridge: Bridge, record: TableRecord) -> int:
    """Delete the manifests that were not committed, also those set aside; return their number.

    The data files that only they name are deleted by Lance's clean-up.

    Raises:
        InvalidInputError: (13) storage manages the table.
        ConcurrentModificationError: (14) somebody commits.
    """
    clear(bridge, record)
    directory = _directory(bridge, record, write=True)
    names = directory.aside()
    directory.files.remove([directory.within(name) for name in names])
    return len(names)


def make_room(bridge: Bridge, record: TableRecord) -> TableRecord:
    """Set aside what lies where the next version goes; return the entry as it is then.

    Without that, Lance would find it while it commits, and build on it.

    Raises:
        ConcurrentModificationError: (14) somebody commits.
    """
    directory = _directory(bridge, record, write=True)
    if not directory.has_next():
        return record
    # It may have been committed since the entry was read.
    now = entry.reload(bridge, record)
    if own_state(now).version == directory.state.version:
        clear(bridge, now)
    return now


def clear(bridge: Bridge, record: TableRecord) -> None:
    """Set aside what was not committed, so that the next version can be.

    Raises:
        ConcurrentModificationError: (14) somebody commits.
    """
    with entry.held(bridge, entry.reload(bridge, record)) as held:
        directory = _directory(bridge, held, write=True)
        directory.finish()
        found = directory.foreign()
        entry.require_held(bridge, held)
        directory.set_aside(found)


def _directory(bridge: Bridge, record: TableRecord, *, write: bool) -> ManagedDirectory:
    return directory_of(bridge, record, own_state(record), write=write)
