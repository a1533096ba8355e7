"""What the groups of operations share: the bridge they work with, and parsing identifiers."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace import LanceNamespace

from .. import identifier
from .. import location as locations
from ..bridge import Bridge
from ..catalog import Path, TableRecord
from ..entries import tables as entries
from ..managed.state import state_of


class Operations(LanceNamespace):
    """Base of every group: a method parses its request, calls what does the work, and answers."""

    _bridge: Bridge

    def _namespace(self, names: Sequence[str] | None) -> Path:
        return identifier.parse_namespace(names, self._bridge.capabilities)

    def _table(self, names: Sequence[str] | None) -> Path:
        return identifier.parse_table(names, self._bridge.capabilities)

    def _lance_table(self, names: Sequence[str] | None) -> TableRecord:
        """Return a Lance table's entry: the one catalog call of an operation on its inside.

        Raises InvalidInput (13), NamespaceNotFound (1), TableNotFound (4), InvalidTableState (19).
        """
        return entries.load_lance(self._bridge, self._table(names))


def is_managed(record: TableRecord) -> bool | None:
    """Return True where commits go through the namespace, or None."""
    return True if state_of(record) is not None else None


def location_of(record: TableRecord) -> str | None:
    """Return where a table is in the spelling of Lance."""
    return locations.for_lance(record.location) if record.location else None
