"""Requests about several catalogs: those that do not respond are left out within a second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from concurrent import futures
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeVar

from lance_namespace.errors import ServiceUnavailableError

from .health import CatalogState
from .threads import fulfil

T = TypeVar("T")

_USUAL_SECONDS = 0.2
"""Calls that take longer have the catalogs probed."""
_STEP_SECONDS = 0.05
_PAUSE_SECONDS = 0.5
"""The least time between two probes for one call."""


@dataclass(frozen=True)
class WatchedCatalog:
    """Waits for calls of a catalog only while it responds to probes.

    A call may well take long: a search reads many tables. A probe takes one short call. All
    catalogs are probed at once, so that several that do not respond take no longer than one.
    """

    state: CatalogState
    all: Collection[CatalogState]
    """The states of all catalogs of the gateway."""

    def check(self) -> None:
        """Implement `lance_bridge_federated.children.Gate`.

        Raises:
            CatalogUnavailableError: (17) the catalog does not respond.
        """
        self.state.check()

    def run(self, call: Callable[[], T]) -> T:
        """Implement `lance_bridge_federated.children.Gate`: make the call in another thread.

        Raises what the call does, and what `check` does. The call then goes on in its thread.
        """
        self.check()
        result: futures.Future[T] = futures.Future()
        run = copy_context().run
        threading.Thread(target=run, args=(fulfil, result, call), daemon=True).start()
        watch, seconds = _Watch(self), _USUAL_SECONDS
        while not futures.wait({result}, seconds).done:
            watch.require_answer()
            seconds = _STEP_SECONDS
        try:
            found = result.result()
        except ServiceUnavailableError:
            self.state.suspect()
            raise
        self.state.note_answer()
        return found

    async def wait_for(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of work that calls the catalog; it is cancelled if that is silent.

        Raises what the work does, and what `check` does.
        """
        self.check()
        task = asyncio.ensure_future(work())
        watch, seconds = _Watch(self), _USUAL_SECONDS
        try:
            while not (await asyncio.wait({task}, timeout=seconds))[0]:
                watch.require_answer()
                seconds = _STEP_SECONDS
        finally:
            task.cancel()
        return task.result()


class _Watch:
    """Has catalogs probed while a call takes long."""

    def __init__(self, catalog: WatchedCatalog) -> None:
        self._catalog = catalog
        self._next_probe = 0.0

    def require_answer(self) -> None:
        """Check that the catalog responds. Raises what `WatchedCatalog.check` does."""
        now = time.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + _PAUSE_SECONDS
            for each in self._catalog.all:
                each.suspect()
        if self._catalog.state.is_silent:
            raise self._catalog.state.error()
