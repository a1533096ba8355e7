"""The health of a server's catalogs: whether they respond, and what ends for those that do not.

The breaker refuses calls to a catalog that does not respond, reads that wait for it end, and
requests about several catalogs leave it out within a second.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar

import anyio
import anyio.to_thread
from lance_namespace import LanceNamespace
from lance_namespace.errors import ErrorCode, ServiceUnavailableError
from pydantic import ConfigDict

from lance_bridge.config import Seconds
from lance_bridge_federated.probes import (
    PAUSE_SECONDS,
    STEP_SECONDS,
    TIMEOUT_SECONDS,
    USUAL_SECONDS,
    call_while,
    probe,
)

from ..errors import public_text

_log = logging.getLogger(__name__)

OK = "OK"
_NO_ANSWER = "NO_ANSWER"
_DOWN = (_NO_ANSWER, ErrorCode.SERVICE_UNAVAILABLE.name)
"""States of a catalog to which no call is made."""
_LONG_SECONDS = 10.0
"""How long a probe waits for the reply of a catalog that is down: one that hangs would be kept from
recovering by the connections of many short ones."""
_PROBES = 3
"""From how many probes it is known how long one takes."""
_PATIENCE_SECONDS = 0.5
"""How long requests about several catalogs wait for a probe of one that has responded before."""


@dataclass(frozen=True)
class ReadinessSettings:
    """How `/readyz` checks catalogs."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    all_catalogs: bool = False
    """Whether a server is ready only if all catalogs respond. By default one is enough: a server
    that is not ready gets no requests, which makes the other catalogs unreachable too."""
    timeout: Seconds = TIMEOUT_SECONDS
    """How many seconds a catalog may take to respond."""
    keep: Seconds = 5.0
    """How many seconds a result is cached."""


class CatalogHealth:
    """Requests one namespace from each catalog concurrently, and caches the results."""

    def __init__(self, catalogs: Mapping[str, LanceNamespace], settings: ReadinessSettings) -> None:
        self._settings = settings
        self.catalogs = {
            name: CatalogState(name, each, settings.timeout) for name, each in catalogs.items()
        }
        self._good_until = 0.0
        self._lock = anyio.Lock()

    def begin(self) -> None:
        """Probe each catalog in threads, so that the first requests know which ones respond."""
        for each in self.catalogs.values():
            each.suspect()

    async def states(self) -> Mapping[str, str]:
        """Return the state of each catalog: ``OK``, the name of an error code, or ``NO_ANSWER``."""
        async with self._lock:
            if time.monotonic() >= self._good_until:
                await anyio.to_thread.run_sync(self._read)
                self._good_until = time.monotonic() + self._settings.keep
        return {name: each.state for name, each in self.catalogs.items()}

    def silent(self) -> set[str]:
        """Return the catalogs that do not respond, as far as is known."""
        known = self.catalogs.items()
        return {name for name, each in known if each.is_silent or each.state != OK}

    async def silent_now(self) -> set[str]:
        """Return the catalogs that do not respond at this time. It does not wait for long."""
        await anyio.to_thread.run_sync(self._read_now)
        return self.silent()

    def _read_now(self) -> None:
        asked = [each for each in self.catalogs.values() if not each.is_open]
        deadline = time.monotonic() + _PATIENCE_SECONDS + STEP_SECONDS
        for each in asked:
            each.start()
        for each in asked:
            each.wait_patiently(deadline)

    def problems(self) -> Mapping[str, Problem]:
        """Return what is known about each catalog that did not respond, or refused, when asked."""
        found = {name: each.problem for name, each in self.catalogs.items()}
        return {name: problem for name, problem in found.items() if problem is not None}

    def _read(self) -> None:
        asked = [each for each in self.catalogs.values() if not each.is_open]
        deadline = time.monotonic() + self._settings.timeout
        for each in asked:
            each.start()
        for each in asked:
            each.wait(deadline)
            if each.state in _DOWN:
                each.suspect()

    def is_ready(self, states: Mapping[str, str]) -> bool:
        """Return whether enough catalogs respond."""
        answering = [state == OK for state in states.values()]
        return all(answering) if self._settings.all_catalogs else any(answering)

    def close(self) -> None:
        """Stop requesting namespaces."""
        for each in self.catalogs.values():
            each.close()


class CatalogUnavailableError(ServiceUnavailableError):
    """A catalog does not respond, and was not called."""

    retry_after = 1


