"""Sockets and TLS of a server."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import ssl
import stat
import uuid
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import uvloop
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lance_bridge.errors import invalid

from ..access.authentication import STATE_KEY
from ..config import Listener, TlsSettings

# -- listeners -------------------------------------------------------------------------------------


_WILDCARDS = ("0.0.0.0", "[::]")


def open_sockets(listeners: Sequence[Listener]) -> list[socket.socket]:
    """Return listening sockets, which worker processes share.

    Raises:
        ServiceUnavailableError: (17) an address is in use, or may not be used.
    """
    opened: list[socket.socket] = []
    try:
        for each in listeners:
            opened.append(_open_unix(each) if each.socket else _open_tcp(each))
    except OSError as error:
        for each_socket in opened:
            each_socket.close()
        where = each.socket or authority(each.host, each.port)
        reason = error.strerror or str(error)
        raise ServiceUnavailableError(f"Cannot listen at {where}: {reason}") from error
    return opened


def _open_tcp(listener: Listener) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=2048)


def _open_unix(listener: Listener) -> socket.socket:
    path = listener.socket
    assert path is not None
    _remove_stale(path)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # No client may connect before the permissions are set.
    mask = os.umask(0o177)
    try:
        opened.bind(str(path))
    finally:
        os.umask(mask)
    path.chmod(int(listener.mode, 8))
    opened.listen(2048)
    return opened


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that has ended. Keep that of a running server."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def addresses_of(sockets: Sequence[socket.socket], tls: TlsSettings | None) -> list[str]:
    """Return the URLs of sockets for clients."""
    return [_address_of(each, "https" if tls else "http") for each in sockets]


def _address_of(opened: socket.socket, scheme: str) -> str:
    if opened.family == socket.AF_UNIX:
        return f"unix:{opened.getsockname()}"
    host, port = opened.getsockname()[:2]
    return f"{scheme}://{authority(host, port)}"


def page_address(addresses: Sequence[str], configured: str | None = None) -> str:
    """Return the address of the catalog page in browsers; empty if there is none.

    Args:
        addresses: As `addresses_of` returns them.
        configured: The address of the server in browsers, if the configuration has one.
    """
    found = configured or next((each for each in addresses if "://" in each), "")
    for wildcard in _WILDCARDS:  # a server listens there, but no browser connects to it
        found = found.replace(f"//{wildcard}:", "//localhost:")
    return f"{found}/ui" if found else ""


def authority(host: str, port: int) -> str:
    """Return a host and a port as in a URL, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ServedTls:
    """TLS of a server, whose files can be replaced while it listens.

    It can be pickled. A worker process that loads it has its own context.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: _RenewableContext | None = None

    def open(self, *_: object) -> ssl.SSLContext:
        """Return the context to listen with: uvicorn's context factory. Raises as `tls_context`."""
        context = _RenewableContext(ssl.PROTOCOL_TLS_SERVER)
        context.current = tls_context(self._settings)
        self._context = context
        return context

    def renew(self, settings: TlsSettings, context: ssl.SSLContext) -> None:
        """Use the context of new settings for new connections."""
        self._settings = settings
        if self._context is not None:
            self._context.current = context

    def __reduce__(self) -> tuple[type[ServedTls], tuple[TlsSettings]]:
        return ServedTls, (self._settings,)


class _RenewableContext(ssl.SSLContext):
    """Creates each connection with another context, which can be replaced.

    A context cannot drop certificate authorities, and loading a key that does not match leaves it
    without a certificate.
    """

    current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*arguments, **options)


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of a server.

    Raises:
        InvalidInputError: (13) a file cannot be read, or does not match the others.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    password = _password(settings.key_password_file)
    try:
        # A function, because OpenSSL would ask at the terminal for a missing password.
        context.load_cert_chain(settings.certificate, settings.key, lambda: password)
    except (OSError, ValueError) as error:
        raise _problem("certificate and tls.key", error) from error
    if settings.client_ca is not None:
        is_required = settings.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(settings.client_ca)
        except (OSError, ValueError) as error:
            raise _problem("client_ca", error) from error
    return context


def _password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _problem("key_password_file", error) from error


def _problem(key: str, error: OSError | ValueError) -> Exception:
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "not in PEM"
    else:
        reason = getattr(error, "strerror", None) or type(error).__name__
    return invalid(f"tls.{key} cannot be used: {reason}")


# -- sockets and TLS -------------------------------------------------------------------------------


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
