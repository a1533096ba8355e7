"""Running a server: uvicorn, in this process or in several."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from lance_namespace.errors import LanceNamespaceError
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from ..configuration.settings import ServerSettings
from ..configuration.source import SettingsSource
from ..gateway import Gateway
from ..limits import Admission
from ..monitoring.logs import log_config
from ..monitoring.metrics import forget_process, share_metrics
from ..request_counts import RequestCounts
from .factory import app_from_source, gateway_from_source
from .lifecycle import Lifecycle
from .listeners import ServedTls
from .listening import WatchedProtocol, http_options
from .reloading import ReloadingApp, log_refused
from .shared import Process, new_session_key

_WORKER_SECONDS = 60
"""How long a worker process may not answer before it is replaced. It does not while it imports
what it needs: with uvicorn's 5 seconds, a busy machine would end each one before it has begun."""


_END_SECONDS = 2
"""How long answers may take to be sent after `stop_seconds`."""


class Supervisor(Multiprocess):
    """Worker processes, which read the configuration again where this process can."""

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

    def _worker_app(self, source: SettingsSource) -> Callable[[], ASGIApp]:
        """Return what makes a worker's application, also when the file was broken since."""
        return partial(
            _worker_app, source, self._settings, self._tls, self._session_key, self._counts_file
        )

    def handle_hup(self) -> None:
        """Have each worker read the configuration again; see `reloading`."""
        try:
            source = self._source.pinned()
            gateway_from_source(source, self._tls).close()
        except (LanceNamespaceError, OSError) as error:
            log_refused(error)
            return
        self.config.app = self._worker_app(source)
        for each in self.processes:
            if each.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have ended, and forget what they were doing."""
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
    """Serve until SIGTERM or SIGINT: requests are then completed, up to `stop_seconds`.

    Args:
        gateway: What to serve if one process does. Several make their own from the source.
    """
    signal.signal(signal.SIGHUP, _ignore)
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
    signal.signal(signal.SIGHUP, _ignore)
    process = _process(settings)
    process.admission = Admission(RequestCounts(counts))
    process.session_key = session_key  # a session goes on in whichever worker a request reaches
    return app_from_source(source, process, tls)


def _process(settings: ServerSettings) -> Process:
    lifecycle = Lifecycle(settings.drain_seconds, settings.stop_seconds, handles_signals=True)
    lifecycle.connections = lambda: WatchedProtocol.open_connections
    return Process(lifecycle)


def _ignore(*_: object) -> None:
    pass


def _on_stop(handle: Callable[..., None]) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handle)


def _end_before_start(*_: object) -> None:
    """End at a signal that comes before uvicorn handles signals: no request was answered."""
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
        app: The application, or with ``factory`` what makes it.
        tls: None for connections without TLS.
        log: The configuration of `logging`; None leaves it as it is.
    """
    return uvicorn.Config(
        app,
        factory=factory,
        **http_options(settings.limits.connections),
        ws="none",
        workers=settings.workers,
        ssl_context_factory=tls.open if tls else None,
        log_config=log,
        # Its lines would have the query, in which clients send storage options.
        access_log=False,
        server_header=False,
        # A client's own X-Forwarded-For must not make it a trusted proxy.
        proxy_headers=False,
        # Requests are answered before that, see `lifecycle`.
        timeout_graceful_shutdown=settings.stop_seconds + _END_SECONDS,
        timeout_worker_healthcheck=_WORKER_SECONDS,
    )
