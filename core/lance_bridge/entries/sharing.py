"""Which entries share a place: asked before any table's files are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from lance_namespace.errors import (
    InvalidTableStateError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)

from .. import location as locations
from ..bridge import Bridge
from ..catalog import Path, TableRecord
from ..errors import concurrent_modification, display
from .properties import ENTRY_ID

_THREADS = 8
"""Namespaces that are read at once: most catalogs have a call or more for each."""


class LocationIndex:
    """The places of all entries that DropTable has to care for, read once."""

    def __init__(self, bridge: Bridge, namespaces: Iterable[Path]) -> None:
        """Read the whole catalog, or only ``namespaces``, as `drop.check-sharing` says."""
        self._bridge = bridge
        everywhere = bridge.config.drop_check == "catalog"
        scope = innermost_namespaces(bridge) if everywhere else iter(set(namespaces))
        with ThreadPoolExecutor(_THREADS) as threads:
            found = threads.map(lambda each: _places(bridge, each), scope)
            entries = list(chain.from_iterable(found))
        self._places = {path: place for path, place in entries if place is not None}
        self._unreadable = sorted({path for path, place in entries if place is None})

    def refuse_shared(self, record: TableRecord) -> None:
        """Check that a table's location is its own.

        Raises:
            InvalidTableStateError: (19) another entry has, contains or is inside the location, or
                cannot be read, so that it may.
            TableNotFoundError: (4) the other entry is this one, renamed meanwhile.
            ConcurrentModificationError: (14) likewise, and another table has the name by now.
        """
        if not record.location:
            return
        own = locations.key(record.location)
        for path, place in self._places.items():
            if path != record.path and locations.overlap(own, place):
                self._require_unchanged(record)
                raise InvalidTableStateError(
                    f"Table '{display(record.path)}' cannot be dropped with its data: its "
                    f"location {record.location} overlaps that of '{display(path)}'. "
                    "Deregister one of them instead"
                )

        for path in self._unreadable:
            if path != record.path:
                raise InvalidTableStateError(
                    f"Table '{display(record.path)}' cannot be dropped with its data: the entry "
                    f"'{display(path)}' cannot be read, and may be for the same place. Deregister "
                    "the table instead. With drop.check-sharing=namespace, only entries in the "
                    "namespace of the table itself count"
                )

    def _require_unchanged(self, record: TableRecord) -> None:
        found = self._bridge.catalog.load_table(record.path)
        if (found.identity, found.properties.get(ENTRY_ID)) != (
            record.identity,
            record.properties.get(ENTRY_ID),
        ):
            raise concurrent_modification(record.path)


def innermost_namespaces(bridge: Bridge, parent: Path = ()) -> Iterator[Path]:
    """Yield the paths of all namespaces that can hold tables, sorted; vanishing ones left out."""
    if len(parent) == bridge.capabilities.levels:
        yield parent
        return
    try:
        children = list(bridge.catalog.list_namespaces(parent))
    except NamespaceNotFoundError:
        if not parent:
            raise
        return
    for child in children:
        yield from innermost_namespaces(bridge, (*parent, child))


def _places(bridge: Bridge, namespace: Path) -> list[tuple[Path, tuple[str, ...] | None]]:
    """Return each entry of a namespace with its place; none of a namespace that is gone.

    The place is None where the entry cannot be read. Entries without a location are left out.
    A link counts as the entry that it is for: it is no other owner of the place.
    """
    try:
        records = bridge.catalog.scan_tables(namespace)
        return [
            (r.link_path or r.path, locations.key(r.location) if r.location else None)
            for r in records
            if r.location or not r.is_readable
        ]
    except NamespaceNotFoundError:
        return []
    except PermissionDeniedError as error:
        raise PermissionDeniedError(
            f"Nothing is deleted while '{display(namespace)}' may hold an entry for the same place "
            f"and cannot be read: {error}. With drop.check-sharing=namespace, only the namespace "
            "of the table itself is read"
        ) from error
