"""A connection to a metastore: its bindings, Thrift's protocol, and the layers below them."""

from __future__ import annotations

import getpass
import http.client
import io
import ssl
import time
from collections.abc import Mapping
from functools import cache, cached_property
from itertools import count
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException
from thrift.transport.TTransport import (
    TBufferedTransport,
    TFramedTransport,
    TTransportBase,
    TTransportException,
)

from lance_bridge.attempts import within_attempt

from .config import Endpoint, HiveConfig
from .sasl import sasl_transport
from .sockets import DeadlineSocket, connect

_READ_BUFFER = 65_536
_MAX_CONTAINER = 10_000_000
_SEQUENCE_LIMIT = 0x7FFFFFFF


class Connection:
    """An open connection; for one thread at a time.

    ``hms`` and ``catalogs`` are two sets of Thrift bindings over the same wire. ``login`` is the
    configuration with the secrets that it was opened with.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        sock: DeadlineSocket,
        protocol: CheckedProtocol,
        login: HiveConfig,
        generation: int,
    ) -> None:
        self.endpoint = endpoint
        self.login = login
        self.generation = generation
        self._sock = sock
        self._protocol = protocol
        self._last_used = time.monotonic()

    @cached_property
    def hms(self) -> Any:
        """hmsclient's generated client: the calls that work from Hive 2.3 to 4.2."""
        return _hms_client()(self._protocol)

    @cached_property
    def catalogs(self) -> Any:
        """pymetastore's generated client: the calls and fields of Hive 3.1 for catalogs."""
        return _catalogs_client()(self._protocol)

    @property
    def is_idle(self) -> bool:
        """True if the next call may begin."""
        return self._protocol.is_idle and not self._sock.ended

    @property
    def awaits_reply(self) -> bool:
        """True if a request was sent and its reply was not read completely."""
        return not self._protocol.is_idle and self._sock.request_sent

    @property
    def request_was_sent(self) -> bool:
        """True if a whole request was sent since :meth:`lend`."""
        return self._sock.any_request_sent

    @property
    def was_answered(self) -> bool:
        """True if a reply was read since :meth:`lend`, so that a call was made."""
        return self._protocol.replies > 0

    @property
    def first_bytes(self) -> bytes:
        """The first bytes that the server sent over this connection."""
        return self._sock.first_bytes

    def lend(self) -> Connection:
        """Record that a new user borrows it."""
        self._sock.any_request_sent = False
        self._protocol.replies = 0
        return self

    def give_back(self) -> None:
        """Record that its user is done."""
        self._last_used = time.monotonic()

    def is_usable(self, max_idle: float) -> bool:
        """Return False if it was idle for more than ``max_idle`` seconds, or is closed."""
        return time.monotonic() - self._last_used <= max_idle and self._sock.is_alive()

    def close(self) -> None:
        """Close without waiting for the server."""
        self._sock.close()


@cache
def _hms_client() -> Any:
    from hmsclient.genthrift.hive_metastore import (  # noqa: PLC0415 - takes a second to import
        ThriftHiveMetastore,
    )

    return ThriftHiveMetastore.Client


@cache
def _catalogs_client() -> Any:
    from pymetastore.hive_metastore import (  # noqa: PLC0415 - takes two seconds to import
        ThriftHiveMetastore,
    )

    return ThriftHiveMetastore.Client


def open_connection(
    endpoint: Endpoint, config: HiveConfig, tls: ssl.SSLContext | None, generation: int
) -> Connection:
    """Connect, encrypt, authenticate and set the user, within ``client.connect-timeout``.

    Raises:
        OSError, TException, EOFError, ValueError, struct.error: It failed; see :mod:`.errors`.
    """
    timeout = within_attempt(config.connect_timeout)
    deadline = time.monotonic() + timeout
    sock = connect(
        endpoint.host,
        endpoint.port,
        timeout=timeout,
        max_bytes=config.max_message_size,
        tls=None if endpoint.scheme == "http" else tls,
    )
    try:
        sock.begin(max(deadline - time.monotonic(), 0.001))
        protocol = CheckedProtocol(
            _build_transport(sock, endpoint, config),
            sock,
            timeout=config.timeout,
            max_bytes=config.max_message_size,
        )
        connection = Connection(endpoint, sock, protocol, config, generation)
        _set_user(connection, protocol, config, deadline)
    except BaseException:
        sock.close()
        raise
    return connection


def _build_transport(sock: DeadlineSocket, endpoint: Endpoint, config: HiveConfig) -> Any:
    if endpoint.is_http:
        headers = _http_headers(config)
        http = HttpTransport(sock, endpoint, headers, config.max_message_size)
        return TBufferedTransport(http, _READ_BUFFER)
    if config.auth_mechanism != "none":
        return sasl_transport(sock, endpoint, config)
    if config.framed:
        return TFramedTransport(sock, config.max_message_size)
    return TBufferedTransport(sock, _READ_BUFFER)


def _set_user(
    connection: Connection, protocol: CheckedProtocol, config: HiveConfig, deadline: float
) -> None:
    """Send the user of the calls to a metastore that does not authenticate."""
    if config.user is None or connection.endpoint.is_http:
        return
    protocol.timeout = max(deadline - time.monotonic(), 0.001)
    connection.hms.set_ugi(*config.user)
    protocol.timeout = config.timeout


# -- Thrift ---------------------------------------------------------------------------------------


