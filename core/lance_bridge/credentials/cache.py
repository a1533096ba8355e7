"""Credentials that a catalog vends for a table's storage, cached until they are about to expire."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .catalog import Catalog, TableRecord

EXPIRES_AT = "expires_at_millis"
"""The storage option with the time when the others expire (milliseconds since 1970)."""

_MARGIN_SECONDS = 300.0
_MARGIN_SHARE = 0.2
"""Credentials are refreshed when this share of their life, or the margin, is left if shorter."""
_KEPT = 1000


@dataclass
class _Slot:
    """The credentials for one table and purpose. With its lock, one caller asks for all callers."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    good_until: float = 0.0


class VendedCredentials:
    """Caches the credentials that a catalog vends. Safe to share between threads.

    Options without a time of expiry are not cached.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._slots: OrderedDict[object, _Slot] = OrderedDict()

    def of(self, record: TableRecord, *, write: bool) -> Mapping[str, str]:
        """Return the storage options for a table's location; empty where none are vended.

        Raises what :meth:`Catalog.vend_credentials` raises; nothing is kept of a failure.
        """
        slot = self._slot((record.path, record.location, record.identity, write))
        with slot.lock:
            if time.time() >= slot.good_until:
                options = self._catalog.vend_credentials(record, write=write) or {}
                slot.options, slot.good_until = options, _good_until(options)
            return slot.options

    def _slot(self, key: object) -> _Slot:
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            if len(self._slots) > _KEPT:
                self._slots.popitem(last=False)
            return slot


def _good_until(options: Mapping[str, str]) -> float:
    """Return the time (seconds since 1970) from which new ones are needed."""
    if EXPIRES_AT not in options:
        return 0.0
    expires = int(options[EXPIRES_AT]) / 1000
    life = max(expires - time.time(), 0.0)
    return expires - min(_MARGIN_SECONDS, _MARGIN_SHARE * life)
