"""When to give up: failures in a row that are of a catalog or a storage, and not of tables."""

from __future__ import annotations

import threading

from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError

from lance_bridge.errors import LanceNamespaceError

_OF_ALL_TABLES = (ServiceUnavailableError, UnauthenticatedError)
_MOST_IN_A_ROW = 5


class FailureLimit:
    """Counts failures that would hit all tables: nothing answers. Safe to use from many threads.

    Without it, a thousand tables would each wait for the same timeout.
    """

    def __init__(self, *, stop_on_error: bool = False) -> None:
        """Begin to count.

        Args:
            stop_on_error: Whether one failure of any kind is the limit.
        """
        self._stop_on_error = stop_on_error
        self._in_a_row = 0
        self._lock = threading.Lock()

    def add_success(self) -> None:
        """Note that something answers."""
        with self._lock:
            self._in_a_row = 0

    def is_reached_by(self, error: LanceNamespaceError) -> bool:
        """Note a failure; return whether it is the one to give up after."""
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if isinstance(error, _OF_ALL_TABLES) else 0
            return self._stop_on_error or self._in_a_row >= _MOST_IN_A_ROW
