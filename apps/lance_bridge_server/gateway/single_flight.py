"""Equal reads that arrive at the same time are one call of the catalog."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from .threads import fulfil

T = TypeVar("T")


class SingleFlight:
    """Merges equal calls of several threads, without stale results.

    A call that arrives while an equal one runs may not use its result, which may be older than a
    change that the caller has just made. It waits, and all that wait are one call afterwards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, _Flight] = {}

    def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """Return the result of a call that began after this method was called, or raise its error.

        Args:
            key: Equal for calls that have the same result.
        """
        with self._lock:
            running = self._running.get(key)
            flight = running.following if running is not None else None
            is_first = flight is None
            if flight is None:
                flight = _Flight()
                if running is None:
                    self._running[key] = flight
                else:
                    running.following = flight
        if is_first:
            if running is not None:
                running.result.exception()  # wait for its end
            fulfil(flight.result, partial(self._fly, key, flight, call))
        try:
            result: T = flight.result.result()
            return result
        finally:
            del flight  # an error's traceback refers to this frame

    def _fly(self, key: Hashable, flight: _Flight, call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            with self._lock:
                if flight.following is None:
                    del self._running[key]
                else:
                    self._running[key] = flight.following


@dataclass(eq=False)
class _Flight:
    """A call, and the one that begins when it has ended."""

    result: Future[Any] = field(default_factory=Future)
    following: _Flight | None = None
