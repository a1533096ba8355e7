"""One connection to a metastore, ready for calls."""

from __future__ import annotations

import ssl
import time
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from thrift.transport.TTransport import TBufferedTransport, TFramedTransport

from ..endpoint import Endpoint
from .http_line import HttpLine
from .protocol import CheckedProtocol
from .security import http_headers, sasl_transport
from .sockets import DeadlineSocket, connect

if TYPE_CHECKING:
    from ..config import HiveConfig

_READ_BUFFER = 65_536


class Connection:
    """An open connection; for one thread at a time.

    ``hms`` and ``catalogs`` are two sets of Thrift bindings over the same wire.
    """

    def __init__(
        self, endpoint: Endpoint, line: DeadlineSocket, protocol: CheckedProtocol, generation: int
    ) -> None:
        self.endpoint = endpoint
        self.generation = generation
        self._line = line
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
    def at_rest(self) -> bool:
        """True where the next call may begin."""
        return self._protocol.at_rest and not self._line.ended

    @property
    def awaits_reply(self) -> bool:
        """True where a request is sent and its reply not read to the end."""
        return not self._protocol.at_rest and self._line.request_sent

    @property
    def may_have_changed_something(self) -> bool:
        """True where a whole request was sent since :meth:`lend`."""
        return self._line.any_request_sent

    @property
    def first_bytes(self) -> bytes:
        """The first bytes that the server ever sent."""
        return self._line.first_bytes

    def lend(self) -> Connection:
        """Note that a new user takes it."""
        self._line.any_request_sent = False
        return self

    def give_back(self) -> None:
        """Note that its user is done."""
        self._last_used = time.monotonic()

    def is_usable(self, max_idle: float) -> bool:
        """Return False where it was idle for too long (seconds) or the server has hung up."""
        return time.monotonic() - self._last_used <= max_idle and self._line.is_alive()

    def close(self) -> None:
        """Close without saying good-bye; never waits."""
        # Not through the layers above: Kerberos' clean-up must not run for a half-made context.
        self._line.close()


@cache
def _hms_client() -> Any:
    from hmsclient.genthrift.hive_metastore import (  # noqa: PLC0415 - a second's import, if needed
        ThriftHiveMetastore,
    )

    return ThriftHiveMetastore.Client


@cache
def _catalogs_client() -> Any:
    from pymetastore.hive_metastore import (  # noqa: PLC0415 - two seconds' import, if needed
        ThriftHiveMetastore,
    )

    return ThriftHiveMetastore.Client


def open_connection(
    endpoint: Endpoint, config: HiveConfig, tls: ssl.SSLContext | None, generation: int
) -> Connection:
    """Connect, encrypt, authenticate and say who calls, within ``client.connect-timeout``.

    Raises:
        OSError, TException, EOFError, ValueError, struct.error: It failed; see :mod:`.faults`.
    """
    deadline = time.monotonic() + config.connect_timeout
    line = connect(
        endpoint.host,
        endpoint.port,
        timeout=config.connect_timeout,
        max_bytes=config.max_message_size,
        tls=None if endpoint.scheme == "http" else tls,
    )
    try:
        line.begin(max(deadline - time.monotonic(), 0.001))
        protocol = CheckedProtocol(
            _layers(line, endpoint, config),
            line,
            timeout=config.timeout,
            max_bytes=config.max_message_size,
        )
        connection = Connection(endpoint, line, protocol, generation)
        _introduce(connection, protocol, config, deadline)
    except BaseException:
        line.close()
        raise
    return connection


def _layers(line: DeadlineSocket, endpoint: Endpoint, config: HiveConfig) -> Any:
    if endpoint.is_http:
        headers = http_headers(config)
        http = HttpLine(line, endpoint, headers, config.max_message_size)
        return TBufferedTransport(http, _READ_BUFFER)
    if config.auth_mechanism != "none":
        return sasl_transport(line, endpoint, config)
    if config.framed:
        return TFramedTransport(line, config.max_message_size)
    return TBufferedTransport(line, _READ_BUFFER)


def _introduce(
    connection: Connection, protocol: CheckedProtocol, config: HiveConfig, deadline: float
) -> None:
    """Tell the metastore on whose behalf calls are made, where it takes our word for it."""
    if config.user is None or connection.endpoint.is_http:
        return
    protocol.timeout = max(deadline - time.monotonic(), 0.001)
    connection.hms.set_ugi(*config.user)
    protocol.timeout = config.timeout
