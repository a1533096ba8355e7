"""The places and names that entries have: what lies elsewhere has none."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lance_namespace.errors import InvalidTableStateError, NamespaceNotFoundError

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.catalog import Path, TableRecord
from lance_bridge.entries.sharing import innermost_namespaces
from lance_bridge.errors import display

_THREADS = 8

Key = tuple[str, ...]
"""A place, as `location.key` spells it."""


@dataclass(frozen=True)
class Taken:
    """Of the whole catalog: one entry that is not known could be for any place."""

    namespaces: frozenset[Path]
    names: frozenset[Path]
    places: frozenset[Key]
    above: frozenset[Key]
    """What contains a place, without the place itself."""

    @classmethod
    def by_entries(cls, bridge: Bridge) -> Taken:
        """Read every entry, Lance or not.

        Raises:
            LanceNamespaceError: some of them cannot be read.
        """
        namespaces = list(innermost_namespaces(bridge))
        with ThreadPoolExecutor(_THREADS) as threads:
            pages = list(threads.map(lambda each: _records(bridge, each), namespaces))
        records = [record for page in pages for record in page]
        unreadable = [display(record.path) for record in records if not record.is_readable]
        if unreadable:
            raise InvalidTableStateError(f"These entries cannot be read: {', '.join(unreadable)}")
        places = {locations.key(record.location) for record in records if record.location}
        return cls(
            frozenset(namespaces),
            frozenset(record.path for record in records),
            frozenset(places),
            frozenset(place[:end] for place in places for end in range(1, len(place))),
        )

    def covers(self, place: Key) -> bool:
        """Return whether an entry is at a place, or around it."""
        return any(place[:end] in self.places for end in range(1, len(place) + 1))


def _records(bridge: Bridge, namespace: Path) -> Iterable[TableRecord]:
    try:
        return list(bridge.catalog.scan_tables(namespace))
    except NamespaceNotFoundError:  # dropped meanwhile
        return []