class ReplyMismatch(TProtocolException):  # type: ignore[misc]  # thrift ships no types
    """A reply belongs to another request."""


class CheckedProtocol(TBinaryProtocolAccelerated):  # type: ignore[misc]  # thrift ships no types
    """Numbers requests, checks replies, and starts the deadline of each call.

    ``is_idle`` is True between calls: no request is partly written, no reply partly read.
    """

    def __init__(
        self, transport: Any, sock: DeadlineSocket, *, timeout: float, max_bytes: int
    ) -> None:
        super().__init__(
            transport,
            strictRead=True,
            string_length_limit=max_bytes,
            container_length_limit=min(_MAX_CONTAINER, max_bytes),
        )
        self._sock = sock
        self.timeout = timeout
        """Seconds that a call may take."""
        self.replies = 0
        """How many replies were read; :meth:`Connection.lend` resets it."""
        self._numbers = count(1)
        self._pending_call: tuple[str, int] | None = None

    @property
    def is_idle(self) -> bool:
        """True if the next call may begin."""
        return self._pending_call is None

    def writeMessageBegin(self, name: str, type: int, seqid: int) -> None:  # noqa: ARG002 - Thrift passes it
        """Begin a call; ``seqid`` is replaced by the number of the request."""
        number = next(self._numbers) & _SEQUENCE_LIMIT
        self._pending_call = (name, number)
        self._sock.begin(within_attempt(self.timeout))
        super().writeMessageBegin(name, type, number)

    def readMessageBegin(self) -> tuple[str, int, int]:
        """Begin a reply. Raises ReplyMismatch if it belongs to another request."""
        name, message_type, number = super().readMessageBegin()
        if self._pending_call != (name, number):
            raise ReplyMismatch(
                TProtocolException.INVALID_DATA, "received a reply to another request"
            )
        return name, message_type, number

    def readMessageEnd(self) -> None:
        """End a reply."""
        super().readMessageEnd()
        self._pending_call = None
        self.replies += 1


# -- HTTP -----------------------------------------------------------------------------------------


class HttpRefused(TTransportException):  # type: ignore[misc]  # thrift ships no types
    """The server returned a status other than 200."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(TTransportException.UNKNOWN, f"HTTP status {status} {reason}".strip())
        self.status = status


def _http_headers(config: HiveConfig) -> dict[str, str]:
    """Return the headers that identify the caller by the token, or else by the user's name."""
    if config.http_token is not None:
        return {"Authorization": f"Bearer {config.http_token.get_secret_value()}"}
    return {"x-actor-username": config.user[0] if config.user else _system_user()}


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # Containers run under user ids without a name; Hive requires one.
        return "anonymous"


class HttpTransport(TTransportBase):  # type: ignore[misc]  # thrift ships no types
    """Sends Thrift messages as HTTP requests over one kept-alive connection: one POST per flush.

    Thrift's own HTTP client opens a connection per call and ignores the status.
    """

    def __init__(
        self, sock: DeadlineSocket, endpoint: Endpoint, headers: Mapping[str, str], max_bytes: int
    ) -> None:
        self._sock = sock
        self._endpoint = endpoint
        self._headers = {
            "Content-Type": "application/x-thrift",
            "Accept": "application/x-thrift",
            "User-Agent": "lance-bridge",
            **headers,
        }
        self._max_bytes = max_bytes
        self._request = b""
        self._reply = io.BytesIO()

    def write(self, data: bytes) -> None:
        """Buffer a message until :meth:`flush`."""
        self._request += data

    def flush(self) -> None:
        """Send the buffered message and read the whole reply.

        Raises:
            HttpRefused: The status is not 200.
            TTransportException: As :meth:`DeadlineSocket.read`, or the reply is not HTTP, or the
                server announced with its last reply that it closes the connection.
        """
        body, self._request = self._request, b""
        if self._sock.ended:
            raise TTransportException(
                TTransportException.NOT_OPEN, "the server takes only one request per connection"
            )
        try:
            self._send(body)
            self._reply = io.BytesIO(self._receive())
        except (http.client.RemoteDisconnected, http.client.IncompleteRead) as error:
            raise TTransportException(
                TTransportException.END_OF_FILE, "the server closed the connection"
            ) from error
        except http.client.HTTPException as error:
            raise TTransportException(
                TTransportException.UNKNOWN, f"the reply is not HTTP ({type(error).__name__})"
            ) from error

    def _send(self, body: bytes) -> None:
        request = http.client.HTTPConnection(self._endpoint.host, self._endpoint.port)
        request.auto_open = 0
        request.sock = self._sock
        request.request("POST", self._endpoint.path, body, self._headers)
        self._sock.mark_sent()

    def _receive(self) -> bytes:
        # HTTPConnection.getresponse would close the socket before the body is read if the server
        # closes the connection after this reply: only Python's own sockets stay open for that.
        sock: Any = self._sock  # HTTPResponse calls only makefile()
        response = http.client.HTTPResponse(sock, method="POST")
        response.begin()
        if response.status != http.client.OK:
            raise HttpRefused(response.status, response.reason)
        self._sock.ended = response.will_close
        return response.read(self._max_bytes)

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes of the reply. Raises TTransportException at its end."""
        chunk = self._reply.read(size)
        if not chunk:
            raise TTransportException(
                TTransportException.END_OF_FILE, "the reply ended before its message did"
            )
        return chunk
