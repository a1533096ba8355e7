"""Who may repeat a declaration: the Python thread that made it, and any client once it is old.

A writer declares a table before it writes, and pylance's ``mode="create"`` declares it again when
a failed write is retried. But Lance lets two writers that both create a dataset overwrite each
other, so a declaration must block other writers while its creator may still be writing.
"""

from __future__ import annotations

import threading
import time

from .catalog import RESERVED_PREFIX, TableRecord
from .credentials import CALLER
from .forks import restart_in_children
from .records import ENTRY_ID

DECLARED_AT = RESERVED_PREFIX + "declared_at"
"""When an entry was declared: milliseconds since 1970, by the clock of the client."""

RESERVED = RESERVED_PREFIX + "reserved"
"""Set if a file reserved the location when the entry was added. Writing data does not remove that
file: a location with neither the file nor a version has lost what was there."""


def now() -> str:
    """Return the current time in the format of `DECLARED_AT`."""
    return str(time.time_ns() // 1_000_000)


class _Thread(threading.local):
    """An object of each thread. Unlike the thread's number, it is not used again."""

    def __init__(self) -> None:
        self.token = object()


_thread = _Thread()


def _caller() -> object | None:
    """Return an object of the calling thread, or None if that does not identify the caller.

    LanceDB calls from a pool of threads that Python did not start, and a server runs the requests
    of many clients on a few threads: two writers can use the same thread.
    """
    is_foreign = isinstance(threading.current_thread(), threading._DummyThread)
    return None if is_foreign or CALLER.get() is not None else _thread.token


class Declarations:
    """The recent declarations of one namespace object. ``grace`` is in seconds.

    A forked child has none: it must not repeat a declaration of its parent.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`."""
        self._made: dict[str, tuple[object | None, float]] = {}
        self._lock = threading.Lock()

    def remember(self, record: TableRecord) -> None:
        """Record a declaration of this thread, before the catalog is called."""
        moment = time.monotonic()
        with self._lock:
            self._made = {k: v for k, v in self._made.items() if moment - v[1] <= self.grace}
            self._made[record.properties[ENTRY_ID]] = (_caller(), moment)

    def may_repeat(self, record: TableRecord) -> bool:
        """Return whether this thread may take over a declaration that has no data."""
        maker = self._made.get(record.properties.get(ENTRY_ID, ""))
        if maker is not None and maker[0] is not None and maker[0] == _caller():
            return True
        return self.age(record) > self.grace

    def age(self, record: TableRecord) -> float:
        """Return the seconds since the declaration; infinite if its time is unknown."""
        try:
            declared = int(record.properties.get(DECLARED_AT, "0"))
        except ValueError:
            return float("inf")
        return time.time() - declared / 1000
