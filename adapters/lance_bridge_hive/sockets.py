"""A TCP or TLS socket with a deadline and a size limit for every exchange.

Thrift's own sockets limit the wait for each read, not for the whole reply: a server that sends
single bytes could block a caller forever. They also log every failed connect as an error.
"""

from __future__ import annotations

import io
import logging
import os
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

from thrift.transport.TTransport import TTransportException

from lance_bridge.attempts import connect_within_attempt
from lance_bridge.errors import invalid

from .config import HiveConfig

logger = logging.getLogger(__name__)

A = TypeVar("A")
R = TypeVar("R")

_CHUNK = 262_144
_KEPT = 16
_SLACK = 1.1
_SLOW_CONNECT = 1.5
"""Seconds after which it is logged that a connection attempt is still waiting."""


class DeadlineSocket:
    """A connected socket, as Thrift's layered transports and ``http.client`` require it.

    A deadline may be exceeded by a tenth.

    It handles one exchange at a time, which :meth:`begin` starts. A request counts as sent once the
    operating system has accepted all its bytes: before that, the server cannot have processed it.
    """

    def __init__(self, sock: socket.socket, max_bytes: int) -> None:
        self._sock = sock
        self._arrivals = select.poll()
        self._arrivals.register(sock, select.POLLIN)
        self._max_bytes = max_bytes
        self._deadline = 0.0
        self._allowed = 0.0
        self._received = 0
        self.request_sent = False
        """Whether the request of the current exchange was sent."""
        self.any_request_sent = False
        """Like ``request_sent``, for all exchanges since its user last set it to False."""
        self.first_bytes = b""
        """The first bytes received, which show the server's protocol."""
        self.ended = False
        """Whether the server has announced that it accepts no further request."""

    def begin(self, seconds: float) -> None:
        """Start an exchange that must end within ``seconds``."""
        self._allowed = seconds
        self._deadline = time.monotonic() + seconds
        self._received = 0
        self.request_sent = False

    def mark_sent(self) -> None:
        """Record that the whole current request was sent."""
        self.request_sent = True
        self.any_request_sent = True

    def is_alive(self) -> bool:
        """Return False if the peer has closed the connection, or sent something unrequested.

        Asks the operating system, not the server. Unrequested bytes are read, not peeked at: they
        make the connection unusable, and TLS must process its own messages.
        """
        if not self._arrivals.poll(0):
            return True
        try:
            self._sock.settimeout(0)
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    # -- called by Thrift's transports ------------------------------------------------------------

    def close(self) -> None:
        """Close without waiting for the peer."""
        self._sock.close()

    def read(self, size: int) -> bytes:
        """Return between 1 and ``size`` bytes.

        Raises:
            TTransportException: END_OF_FILE, TIMED_OUT, SIZE_LIMIT, or UNKNOWN with the socket's
                error as ``inner``.
        """
        chunk = self._run_within_deadline("reply", self._sock.recv, size)
        if not chunk:
            raise TTransportException(
                TTransportException.END_OF_FILE, "the server closed the connection"
            )
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise TTransportException(
                TTransportException.SIZE_LIMIT,
                f"the reply exceeds client.max-message-size={self._max_bytes} bytes",
            )
        if len(self.first_bytes) < _KEPT:
            self.first_bytes = (self.first_bytes + chunk)[:_KEPT]
        return chunk

    def readAll(self, size: int) -> bytes:
        """Return exactly ``size`` bytes, or raise as :meth:`read`.

        Memory is allocated for the received bytes, not for the announced size.
        """
        if size > self._max_bytes:
            raise TTransportException(
                TTransportException.SIZE_LIMIT,
                f"the server announces {size} bytes, more than client.max-message-size",
            )
        pieces = bytearray()
        while len(pieces) < size:
            pieces += self.read(min(size - len(pieces), _CHUNK))
        return bytes(pieces)

    def write(self, data: bytes) -> None:
        """Send everything. Raises TTransportException as :meth:`read`."""
        self.sendall(data)
        self.mark_sent()

    def flush(self) -> None:
        """Do nothing: :meth:`write` has sent everything."""

    # -- called by http.client --------------------------------------------------------------------

    def sendall(self, data: bytes) -> None:
        """Send all data, which may be a part of a request."""
        self._run_within_deadline("request", self._sock.sendall, data)

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - http.client passes "rb"
        """Return a stream over :meth:`read`; closing it leaves the socket open."""
        return io.BufferedReader(_Stream(self))

    # ---------------------------------------------------------------------------------------------

    def _set_timeout(self, remaining: float) -> None:
        """Set the timeout of the next wait, unless the current one is close enough.

        Setting it costs a system call, and each metastore call waits twice.
        """
        current = self._sock.gettimeout() or 0.0
        if not remaining <= current <= remaining * _SLACK:
            self._sock.settimeout(remaining)

    def _run_within_deadline(self, what: str, operation: Callable[[A], R], argument: A) -> R:
        """Run a socket operation within the deadline; raise TTransportException."""
        remaining = self._deadline - time.monotonic()
        try:
            if remaining <= 0:
                raise TimeoutError
            self._set_timeout(remaining)
            return operation(argument)
        except TimeoutError as error:
            message = f"no complete {what} within {self._allowed:.3g} s"
            raise TTransportException(TTransportException.TIMED_OUT, message, error) from error
        except OSError as error:
            raise TTransportException(
                TTransportException.UNKNOWN, f"{what}: {describe(error)}", error
            ) from error


