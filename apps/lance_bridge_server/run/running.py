"""Runs a server in one process or several, which log to standard error as text or JSON."""

from __future__ import annotations

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

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from ..config import LogSettings, ServerSettings, SettingsSource
from ..gateway.gateway import Gateway
from ..gateway.limits import Admission, RequestCounts
from ..http.process import Lifecycle, Process, new_session_key
from ..monitoring import REQUEST_ID, forget_process, share_metrics
from ..redaction import hide_secrets
from ..signals import record_reloads, take_recorded_reload
from .factory import ReloadingApp, app_from_source, gateway_from_source, log_refused
from .listening import ServedTls, WatchedProtocol, http_options

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
        """Make each worker reload the configuration; see `reloading`."""
        try:
            source = self._source.pinned()
            gateway_from_source(source, self._tls).close()
        except Exception as error:  # noqa: BLE001 - a package's authorizer may raise anything
            log_refused(error)
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
        # Requests end before that, see `lifecycle`.
        timeout_graceful_shutdown=settings.stop_seconds + _END_SECONDS,
        timeout_worker_healthcheck=_WORKER_SECONDS,
    )
