"""Protection: tables and namespaces that cannot be removed or replaced by mistake.

The property `protected` of a table decides, or else that of its namespace, or of one outside of it.
"""

from __future__ import annotations

from lance_namespace.errors import InvalidTableStateError

from ..catalog import NamespaceRecord, Path, TableRecord
from ..connection import Connection
from ..errors import display
from ..records import PROTECTED


class Protection:
    """The protection of tables and namespaces of a catalog. It reads each namespace once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[Path, NamespaceRecord] = {}

    def require_table(self, record: TableRecord, change: str) -> None:
        """Check that an entry may be removed or replaced.

        Args:
            change: What happens to it, such as ``dropped``.

        Raises:
            InvalidTableStateError: (19) it is protected, or a namespace that it is in.
            LanceNamespaceError: a namespace cannot be read.
        """
        name = display(record.path)
        own = record.properties.get(PROTECTED)
        if own is not None:
            if _is_set(own):
                raise InvalidTableStateError(
                    f"Table '{name}' is protected, and cannot be {change}: set its property "
                    f"'{PROTECTED}' to false first"
                )
            return
        holder = self._protected_namespace(record.path[:-1])
        if holder is not None:
            raise InvalidTableStateError(
                f"Table '{name}' cannot be {change}: the namespace '{display(holder)}' is "
                f"protected. Set the property '{PROTECTED}' of the table to false first"
            )

    def require_namespace(self, path: Path, change: str) -> None:
        """Check that a namespace may be removed or replaced. Raises what `require_table` does."""
        holder = self._protected_namespace(path)
        if holder is not None:
            raise InvalidTableStateError(
                f"Namespace '{display(path)}' cannot be {change}: the namespace "
                f"'{display(holder)}' is protected. Set the property '{PROTECTED}' to false first"
            )

    def note(self, record: NamespaceRecord) -> None:
        """Take a namespace that was read already."""
        self._known[record.path] = record

    def _protected_namespace(self, path: Path) -> Path | None:
        """Return the innermost namespace with the property, from a path outwards, if it is set."""
        for end in range(len(path), 0, -1):
            value = self._load(path[:end]).properties.get(PROTECTED)
            if value is not None:
                return path[:end] if _is_set(value) else None
        return None

    def _load(self, path: Path) -> NamespaceRecord:
        if path not in self._known:
            self._known[path] = self._connection.catalog.load_namespace(path)
        return self._known[path]


def _is_set(value: str) -> bool:
    """Return whether a value protects. One that another tool wrote, such as ``yes``, does."""
    return value.lower() != "false"
