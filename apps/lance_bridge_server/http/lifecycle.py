"""Graceful shutdown of a server process: requests complete, or fail at the deadline.

After the first signal, connections are still accepted for a short time, so that load balancers and
clients with open connections notice the shutdown in advance: `/readyz` reports it, and each
response closes its connection. At the deadline, the remaining requests get an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from starlette.types import ASGIApp, Scope

from ..access.login import KEY_BYTES
from ..errors import unfinished_error
from ..gateway.limits import Admission
from ..monitoring import Metrics
from ..signals import take_recorded_reload

# -- lifecycle -------------------------------------------------------------------------------------


_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STEP_SECONDS = 0.05
_EXIT_SECONDS = 1.0
"""How long threads may run after the last response; only the process's exit stops them."""

Answer = Callable[[Scope, LanceNamespaceError], ASGIApp]
"""Returns the response to a request that ends with an error."""


class ActiveRequest(Protocol):
    """A request that has no whole response yet."""

    task: asyncio.Task[Any] | None
    is_ended: bool


class Lifecycle:
    """Whether a process is stopping, and its active requests."""

    def __init__(
        self,
        drain_seconds: float = 0.0,
        stop_seconds: float = 30.0,
        *,
        handles_signals: bool = False,
    ) -> None:
        """Create one.

        Args:
            drain_seconds: How long connections are accepted after the signal.
            stop_seconds: How long requests may continue after the signal.
            handles_signals: Whether `install` handles signals; else the server handles all of them.
        """
        self._handles_signals = handles_signals
        self.is_stopping = False
        self.connections: Callable[[], int] = lambda: 1
        """Returns how many connections are open."""
        self._drain_seconds = min(drain_seconds, stop_seconds)
        self._stop_seconds = stop_seconds
        self._signals: set[int] = set()
        self._is_server_stopping = False
        self.active: set[ActiveRequest] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- signals -----------------------------------------------------------------------------------

    def install(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Handle this process's signals: SIGTERM, SIGINT and SIGHUP, also an earlier SIGHUP.

        If the same signal, SIGTERM or SIGINT, comes again, all requests end immediately.

        Call in the event loop. Does nothing outside of the main thread.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not self._handles_signals or not is_main:
            return
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            server = signal.getsignal(each)
            if callable(server):
                loop.add_signal_handler(each, self._on_stop, each, server)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._run(reload()))
        if take_recorded_reload():
            self._run(reload())

    def _on_stop(self, number: int, server: Callable[..., object]) -> None:
        if number in self._signals:
            self.end_requests()
            self._stop_server(number, server)
        self._signals.add(number)
        if self.is_stopping:
            return  # Ctrl-C also reaches worker processes, before their parent sends SIGTERM
        self.is_stopping = True
        self._run(self._stop(number, server))

    async def _stop(self, number: int, server: Callable[..., object]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while self.connections() and loop.time() - started < self._drain_seconds:
            await asyncio.sleep(_STEP_SECONDS)
        self._stop_server(number, server)
        await asyncio.sleep(max(0.0, started + self._stop_seconds - loop.time()))
        self.end_requests()

    def _stop_server(self, number: int, server: Callable[..., object]) -> None:
        """Stop the server, only once: after two signals, uvicorn would not end the application."""
        if not self._is_server_stopping:
            self._is_server_stopping = True
            server(number, None)

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- requests ----------------------------------------------------------------------------------

    def end_requests(self) -> None:
        """End active requests: with an error, or by closing the connection of started responses."""
        if self.active:
            _log.warning("Ending %d requests: the stop timeout has passed", len(self.active))
        for each in self.active:
            each.is_ended = True
            if each.task is not None:
                each.task.cancel()

    # -- threads -----------------------------------------------------------------------------------

    def exit_despite_threads(self, running: int) -> None:
        """End the process soon if operations still run in threads, which would keep it alive."""
        if self.is_stopping and running:
            _log.warning("Abandoning %d operations that are still running", running)
            timer = threading.Timer(_EXIT_SECONDS, _exit)
            timer.daemon = True
            timer.start()


def _exit() -> None:
    logging.shutdown()
    os._exit(0)


def stopping_error(scope: Scope) -> ServiceUnavailableError:
    """Return the error for a request that the shutdown ends."""
    state = scope.get("state", {})
    operation = state.get("operation")
    may_change = state.get("is_started", False) and not operation.is_read
    outcome = f"the outcome of {operation.name}" if may_change else ""
    return unfinished_error("The server is stopping", outcome, may_change=may_change)


# -- state -----------------------------------------------------------------------------------------


def new_session_key() -> bytes:
    """Return a key for `Process.session_key`."""
    return secrets.token_bytes(KEY_BYTES)


@dataclass
class Process:
    """The state of a process that survives reloads of its configuration."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    metrics: Metrics = field(default_factory=Metrics)
    admission: Admission = field(default_factory=Admission)
    session_key: bytes = field(default_factory=new_session_key, repr=False)
    """The key that encrypts cookies if the configuration has none."""
