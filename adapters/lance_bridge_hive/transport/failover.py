"""Which of several metastores to ask: the last that answered, and not one that just failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from ..endpoint import Endpoint

_REMEMBERED = 10.0
"""Seconds for which a failure counts against an endpoint."""


class Failover:
    """The endpoints of one pool and how they last behaved. Safe to share between threads."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._lock = threading.Lock()
        self._order = list(endpoints)
        self._failed: dict[Endpoint, float] = {}
        self._answered: set[Endpoint] = set()

    def candidates(self) -> list[Endpoint]:
        """Return all endpoints, the most promising first; recent failures come last."""
        now = time.monotonic()
        with self._lock:
            return sorted(
                self._order, key=lambda e: now - self._failed.get(e, -_REMEMBERED) < _REMEMBERED
            )

    def worked(self, endpoint: Endpoint) -> None:
        """Note that ``endpoint`` answered: it is asked first from now on."""
        with self._lock:
            self._failed.pop(endpoint, None)
            if self._order[0] != endpoint:
                self._order.remove(endpoint)
                self._order.insert(0, endpoint)

    def answered(self, endpoint: Endpoint) -> None:
        """Note that ``endpoint`` answered a call."""
        with self._lock:
            self._answered.add(endpoint)

    def has_answered(self, endpoint: Endpoint) -> bool:
        """Return whether ``endpoint`` ever answered a call: then it and the settings fit."""
        with self._lock:
            return endpoint in self._answered

    def failed(self, endpoint: Endpoint) -> None:
        """Note that ``endpoint`` did not answer as it should."""
        with self._lock:
            self._failed[endpoint] = time.monotonic()
