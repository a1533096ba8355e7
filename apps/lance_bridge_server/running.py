"""Running a server: uvicorn, in this process or in several."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from .configuration.settings import ServerSettings, TlsSettings
from .configuration.source import SettingsSource
from .factory import app_from_source
from .listeners import tls_context
from .listening import http_options
from .logs import log_config

_WORKER_SECONDS = 60
"""How long a worker process may not answer before it is replaced. It does not while it imports
what it needs: with uvicorn's 5 seconds, a busy machine would end each one before it has begun."""


def run(
    app: ASGIApp, source: SettingsSource, settings: ServerSettings, sockets: Sequence[socket.socket]
) -> None:
    """Serve until SIGTERM or SIGINT: requests are then completed, up to `stop_seconds`.

    Args:
        app: What to serve if one process does. Several make their own from the source.
    """
    for each in (signal.SIGTERM, signal.SIGINT):
        # uvicorn stops at these, and then sends itself the same signal again.
        signal.signal(each, _ignore)
    if settings.workers == 1:
        config = uvicorn_config(app, settings, log=log_config(settings.log))
        uvicorn.Server(config).run(list(sockets))
        return
    config = uvicorn_config(
        partial(app_from_source, source), settings, log=log_config(settings.log), factory=True
    )
    Multiprocess(config, list(sockets)).run()


def _ignore(*_: object) -> None:
    pass


def uvicorn_config(
    app: Any,
    settings: ServerSettings,
    *,
    log: dict[str, Any] | None = None,
    factory: bool = False,
) -> uvicorn.Config:
    """Return the configuration of uvicorn for a server.

    Args:
        app: The application, or with ``factory`` what makes it.
        log: The configuration of `logging`; None leaves it as it is.
    """
    return uvicorn.Config(
        app,
        factory=factory,
        **http_options(settings.limits.connections),
        ws="none",
        workers=settings.workers,
        ssl_context_factory=partial(_tls, settings.tls) if settings.tls else None,
        log_config=log,
        # Its lines would have the query, in which clients send storage options.
        access_log=False,
        server_header=False,
        # A client's own X-Forwarded-For must not make it a trusted proxy.
        proxy_headers=False,
        timeout_graceful_shutdown=settings.stop_seconds,
        timeout_worker_healthcheck=_WORKER_SECONDS,
    )


def _tls(settings: TlsSettings, *_: object) -> ssl.SSLContext:
    return tls_context(settings)
