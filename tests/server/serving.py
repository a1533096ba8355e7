"""Gateways and other applications, on a free port of this machine, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.run.listening import http_options


@contextmanager
def serving(app: ASGIApp, connections: int | None = None) -> Iterator[str]:
    """Serve an application; yield its address.

    Args:
        connections: How many may be open.
    """
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            started.set()

    options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "log_level": "warning"}
    options |= http_options(connections)
    server = Server(uvicorn.Config(app, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert started.wait(30)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def serving_namespace(namespace: Any, **options: Any) -> Iterator[str]:
    """Serve a namespace by a gateway with these options; yield its address."""
    with serving(create_app(Gateway(namespace, **options))) as address:
        yield address
