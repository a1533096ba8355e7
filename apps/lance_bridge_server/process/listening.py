"""What uvicorn lacks against clients that are slow, hostile or gone.

uvicorn waits for ever for a request's headers and for a client that does not read the end of an
answer, and it reports its own errors in plain text. The limits here, and why:

- The request line and headers together may have 64 KiB: clients send properties in them. httptools
  has no such limit. h11, uvicorn's other parser, has one, and needs twice the CPU time.
- ``limit_concurrency`` limits only open connections, as each takes a file descriptor, and
  operations need those too. uvicorn's own use of it answers in plain text.
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

from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..authentication.certificates import STATE_KEY

HEADER_BYTES = 64 << 10
"""The largest request line with headers, in bytes. Larger ones pass if they arrive in one piece, of
256 KiB at most."""
REQUEST_SECONDS = 20.0
"""How long a connection may be open without a whole request: new, or between two."""
KEEP_ALIVE_SECONDS = 15
"""How long one that has sent no part of its next request stays open."""
CLOSE_SECONDS = 10.0
"""How long a client may take to read the end of an answer before the connection is cut."""
CHECK_SECONDS = 5.0
"""How often each connection is checked; it may be closed this much later than these limits say."""
FILES = 8192
"""How many open files are asked of the system, within its hard limit."""
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
    """Return how many connections may be open: half of the files that may be."""
    return max(raise_file_limit() // 2, 1)


def http_options(connections: int | None = None) -> dict[str, Any]:
    """Return what uvicorn is to be configured with.

    Args:
        connections: How many may be open. None takes the `connection_limit`.
    """
    return {
        "http": WatchedProtocol,
        "limit_concurrency": connections,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    }


class WatchedProtocol(HttpToolsProtocol):
    """HTTP of uvicorn, with limits of headers and times, and errors as the specification has them.

    Requests have their connection's client certificate in their state: ASGI's own extension for
    that is not in uvicorn.
    """

    open_connections: ClassVar[int] = 0
    """How many connections this process has."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unparsed = 0  # bytes that came since headers were complete, or a part of a body was
        self._most_connections = self.limit_concurrency or connection_limit()
        self.limit_concurrency = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_cycle: object = None
        self._idle_since: float | None = None
        self._closing_since: float | None = None

    def connection_made(  # type: ignore[override]  # as uvicorn has it
        self, transport: asyncio.Transport
    ) -> None:
        """Begin to watch a connection; refuse it if there are too many."""
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
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(CHECK_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        WatchedProtocol.open_connections -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def _check(self) -> None:
        now = self.loop.time()
        self._timer = self.loop.call_later(CHECK_SECONDS, self._check)
        if self.transport.is_closing() or self._closing_since is not None:
            # asyncio would wait for ever until the client has read what was written.
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
        """Return whether a request is being answered, or was since the last check."""
        is_new, self._last_cycle = self.cycle is not self._last_cycle, self.cycle
        return is_new or self._is_answering()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or has headers that are too large."""
        message = f"{msg.rstrip('.')}: this is not HTTP, or its headers exceed {HEADER_BYTES} bytes"
        self._send_error(400, InvalidInputError(message))

    def _send_error(self, status: int, error: LanceNamespaceError) -> None:
        """Answer without the application, and close the connection."""
        if self._is_answering() and self.cycle.response_started:
            self.transport.abort()  # an answer has begun, and cannot be ended as one
            return
        headers, body = _error_parts(error)
        reason = HTTPStatus(status).phrase.encode()
        lines = [b"HTTP/1.1 %d %s" % (status, reason), *map(b": ".join, headers), b"", body]
        self.transport.write(b"\r\n".join(lines))
        self._close_slowly()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _close_slowly(self) -> None:
        """Close when the client does: at once, it would lose the answer if it is still sending."""
        self._closing_since = self.loop.time()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read what the client sends, and ignore it after an error."""
        if self._closing_since is not None:
            return
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > HEADER_BYTES:
            self._unparsed = 0
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        """Begin to answer a request."""
        self._unparsed = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a request's body."""
        self._unparsed = 0
        super().on_body(body)

    def eof_received(self) -> None:
        """Close the connection, as asyncio does after this."""


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
    """Set TCP_NODELAY, which asyncio does not on sockets that others have opened.

    Without, the system holds the body of an answer back until the client has acknowledged its
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
