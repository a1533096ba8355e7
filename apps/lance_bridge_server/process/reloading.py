"""An application that reads its configuration again on SIGHUP, while it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import anyio.to_thread
from lance_namespace.errors import LanceNamespaceError
from starlette.types import ASGIApp, Receive, Scope, Send

from ..app import create_app
from ..gateway import Gateway
from .shared import Process

_log = logging.getLogger(__name__)

_STEP_SECONDS = 0.2


class ReloadingApp:
    """Serves a gateway, and replaces it on a reload.

    If the configuration cannot be used, that is logged and the previous gateway stays in use.
    Active requests complete with the gateway that they started with; then its connections are
    closed.
    """

    def __init__(
        self, gateway: Gateway, make: Callable[[], Gateway], process: Process | None = None
    ) -> None:
        """Create one.

        Args:
            gateway: The first gateway.
            make: Reads the configuration, and returns its gateway.
            process: The state of this process; by default a new one.
        """
        self._gateway = gateway
        self._make = make
        self._process = process or Process()
        self._app: ASGIApp = create_app(gateway, self._process)
        self._is_reloading = False
        self._is_requested = False
        self._retired: dict[asyncio.Task[None], Gateway] = {}
        """Replaced gateways that still have active requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._process.lifecycle.install(self.reload)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        running = sum(each.running for each in (self._gateway, *self._retired.values()))
        self._process.lifecycle.exit_despite_threads(running)
        if not self._gateway.running:
            self._gateway.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def reload(self) -> None:
        """Read the configuration, and use it from the next request on."""
        self._is_requested = True
        if self._is_reloading:
            return
        self._is_reloading = True
        try:
            while self._is_requested:
                self._is_requested = False
                await self._reload()
        finally:
            self._is_reloading = False

    async def _reload(self) -> None:
        try:
            made = await anyio.to_thread.run_sync(self._make)
        except Exception as error:  # noqa: BLE001 - a package's authorizer may raise anything
            log_refused(error)
            return
        before, self._gateway = self._gateway, made
        self._app = create_app(made, self._process)
        _log.info("The configuration was reloaded")
        task = asyncio.ensure_future(_retire(before))
        self._retired[task] = before
        task.add_done_callback(self._retired.pop)


def log_refused(error: Exception) -> None:
    """Log why a configuration was not reloaded, with the traceback of an unexpected error."""
    is_expected = isinstance(error, (LanceNamespaceError, OSError))
    message = "The configuration was not reloaded; the previous one stays in use: %s"
    _log.error(message, error, exc_info=None if is_expected else error)


async def _retire(gateway: Gateway) -> None:
    """Close a gateway after its last request has ended."""
    while gateway.requests or gateway.running:
        await asyncio.sleep(_STEP_SECONDS)
    await anyio.to_thread.run_sync(gateway.close)
