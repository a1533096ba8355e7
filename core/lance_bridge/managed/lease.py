"""Leases: of several workers that maintain a catalog, one at a time works on a table.

A lease is a property of the entry, set by compare-and-set: its holder, and when it was set. Its
holder renews it; if the holder dies, it ends by its age, by the clocks of the clients.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from ..entry import TableEntry
from ..errors import concurrent_modification, retry_after_readback
from ..records import GUARD, LEASE

LEASE_SECONDS = 300.0
"""How long a lease lasts after it was set or renewed."""
RENEW_SECONDS = 60.0
"""How often its holder renews it."""
_ATTEMPTS = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Held:
    """What an entry says of a lease. ``since`` is in milliseconds since 1970."""

    holder: str
    since: int

    @classmethod
    def of(cls, table: TableEntry) -> Held | None:
        """Return the lease of an entry; None if it has none, or an unknown form of one."""
        try:
            fields = json.loads(table.record.properties.get(LEASE, "null"))
            return None if fields is None else cls(str(fields["holder"]), int(fields["since"]))
        except (ValueError, TypeError, KeyError):
            return None

    def to_text(self) -> str:
        """Return the value of the property."""
        return json.dumps({"holder": self.holder, "since": self.since})

    @property
    def is_over(self) -> bool:
        """True after its time, and for one in the far future: it is of a wrong clock."""
        return abs(time.time() * 1000 - self.since) > LEASE_SECONDS * 1000


class Lease:
    """A lease that this process holds on a table, and renews in a thread."""

    def __init__(self, table: TableEntry) -> None:
        """Take the lease. Raises as `leased`."""
        self.holder = uuid.uuid4().hex[:16]
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._lost: LanceNamespaceError | None = None
        table.require_alterable("The lease of")
        table = table.reloaded()
        self._guard = table.record.properties.get(GUARD) or table.connection.catalog.commit_guard(
            table.record
        )
        self._table = self._set(table, is_first=True)
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Renew the lease: after this, it is held for `LEASE_SECONDS`.

        Raises:
            ConcurrentModificationError: (14) it was lost: another worker has it, or the table was
                dropped or renamed.
            LanceNamespaceError: the catalog cannot be read.
        """
        with self._lock:
            if self._lost is None:
                try:
                    self._table = self._set(self._table.reloaded(), is_first=False)
                except (
                    ConcurrentModificationError,
                    NamespaceNotFoundError,
                    TableNotFoundError,
                ) as error:
                    self._lost = error
            if self._lost is not None:
                raise ConcurrentModificationError(
                    f"The lease of table '{self._table.name}' was lost: {self._lost}"
                ) from self._lost

    def end(self) -> None:
        """Give the lease back. If that fails, it ends by its age."""
        self._ended.set()
        self._thread.join()
        try:
            self._remove(self._table.reloaded())
        except LanceNamespaceError as error:
            logger.info("the lease of %s ends by its age: %s", self._table.name, error)

    def _keep(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self.check()
            except ConcurrentModificationError:
                return
            except LanceNamespaceError as error:
                logger.info("the lease of %s was not renewed: %s", self._table.name, error)

    def _set(self, table: TableEntry, *, is_first: bool) -> TableEntry:
        for _ in range(_ATTEMPTS):
            held = Held.of(table)
            is_own = held is not None and held.holder == self.holder
            if not is_own and not (is_first and (held is None or held.is_over)):
                raise ConcurrentModificationError(
                    f"Table '{table.name}' is maintained by another worker"
                )
            wanted = Held(self.holder, time.time_ns() // 1_000_000).to_text()
            try:
                return self._alter(table, {LEASE: wanted, GUARD: self._guard})
            except ConcurrentModificationError:
                table = table.reloaded()
        raise concurrent_modification(table.path)

    def _remove(self, table: TableEntry) -> None:
        for _ in range(_ATTEMPTS):
            held = Held.of(table)
            if held is None or held.holder != self.holder:
                return
            try:
                self._alter(table, {})
            except ConcurrentModificationError:
                table = table.reloaded()
            else:
                return

    def _alter(self, table: TableEntry, own: dict[str, str]) -> TableEntry:
        """Replace the lease of an entry; a guard that an entry only has for it goes with it."""
        removed = {LEASE} if table.record.is_managed else {LEASE, GUARD}
        kept = {key: text for key, text in table.record.properties.items() if key not in removed}
        changed = table.with_record(table.record.with_properties({**kept, **own}))
        catalog = table.connection.catalog
        retry_after_readback(
            lambda: catalog.alter_table(changed.record),
            lambda: catalog.load_table(table.path).properties.get(LEASE) == own.get(LEASE),
        )
        return table.reloaded() if own else changed


@contextmanager
def leased(table: TableEntry) -> Iterator[Lease]:
    """Hold the lease of a table in the block.

    Raises:
        ConcurrentModificationError: (14) another worker holds it.
        UnsupportedOperationError: (0) the catalog cannot compare and set the entry.
        InvalidTableStateError: (19) this release does not know how the entry is compared.
        TableNotFoundError: (4) the table was dropped concurrently.
    """
    lease = Lease(table)
    try:
        yield lease
    finally:
        lease.end()
