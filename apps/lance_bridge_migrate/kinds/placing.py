"""Where the data of a table goes that a migration makes, and its entry once that is there."""

from __future__ import annotations

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import TableRecord
from lance_bridge.errors import concurrent_modification

from .. import targets
from ..targets import AnyWork


def place_of(bridge: Bridge, work: AnyWork) -> str:
    """Return the location that an earlier run noted, if it is still free, or else a free one.

    Note it before the entry is made: an earlier run may have reserved it and died then.
    """
    path, noted = work.item.target, str(work.facts.get("location") or "")
    if noted and not bridge.storage(TableRecord(path, noted), write=True).has_dataset(noted):
        return noted
    return targets.free_location(bridge, path)


def own_entry(bridge: Bridge, work: AnyWork) -> TableRecord:
    """Return the entry that this migration made. Raises ConcurrentModification (14)."""
    record = targets.own(bridge, work)
    if record is None:
        raise concurrent_modification(work.item.target)
    return record
