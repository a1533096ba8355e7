"""Makes the application of a server from its configuration, and makes it again on a reload."""

from __future__ import annotations

import asyncio
import ctypes
import logging
from collections.abc import Callable
from functools import partial

import anyio.to_thread
from lance_namespace.errors import LanceNamespaceError
from starlette.types import ASGIApp, Receive, Scope, Send

from ..access.authentication import Anonymous, Authenticator, AuthenticatorChain
from ..access.login import Login
from ..app import create_app
from ..config import ApiKeySettings, OidcSettings, ServerSettings, SettingsSource
from ..gateway.gateway import Gateway
from ..http.process import Process
from ..queries.pool import QueryProcesses
from .catalogs import RootSources, connect_callers, connect_catalogs, root_namespace
from .listening import ServedTls, tls_context

# -- memory ----------------------------------------------------------------------------------------


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Parameters of ``mallopt``. Source: malloc.h of glibc."""
_ARENAS = 2
_LARGE_BYTES = 4 << 20


def limit_heaps() -> None:
    """Make glibc keep little freed memory. Do nothing with other C libraries.

    By default, glibc has up to eight heaps for each processor, and serves increasingly large
    allocations from them: after some large batches, a server kept 100 MB of freed memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_ARENA_MAX, _ARENAS)
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)


# -- applications ----------------------------------------------------------------------------------


def app_from_environment() -> ASGIApp:
    """Return the application that ``$LANCE_BRIDGE_SERVER_CONFIG`` configures, for any ASGI server.

    Listeners, TLS, workers and the log are configured in that server, and ignored here.

    Raises:
        InvalidInputError: (13) the variable is not set, or the configuration is wrong.
        UnsupportedOperationError: (0) a catalog needs an extra that is not installed.
    """
    return app_from_source(SettingsSource.of_environment())


def app_from_source(
    source: SettingsSource, process: Process | None = None, tls: ServedTls | None = None
) -> ReloadingApp:
    """Return the application of a configuration. Raises what `app_from_environment` does.

    Args:
        tls: The TLS files that a reload replaces.
    """
    gateway = gateway_from_source(source)
    return ReloadingApp(gateway, partial(gateway_from_source, source.unpinned(), tls), process)


def gateway_from_source(source: SettingsSource, tls: ServedTls | None = None) -> Gateway:
    """Read a configuration, and return its gateway. Raises what `app_from_environment` does.

    Args:
        tls: Is updated with the configuration's files, if the whole configuration is valid.
    """
    settings = source.read()
    renewed = tls_context(settings.tls) if tls and settings.tls else None
    gateway = gateway_from_settings(settings, source)
    if tls and settings.tls and renewed:
        tls.renew(settings.tls, renewed)
    return gateway


def gateway_from_settings(settings: ServerSettings, source: SettingsSource) -> Gateway:
    """Return the gateway of a configuration. Raises what `app_from_environment` does."""
    limit_heaps()
    catalogs = connect_catalogs(settings, source.catalogs)
    callers = connect_callers(settings, source.catalogs, catalogs)
    return Gateway(
        root_namespace(settings, catalogs),
        authenticator=authenticator_from_settings(settings),
        authorizer=settings.authorization.make(),
        limits=settings.limits,
        databases=settings.databases,
        catalogs=catalogs,
        readiness=settings.readiness,
        anonymous_metrics=settings.anonymous_metrics,
        ui=settings.ui,
        login=login_from_settings(settings),
        cors=settings.cors,
        hosts=settings.hosts(),
        callers=callers,
        queries=QueryProcesses(settings.queries) if settings.queries.processes else None,
        sources=RootSources(settings, source.catalogs, callers).of,
        audit=settings.audit.make(),  # last: nothing would close the file if a later step failed
    )


def authenticator_from_settings(settings: ServerSettings) -> Authenticator:
    """Return the authenticator of a server.

    Raises:
        InvalidInputError: (13) the file of API keys cannot be read.
    """
    if not settings.authentication:
        return Anonymous()
    methods = [each.make() for each in settings.authentication]
    return AuthenticatorChain(methods, allow_anonymous=settings.allow_anonymous)


def login_from_settings(settings: ServerSettings) -> Login:
    """Return the login of the catalog page.

    Raises:
        InvalidInputError: (13) a file of its settings cannot be read.
    """
    given, methods = settings.login, settings.authentication
    logins = [each.make_login() for each in methods if isinstance(each, OidcSettings)]
    return Login(
        api_keys=[each.make() for each in methods if isinstance(each, ApiKeySettings)],
        providers=[each for each in logins if each is not None],
        address=given.address,
        keys=given.read_keys(),
        seconds=given.seconds,
        idle_seconds=given.idle_seconds,
        failures=given.failures,
    )


# -- reloads ---------------------------------------------------------------------------------------


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
        if self._gateway.queries is not None:
            self._gateway.queries.warm()
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
