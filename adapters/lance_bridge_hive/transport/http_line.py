"""Thrift messages as HTTP requests over one kept-alive connection (Hive 4's HTTP transport).

Thrift's own HTTP client opens a connection per call and does not look at the status.
"""

from __future__ import annotations

import http.client
import io
from collections.abc import Mapping

from thrift.transport.TTransport import TTransportException

from .endpoint import Endpoint
from .sockets import DeadlineSocket


class HttpRefused(TTransportException):  # type: ignore[misc]  # thrift ships no types
    """The server answered with a status other than 200."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(TTransportException.UNKNOWN, f"HTTP status {status} {reason}".strip())
        self.status = status


class HttpLine:
    """What a buffered Thrift transport writes to and reads from; one POST per flush."""

    def __init__(
        self, line: DeadlineSocket, endpoint: Endpoint, headers: Mapping[str, str], max_bytes: int
    ) -> None:
        self._line = line
        self._path = endpoint.path
        self._headers = {
            "Content-Type": "application/x-thrift",
            "Accept": "application/x-thrift",
            "User-Agent": "lance-bridge",
            **headers,
        }
        self._max_bytes = max_bytes
        self._http = http.client.HTTPConnection(endpoint.host, endpoint.port)
        self._http.auto_open = 0
        self._http.sock = line
        self._request = b""
        self._reply = io.BytesIO()

    def isOpen(self) -> bool:
        """Return True: a closed one is thrown away."""
        return True

    def open(self) -> None:
        """Do nothing: the socket is connected before it gets here."""

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
        self._line.close()

    def write(self, data: bytes) -> None:
        """Keep a message until :meth:`flush`."""
        self._request += data

    def flush(self) -> None:
        """Send what was written and take the whole reply.

        Raises:
            HttpRefused: The status is not 200.
            TTransportException: As :meth:`DeadlineSocket.read`, or the reply is not HTTP.
        """
        body, self._request = self._request, b""
        try:
            self._http.request("POST", self._path, body, self._headers)
            self._line.mark_sent()
            response = self._http.getresponse()
            content = response.read(self._max_bytes)
        except http.client.RemoteDisconnected as error:
            raise TTransportException(
                TTransportException.END_OF_FILE, "the server closed the connection"
            ) from error
        except http.client.HTTPException as error:
            raise TTransportException(
                TTransportException.UNKNOWN, f"the reply is not HTTP ({type(error).__name__})"
            ) from error
        if response.status != http.client.OK:
            raise HttpRefused(response.status, response.reason)
        self._reply = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes of the reply. Raises TTransportException at its end."""
        chunk = self._reply.read(size)
        if not chunk:
            raise TTransportException(
                TTransportException.END_OF_FILE, "the reply ended before its message did"
            )
        return chunk

    def readAll(self, size: int) -> bytes:
        """Return exactly ``size`` bytes of the reply, or raise as :meth:`read`."""
        chunk = self._reply.read(size)
        if len(chunk) < size:
            raise TTransportException(
                TTransportException.END_OF_FILE, "the reply ended before its message did"
            )
        return chunk
