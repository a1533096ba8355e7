"""Which entries share a place: asked before any table's files are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lance_namespace.errors import InvalidTableStateError, NamespaceNotFoundError

from .. import location as locations
from ..bridge import Bridge
from ..catalog import Path, TableRecord
from ..errors import display

_BATCH = 200


class LocationIndex:
    """The places of all entries that DropTable has to care for, read once."""

    def __init__(self, bridge: Bridge, namespaces: Iterable[Path]) -> None:
        """Read the whole catalog, or only ``namespaces``, as `drop.check-sharing` says."""
        everywhere = bridge.config.drop_check == "catalog"
        scope = innermost_namespaces(bridge) if everywhere else sorted(set(namespaces))
        self._places: dict[Path, tuple[str, ...]] = {}
        for each in scope:
            for record in _entries(bridge, each):
                if record.location:
                    self._places[record.path] = locations.key(record.location)

    def refuse_shared(self, record: TableRecord) -> None:
        """Check that a table's location is its own.

        Raises:
            InvalidTableStateError: (19) another entry has, contains or is inside the location.
        """
        if not record.location:
            return
        own = locations.key(record.location)
        for path, place in self._places.items():
            if path != record.path and locations.overlap(own, place):
                raise InvalidTableStateError(
                    f"Table '{display(record.path)}' cannot be dropped with its data: its "
                    f"location {record.location} overlaps that of '{display(path)}'. "
                    "Deregister one of them instead"
                )


def innermost_namespaces(bridge: Bridge, parent: Path = ()) -> Iterator[Path]:
    """Yield the paths of all namespaces that can hold tables, sorted; vanishing ones left out."""
    if len(parent) == bridge.capabilities.levels:
        yield parent
        return
    try:
        children = sorted(bridge.catalog.list_namespaces(parent))
    except NamespaceNotFoundError:
        if not parent:
            raise
        return
    for child in children:
        yield from innermost_namespaces(bridge, (*parent, child))


def _entries(bridge: Bridge, namespace: Path) -> Iterator[TableRecord]:
    try:
        names = sorted(bridge.catalog.list_tables(namespace))
        for start in range(0, len(names), _BATCH):
            yield from bridge.catalog.load_tables(namespace, names[start : start + _BATCH])
    except NamespaceNotFoundError:
        return