@dataclass(frozen=True)
class Problem:
    """Why a catalog does not respond."""

    since: datetime
    """When it was found."""
    text: str
    """The message of the latest error, without secrets and addresses."""


class CatalogState:
    """Whether one catalog responds, and the breaker of calls to it. Safe to share between threads.

    A call that fails or takes long does not prove that the catalog is down: a store can be, or one
    table. So it only has the catalog probed. Calls are refused while it does not respond to that.
    Each probe runs in its own thread, because it may outlast the timeout.

    Attributes:
        state: ``OK``, the name of an error code, or ``NO_ANSWER``.
        is_open: Whether calls are refused.
        problem: Why it does not respond; None if it does.
        on_open: Called when calls begin to be refused.
    """

    def __init__(self, name: str, namespace: LanceNamespace, timeout: float) -> None:
        self.name = name
        self.state = OK
        self.is_open = False
        self.problem: Problem | None = None
        self.on_open: Callable[[], object] | None = None
        self.timeout = timeout
        self._namespace = namespace
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._found = OK
        self._error = ""
        self._watcher: threading.Thread | None = None
        self._last_answer = 0.0
        self._asked_at = 0.0
        self._patience: float | None = None  # unknown
        self._taken: deque[float] = deque(maxlen=_PROBES)
        self._closed = threading.Event()

    def check(self) -> None:
        """Refuse a call while the catalog does not respond.

        Raises:
            CatalogUnavailableError: (17)
        """
        if self.is_open:
            raise self.error()

    def error(self) -> CatalogUnavailableError:
        """Return the error of a call that is refused."""
        return CatalogUnavailableError(
            f"The catalog '{self.name}' does not respond; it is tried again every half second"
        )

    @property
    def is_silent(self) -> bool:
        """Whether requests about several catalogs leave it out.

        That is so if it is not called, or has not responded to a probe for twice as long as the
        shortest of the last three, but half a second at least. One that never responded has the
        whole timeout.
        """
        if self.is_open:
            return True
        with self._lock:
            is_asked = self._thread is not None and self._thread.is_alive()
            asked_at = self._asked_at
        patience = self.timeout if self._patience is None else self._patience
        late = time.monotonic() - asked_at > patience
        return is_asked and late and self._last_answer < asked_at

    def wait_patiently(self, deadline: float) -> None:
        """Wait for the state until the catalog is silent, or the deadline (of `time.monotonic`)."""
        thread = self._thread
        assert thread is not None
        while thread.is_alive() and not self.is_silent and time.monotonic() < deadline:
            thread.join(STEP_SECONDS)
        if not thread.is_alive():
            self.wait(deadline)
        if self.is_silent or self.state in _DOWN:
            self.suspect()

    def note_answer(self) -> None:
        """Record that the catalog has responded to a call."""
        self._last_answer = time.monotonic()
        self.is_open = False
        if self._patience is None:
            self._taken.append(0.0)
            self._patience = min(self.timeout, _PATIENCE_SECONDS)

    def note(self, has_answered: bool | None) -> None:
        """Record what a call shows: that it has responded, may be down (False), or neither."""
        if has_answered:
            self.note_answer()
        elif has_answered is not None:
            self.suspect()

    def suspect(self) -> None:
        """Probe the catalog, and if it does not respond, refuse calls until it does."""
        with self._lock:
            if self._watcher is None and not self._closed.is_set():
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()

    def _watch(self) -> None:
        while True:
            began = time.monotonic()
            self.start()
            self.wait(began + self.timeout)
            with self._lock:
                is_down = self.state in _DOWN and self._last_answer < began
                self.is_open = is_down
                if not is_down or self._closed.is_set():
                    self._watcher = None
                    return
            if self.on_open is not None:
                with suppress(RuntimeError):  # the server has stopped
                    self.on_open()
            self._closed.wait(max(0.0, began + PAUSE_SECONDS - time.monotonic()))

    def start(self) -> None:
        """Probe the catalog, unless an earlier probe is still running."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._asked_at = time.monotonic()
                self._thread = threading.Thread(target=self._ask, daemon=True)
                self._thread.start()

    def wait(self, deadline: float) -> None:
        """Wait for the state, until the deadline (of `time.monotonic`) at the latest."""
        thread = self._thread
        assert thread is not None
        thread.join(max(0.0, deadline - time.monotonic()))
        state, error = self._found, self._error
        if thread.is_alive():
            error = error or f"It did not respond within {self.timeout:g} s"
            state = self.state if self.state in _DOWN else _NO_ANSWER
        with self._lock:
            changed, self.state = state != self.state, state
            self.problem = self._problem(error) if state != OK else None
        if changed:
            _log.log(logging.INFO if state == OK else logging.WARNING, "%s: %s", self.name, state)

    def _problem(self, text: str) -> Problem:
        since = self.problem.since if self.problem else datetime.now(timezone.utc)
        return Problem(since, public_text(text, ErrorCode.SERVICE_UNAVAILABLE))

    def _ask(self) -> None:
        began = time.monotonic()
        seconds = max(self.timeout, _LONG_SECONDS) if self.is_open else self.timeout
        error = probe(lambda: self._namespace, seconds, self.timeout / 2)
        state = OK if error is None else ErrorCode(error.code).name
        if error is not None and state != self._found:
            # Only internal errors need a traceback.
            cause = error.__cause__ if state == ErrorCode.INTERNAL.name else None
            _log.warning("catalog '%s' does not respond: %s", self.name, error, exc_info=cause)
        if error is None and self.state not in _DOWN:
            # The least of several: a probe that an outage delayed says nothing of the next one.
            self._taken.append(time.monotonic() - began)
            self._patience = min(self.timeout, max(_PATIENCE_SECONDS, 2 * min(self._taken)))
        self._found, self._error = state, str(error or "")

    def close(self) -> None:
        """Stop probing the catalog."""
        self._closed.set()


# -- requests about several catalogs ---------------------------------------------------------------


T = TypeVar("T")


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

    def require_answer(self) -> None:
        """Check that a probe of the catalog has not gone without a response for long.

        Raises:
            CatalogUnavailableError: (17) the catalog does not respond.
        """
        if self.state.is_silent:
            raise self.state.error()

    def run(self, call: Callable[[], T]) -> T:
        """Implement `lance_bridge_federated.children.Gate`: make the call in another thread.

        Raises what the call does, and what `require_answer` does. The call then goes on in its
        thread.
        """
        self.require_answer()
        try:
            found = call_while(_Watch(self).require_answer, call)
        except ServiceUnavailableError:
            self.state.suspect()
            raise
        self.state.note_answer()
        return found

    async def wait_for(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of work that calls the catalog; it is cancelled if that is silent.

        Raises what the work does, and what `require_answer` does.
        """
        self.require_answer()
        task = asyncio.ensure_future(work())
        watch, seconds = _Watch(self), USUAL_SECONDS
        try:
            while not (await asyncio.wait({task}, timeout=seconds))[0]:
                watch.require_answer()
                seconds = STEP_SECONDS
        finally:
            task.cancel()
        return task.result()


