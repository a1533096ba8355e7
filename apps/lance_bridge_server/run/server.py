"""A server of a configuration: its application, reloads of it, its log, and its processes."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio.to_thread
import uvicorn
from lance_namespace.errors import LanceNamespaceError
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.supervisors import Multiprocess

from ..access.authentication import Anonymous, Authenticator, AuthenticatorChain
from ..access.login import Login
from ..app import create_app
from ..config import ApiKeySettings, LogSettings, OidcSettings, ServerSettings, SettingsSource
from ..gateway.gateway import Gateway
from ..gateway.limits import Admission, RequestCounts
from ..http.lifecycle import Lifecycle, Process, new_session_key
from ..monitoring import REQUEST_ID, forget_process, share_metrics
from ..queries.pool import QueryProcesses
from ..redaction import hide_secrets
from ..signals import record_reloads, take_recorded_reload
from .catalogs import RootSources, connect_callers, connect_catalogs, root_namespace
from .listening import ServedTls, WatchedProtocol, http_options, tls_context

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
        queries=_query_processes(settings),
        sources=RootSources(settings, source.catalogs, callers).of,
        audit=settings.audit.make(),  # last: nothing would close the file if a later step failed
    )


def _query_processes(settings: ServerSettings) -> QueryProcesses | None:
    if not settings.queries.processes:
        return None
    return QueryProcesses(settings.queries, settings.workers)


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
        self._gateway.health.begin()
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
            _log_refused(error)
            return
        made.health.begin()
        before, self._gateway = self._gateway, made
        self._app = create_app(made, self._process)
        _log.info("The configuration was reloaded")
        task = asyncio.ensure_future(_retire(before))
        self._retired[task] = before
        task.add_done_callback(self._retired.pop)


def _log_refused(error: Exception) -> None:
    """Log why a configuration was not reloaded, with the traceback of an unexpected error."""
    is_expected = isinstance(error, (LanceNamespaceError, OSError))
    message = "The configuration was not reloaded; the previous one stays in use: %s"
    _log.error(message, error, exc_info=None if is_expected else error)


async def _retire(gateway: Gateway) -> None:
    """Close a gateway after its last request has ended."""
    while gateway.requests or gateway.running:
        await asyncio.sleep(_STEP_SECONDS)
    await anyio.to_thread.run_sync(gateway.close)


# -- processes -------------------------------------------------------------------------------------


_WORKER_SECONDS = 60
"""How long a worker process may not respond before it is replaced. It does not respond during its
imports: with uvicorn's 5 seconds, a busy machine would end each worker before it has started."""


_END_SECONDS = 2
"""How long the sending of responses may take after `stop_seconds`."""


