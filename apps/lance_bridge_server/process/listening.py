"""Protects uvicorn against clients that are slow, hostile or disconnected.

uvicorn waits without limit for a request's headers and for a client that does not read the end of a
response, and it reports its own errors in plain text. The limits here, and why:

- The request line and headers together may have 64 KiB: clients send properties in them. httptools
  has no such limit. h11, uvicorn's other parser, has one, and needs twice the CPU time.
- ``limit_concurrency`` limits only open connections: each takes a file descriptor, and operations
  need those too. If uvicorn applied it, it would respond in plain text.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import uuid
from functools import cache
from http import HTTPStatus
from typing import Any, ClassVar

import uvloop
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..authentication.certificates import STATE_KEY

HEADER_BYTES = 64 << 10
"""The largest request line with headers, in bytes. Up to 256 KiB pass if they arrive in one
piece."""
REQUEST_SECONDS = 20.0
"""How long a connection may be open without a complete request: new, or between two. The TLS
handshake is part of this time."""
KEEP_ALIVE_SECONDS = 15
"""How long a connection stays open without any part of the next request."""
CLOSE_SECONDS = 10.0
"""How long a client may take to read the end of a response before the connection is aborted."""
CHECK_SECONDS = 5.0
"""How often each connection is checked. It may be closed this much later than the limits."""
FILES = 8192
"""How many open files are requested from the system, within its hard limit."""
_SPARE = 64
"""How many connections beyond the limit get a 503; further ones are aborted."""


def raise_file_limit() -> int:
    """Raise this process's limit of open files, and return it.

    Many systems start with 1,024, which is fewer than the connections of a busy server.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


@cache
def connection_limit() -> int:
    """Return how many connections may be open: half of the limit of open files."""
    return max(raise_file_limit() // 2, 1)


def http_options(connections: int | None = None) -> dict[str, Any]:
    """Return uvicorn's options for this protocol.

    Args:
        connections: How many may be open; None for the `connection_limit`.
    """
    return {
        "http": WatchedProtocol,
        "loop": f"{__name__}:{new_event_loop.__name__}",
        "limit_concurrency": connections,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    }


class _EventLoop(uvloop.Loop):
    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = REQUEST_SECONDS
        return await super().create_server(*arguments, **options)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvicorn's usual event loop, with a limit of TLS handshakes in time."""
    return _EventLoop()


class WatchedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits of headers and times, and errors of the specification.

    The client certificate is in the state of requests, because uvicorn lacks ASGI's TLS extension.
    """

    open_connections: ClassVar[int] = 0
    """How many connections this process has open."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unparsed = 0  # bytes since the last complete headers or part of a body
        self._has_headers = False  # whether the headers of the current request are complete
        self._most_connections = self.limit_concurrency or connection_limit()
        self.limit_concurrency = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_cycle: object = None
        # A connection is accepted now; `connection_made` follows the TLS handshake.
        self._idle_since: float | None = self.loop.time()
        self._closing_since: float | None = None

    def connection_made(  # type: ignore[override]  # as uvicorn has it
        self, transport: asyncio.Transport
    ) -> None:
        """Start checking a connection. Refuse it if there are too many."""
        super().connection_made(transport)
        WatchedProtocol.open_connections += 1
        _send_at_once(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        self.app_state = {**self.app_state, STATE_KEY: certificate}
        excess = len(self.connections) - self._most_connections
        if excess > _SPARE:
            transport.abort()
        elif excess > 0:
            self.app = _refuse
        self._timer = self.loop.call_later(CHECK_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking the connection."""
        WatchedProtocol.open_connections -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def _check(self) -> None:
        now = self.loop.time()
        self._timer = self.loop.call_later(CHECK_SECONDS, self._check)
        if self.transport.is_closing() or self._closing_since is not None:
            # asyncio would wait without limit until the client has read all data.
            self._closing_since = self._closing_since or now
            if now - self._closing_since >= CLOSE_SECONDS:
                self.transport.abort()
        elif self._is_busy():
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= REQUEST_SECONDS:
            self._send_error(408, InvalidInputError("The request took too long to arrive"))

    def _is_busy(self) -> bool:
        """Return whether a request is active, or was since the last check."""
        is_new, self._last_cycle = self.cycle is not self._last_cycle, self.cycle
        return is_new or self._is_answering()

    def send_400_response(self, msg: str) -> None:
        """Respond to data that is not HTTP, or to headers that are too large."""
        message = f"{msg.rstrip('.')}: this is not HTTP, or its headers exceed {HEADER_BYTES} bytes"
        self._send_error(400, InvalidInputError(message))

    def _send_error(self, status: int, error: LanceNamespaceError) -> None:
        """Respond without the application, and close the connection."""
        if self._is_answering() and self.cycle.response_started:
            self.transport.abort()  # a started response cannot be replaced by an error
            return
        headers, body = _error_parts(error)
        reason = HTTPStatus(status).phrase.encode()
        lines = [b"HTTP/1.1 %d %s" % (status, reason), *map(b": ".join, headers), b"", body]
        self.transport.write(b"\r\n".join(lines))
        self._close_slowly()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _close_slowly(self) -> None:
        """Close after the client has: it would lose the response if it was still sending."""
        self._closing_since = self.loop.time()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read data from the client, or ignore it after an error."""
        if self._closing_since is not None:
            return
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > HEADER_BYTES:
            self._unparsed = 0
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """Prepare for the headers of a request."""
        self._has_headers = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the request. Ignore trailers, which httptools reports in the same way.

        The application would read them as headers, behind a proxy that has checked only those.
        """
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start a request."""
        self._unparsed = 0
        self._has_headers = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a request's body."""
        self._unparsed = 0
        super().on_body(body)

    def eof_received(self) -> None:
        """Do nothing: asyncio closes the connection after this."""


def _error_parts(error: LanceNamespaceError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    request_id = str(uuid.uuid4())
    context = {"request_id": request_id}
    content = {"code": error.code.value, "error": str(error), "instance": "", "context": context}
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        (b"x-request-id", request_id.encode()),
    ]
    return headers, body


def _send_at_once(transport: asyncio.Transport) -> None:
    """Set TCP_NODELAY, which asyncio does only on sockets that it opened itself.

    Without it, the system delays the body of a response until the client has acknowledged the
    headers, which takes 40 ms.
    """
    opened = transport.get_extra_info("socket")
    if opened.family in (socket.AF_INET, socket.AF_INET6):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - of ASGI
    error = ServiceUnavailableError("The server has too many connections; nothing was changed")
    headers, body = _error_parts(error)
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