class _Watch:
    """Has catalogs probed while a call takes long."""

    def __init__(self, catalog: WatchedCatalog) -> None:
        self._catalog = catalog
        self._next_probe = 0.0

    def require_answer(self) -> None:
        """Check that the catalog responds. Raises what `WatchedCatalog.require_answer` does."""
        now = time.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + PAUSE_SECONDS
            for each in self._catalog.all:
                each.suspect()
        self._catalog.require_answer()


# -- running reads ---------------------------------------------------------------------------------


class RunningReads:
    """The requests that wait for reads of one catalog. Use in the thread of the event loop.

    A change is not ended: its outcome would be unknown. Nor is a query that reads the storage.
    """

    def __init__(self, error: Callable[[], Exception]) -> None:
        """Create it. Args: error: Returns the error of a read that is ended."""
        self._error = error
        self._waiting: dict[asyncio.Task[object], Callable[[], bool] | None] = {}
        self._ended: set[asyncio.Task[object]] = set()

    @contextmanager
    def ending(self, can_end: Callable[[], bool] | None = None) -> Iterator[None]:
        """Raise the error in this task, which waits for a read, when `end` is called.

        Args:
            can_end: Returns whether the read still needs the catalog; None if it always does.
        """
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = can_end
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            if sys.version_info >= (3, 11) and task.uncancel():
                raise  # it was cancelled for another reason as well
            raise self._error() from None
        finally:
            del self._waiting[task]
            self._ended.discard(task)

    def end(self) -> None:
        """End the reads that are waited for. Their threads go on."""
        for task, can_end in self._waiting.items():
            if task not in self._ended and (can_end is None or can_end()):
                self._ended.add(task)
                task.cancel()