class Supervisor(Multiprocess):
    """Runs worker processes. They reload the configuration after this process has validated it."""

    def __init__(
        self,
        source: SettingsSource,
        settings: ServerSettings,
        sockets: list[socket.socket],
        counts: Path,
    ) -> None:
        """Args: counts: The file where workers count requests; created here."""
        self._source = source
        self._settings = settings
        self._tls = ServedTls(settings.tls) if settings.tls else None
        self._session_key = new_session_key()
        self._counts_file = counts
        self._counts = RequestCounts(counts)
        log = log_config(settings.log)
        app = self._worker_app(source.pinned())
        config = uvicorn_config(app, settings, self._tls, log=log, factory=True)
        super().__init__(config, sockets)
        if take_recorded_reload():
            self.handle_hup()

    def _worker_app(self, source: SettingsSource) -> Callable[[], ASGIApp]:
        """Return a factory of a worker's application, for the content of a pinned source."""
        return partial(
            _worker_app, source, self._settings, self._tls, self._session_key, self._counts_file
        )

    def handle_hup(self) -> None:
        """Make each worker reload the configuration; see `ReloadingApp`."""
        try:
            source = self._source.pinned()
            gateway_from_source(source, self._tls).close()
        except Exception as error:  # noqa: BLE001 - a package's authorizer may raise anything
            _log_refused(error)
            return
        self.config.app = self._worker_app(source)
        for each in self.processes:
            if each.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have ended, and uncount their active requests."""
        before = {each.pid for each in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {each.pid for each in self.processes}:
            if pid is not None:
                forget_process(pid)
                self._counts.forget_process(pid)


def run(
    gateway: Gateway,
    source: SettingsSource,
    settings: ServerSettings,
    sockets: Sequence[socket.socket],
) -> None:
    """Serve until SIGTERM or SIGINT, and then complete requests for up to `stop_seconds`.

    Call `record_reloads` before, early.

    Args:
        gateway: The gateway for a single process. Worker processes create their own.
    """
    _on_stop(_end_before_start)
    if settings.workers == 1:
        tls = ServedTls(settings.tls) if settings.tls else None
        app = ReloadingApp(gateway, partial(gateway_from_source, source, tls), _process(settings))
        config = uvicorn_config(app, settings, tls, log=log_config(settings.log))
        server = uvicorn.Server(config)
        # uvicorn stops at a signal, and then sends itself the same signal again.
        _on_stop(lambda *_: None if server.should_exit else _end_before_start())
        server.run(list(sockets))
        return
    gateway.close()
    with TemporaryDirectory(prefix="lance-bridge-", ignore_cleanup_errors=True) as directory:
        share_metrics(Path(directory) / "metrics")
        Supervisor(source, settings, list(sockets), Path(directory) / "requests.sqlite").run()


def _worker_app(
    source: SettingsSource,
    settings: ServerSettings,
    tls: ServedTls | None,
    session_key: bytes,
    counts: Path,
) -> ASGIApp:
    record_reloads()
    _stop_with_supervisor()
    process = _process(settings)
    process.admission = Admission(RequestCounts(counts))
    process.session_key = session_key  # a session is valid in every worker
    return app_from_source(source, process, tls)


def _stop_with_supervisor() -> None:
    """Stop this worker process, as SIGTERM does, when the supervisor has ended, also by SIGKILL.

    It would otherwise serve for ever, at an address that no other server could then use.
    """
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return

    def stop() -> None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()


def _process(settings: ServerSettings) -> Process:
    lifecycle = Lifecycle(settings.drain_seconds, settings.stop_seconds, handles_signals=True)
    lifecycle.connections = lambda: WatchedProtocol.open_connections
    return Process(lifecycle)


def _on_stop(handle: Callable[..., None]) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handle)


def _end_before_start(*_: object) -> None:
    """Exit at a signal before uvicorn handles signals: no request is active yet."""
    raise SystemExit(0)


def uvicorn_config(
    app: Any,
    settings: ServerSettings,
    tls: ServedTls | None,
    *,
    log: dict[str, Any] | None = None,
    factory: bool = False,
) -> uvicorn.Config:
    """Return the configuration of uvicorn for a server.

    Args:
        app: The application, or its factory if ``factory`` is set.
        tls: None for connections without TLS.
        log: The configuration of `logging`; None does not configure it.
    """
    return uvicorn.Config(
        app,
        factory=factory,
        **http_options(settings.limits.connections),
        ws="none",
        workers=settings.workers,
        ssl_context_factory=tls.open if tls else None,
        log_config=log,
        # It would contain the query, in which clients send storage options.
        access_log=False,
        server_header=False,
        # A client's own X-Forwarded-For must not make it a trusted proxy.
        proxy_headers=False,
        # Requests end before that, see `Lifecycle`.
        timeout_graceful_shutdown=settings.stop_seconds + _END_SECONDS,
        timeout_worker_healthcheck=_WORKER_SECONDS,
    )


# -- log -------------------------------------------------------------------------------------------


_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class TextFormatter(logging.Formatter):
    """Formats records as plain text, without recognisable secrets."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats each record as a JSON object, without recognisable secrets."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hide_secrets(record.getMessage()),
        }
        request_id = REQUEST_ID.get()
        if request_id is not None:
            fields["request_id"] = request_id
        if record.exc_info:
            fields["exception"] = hide_secrets(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False)


def log_config(settings: LogSettings) -> dict[str, Any]:
    """Return the configuration of `logging` for a server's processes."""
    formatter = JsonFormatter if settings.format == "json" else TextFormatter
    handler = {"class": "logging.StreamHandler", "formatter": "line"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": handler},
        "root": {"handlers": ["stderr"], "level": settings.level.upper()},
        # httpx logs every request to an identity provider.
        "loggers": {"httpx": {"level": "WARNING"}},
    }


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
