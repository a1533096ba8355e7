"""Protection: tables and namespaces that cannot be removed or replaced by mistake.

The property `protected` of a table decides, or else that of its namespace.
"""

from __future__ import annotations

from ..catalog import NamespaceRecord, Path, TableRecord
from ..connection import Connection
from ..errors import ProtectedError, display
from ..records import PROTECTED


class RemovalProtection:
    """The protection of tables and namespaces of a catalog. It reads each namespace once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[Path, NamespaceRecord] = {}

    def require_table(self, record: TableRecord, change: str) -> None:
        """Check that an entry may be removed or replaced.

        Args:
            change: What happens to it, such as ``dropped``.

        Raises:
            ProtectedError: (19) it is protected, or its namespace is.
            LanceNamespaceError: the namespace cannot be read.
        """
        name = display(record.path)
        own = record.properties.get(PROTECTED)
        if own is not None:
            if _is_set(own):
                raise ProtectedError(
                    f"Table '{name}' is protected, and cannot be {change}: set its property "
                    f"'{PROTECTED}' to false first"
                )
            return
        namespace = record.path[:-1]
        if self._is_protected(namespace):
            raise ProtectedError(
                f"Table '{name}' cannot be {change}: the namespace '{display(namespace)}' is "
                f"protected. Set the property '{PROTECTED}' of the table to false first"
            )

    def require_namespace(self, path: Path, change: str) -> None:
        """Check that a namespace may be removed or replaced. Raises what `require_table` does."""
        if self._is_protected(path):
            raise ProtectedError(
                f"Namespace '{display(path)}' is protected, and cannot be {change}: set its "
                f"property '{PROTECTED}' to false first"
            )

    def note(self, record: NamespaceRecord) -> None:
        """Take a namespace that was read already."""
        self._known[record.path] = record

    def _is_protected(self, path: Path) -> bool:
        if path not in self._known:
            self._known[path] = self._connection.catalog.load_namespace(path)
        value = self._known[path].properties.get(PROTECTED)
        return value is not None and _is_set(value)


def _is_set(value: str) -> bool:
    """Return whether a value protects. One that another tool wrote, such as ``yes``, does."""
    return value.lower() != "false"
