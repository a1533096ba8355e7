"""The end of a server's process: requests complete, or are answered at its deadline.

After the first signal, connections are still accepted for a moment, so that load balancers and
clients with open connections learn of the end before it comes: `/readyz` says so, and each answer
closes its connection. At the deadline, what is still being answered gets an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..operation_threads import unfinished

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STEP_SECONDS = 0.05
_EXIT_SECONDS = 1.0
"""How long threads have after everything was answered; they cannot be stopped otherwise."""

Answer = Callable[[Scope, LanceNamespaceError], ASGIApp]
"""Returns the answer to a request that is ended by an error."""


@dataclass(eq=False)
class _Active:
    """A request that is being answered."""

    task: asyncio.Task[Any]
    is_ended: bool = False
    has_answer: bool = False


class Lifecycle:
    """Whether a process serves or stops, and the requests that it answers."""

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
            stop_seconds: How long after the signal requests may go on.
            handles_signals: Whether `install` does anything; else the server handles all signals.
        """
        self._handles_signals = handles_signals
        self.is_stopping = False
        self.connections: Callable[[], int] = lambda: 1
        """Returns how many connections are open."""
        self._drain_seconds = min(drain_seconds, stop_seconds)
        self._stop_seconds = stop_seconds
        self._signals: set[int] = set()
        self._is_server_stopping = False
        self._active: set[_Active] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- signals -----------------------------------------------------------------------------------

    def install(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Handle this process's signals: those that end it, and SIGHUP.

        A signal that comes a second time ends all requests at once.

        Call in the event loop. Does nothing in a thread other than the main one.
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

    def _on_stop(self, number: int, server: Callable[..., object]) -> None:
        if number in self._signals:
            self.end_requests()
            self._stop_server(number, server)
        self._signals.add(number)
        if self.is_stopping:
            return  # Ctrl-C reaches worker processes, which their parent then sends SIGTERM, too
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
        """Have the server stop; asked twice, uvicorn would not end the application."""
        if not self._is_server_stopping:
            self._is_server_stopping = True
            server(number, None)

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- requests ----------------------------------------------------------------------------------

    def end_requests(self) -> None:
        """End what is being answered: by an error, or by closing the connection if it has begun."""
        if self._active:
            _log.warning("Ending %d requests: the stop timeout has passed", len(self._active))
        for each in self._active:
            each.is_ended = True
            each.task.cancel()

    async def answer(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, on_end: Answer
    ) -> None:
        """Have an application answer a request, until `end_requests`."""
        task = asyncio.current_task()
        assert task is not None
        active = _Active(task)

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                active.has_answer = True
                if self.is_stopping:
                    closing = (b"connection", b"close")
                    message = {**message, "headers": [*message.get("headers", ()), closing]}
            await send(message)

        self._active.add(active)
        try:
            await app(scope, receive, observed)
        except asyncio.CancelledError:
            if not active.is_ended or active.has_answer:
                raise
            await on_end(scope, stopped(scope))(scope, receive, observed)
        finally:
            self._active.discard(active)

    # -- threads -----------------------------------------------------------------------------------

    def exit_despite_threads(self, running: int) -> None:
        """End the process soon, if operations still run in threads: they would keep it."""
        if self.is_stopping and running:
            _log.warning("Abandoning %d operations that are still running", running)
            timer = threading.Timer(_EXIT_SECONDS, _exit)
            timer.daemon = True
            timer.start()


def _exit() -> None:
    logging.shutdown()
    os._exit(0)


def stopped(scope: Scope) -> ServiceUnavailableError:
    """Return the error for a request that is ended as the server stops."""
    state = scope.get("state", {})
    operation = state.get("operation")
    may_change = state.get("is_started", False) and not operation.is_read
    outcome = f"the outcome of {operation.name}" if may_change else ""
    return unfinished("The server is stopping", outcome, may_change=may_change)


class LifecycleMiddleware:
    """Keeps the requests that are being answered in a `Lifecycle`."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle, on_end: Answer) -> None:
        self._app = app
        self._lifecycle = lifecycle
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._lifecycle.answer(self._app, scope, receive, send, self._on_end)