class _Stream(io.RawIOBase):
    def __init__(self, sock: DeadlineSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io passes
        try:
            chunk = self._sock.read(len(buffer))
        except TTransportException as error:
            if error.type == TTransportException.END_OF_FILE:
                return 0
            raise
        buffer[: len(chunk)] = chunk
        return len(chunk)


def describe(error: OSError) -> str:
    """Return a short text for a socket's error."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error.strerror or error}"
    return (error.strerror or str(error) or type(error).__name__).lower()


def connect(
    host: str,
    port: int,
    *,
    timeout: float,
    max_bytes: int,
    tls: ssl.SSLContext | None,
) -> DeadlineSocket:
    """Open a connection to the first address of ``host`` that answers.

    ``timeout`` (seconds) covers all addresses and the TLS handshake. The operating system resolves
    the name, with its own time limit.

    Raises:
        OSError: No address answered (the last one's error), or the TLS handshake failed.
    """
    deadline = time.monotonic() + timeout
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError(f"{host} has no address")
    for position, (family, socket_type, protocol, _, address) in enumerate(addresses):
        share = max(deadline - time.monotonic(), 0.001) / (len(addresses) - position)
        share = connect_within_attempt(share)
        sock = socket.socket(family, socket_type, protocol)
        try:
            _connect(sock, address, share, f"{host}:{port}")
            refuse_self_connection(sock)
        except OSError as error:
            sock.close()
            failure = error
            continue
        return DeadlineSocket(_configure(sock, host, deadline, tls), max_bytes)
    raise failure


def _connect(sock: socket.socket, address: Any, seconds: float, name: str) -> None:
    """Connect within ``seconds``; log if that is slow, as when a firewall drops packets.

    Raises:
        OSError: It failed, or took too long (TimeoutError).
    """
    started = time.monotonic()
    sock.settimeout(min(seconds, _SLOW_CONNECT))
    try:
        sock.connect(address)
    except TimeoutError as error:
        left = seconds - (time.monotonic() - started)
        if left <= 0 or error.errno is not None:  # only the operating system's timeout has an errno
            raise
    else:
        return
    logger.warning(
        "%s has not answered for %g s; waiting up to %.0f s for a connection "
        "(client.connect-timeout)",
        name, _SLOW_CONNECT, seconds,
    )  # fmt: skip
    # The operating system continues to connect; the socket becomes writable when it is done.
    done = select.poll()
    done.register(sock, select.POLLOUT)
    if not done.poll(left * 1000):
        raise TimeoutError("timed out")
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def refuse_self_connection(sock: socket.socket) -> None:
    """Raise ConnectionRefusedError if the system has connected the socket to itself.

    That happens on a free port that is also used for outgoing connections. If such a socket stayed
    open, a restarting server could not use its own port.
    """
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError("connection refused")


def _configure(
    sock: socket.socket, host: str, deadline: float, tls: ssl.SSLContext | None
) -> socket.socket:
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is None:
            return sock
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        return tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


# -- TLS -------------------------------------------------------------------------------------------


def tls_context(config: HiveConfig) -> ssl.SSLContext | None:
    """Return the TLS context, or None without encryption.

    Raises:
        InvalidInputError: a file of ``tls.*`` cannot be read or is malformed.
    """
    if not (config.tls_enabled or any(e.scheme == "https" for e in config.endpoints)):
        return None
    try:
        context = ssl.create_default_context(cafile=config.tls_ca_file)
    except (OSError, ValueError) as error:
        raise invalid(f"tls.ca-file: cannot read certificates ({_reason(error)})") from error
    if not config.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.tls_cert_file is not None:
        try:
            # An empty password: without it, OpenSSL would ask on the terminal.
            context.load_cert_chain(config.tls_cert_file, config.tls_key_file, password="")
        except (OSError, ValueError) as error:
            raise invalid(
                "tls.cert-file, tls.key-file: cannot read a certificate and its unencrypted key "
                f"({_reason(error)})"
            ) from error
    return context


def _reason(error: OSError | ValueError) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or type(error).__name__)
