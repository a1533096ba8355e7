"""Thrift messages as HTTP requests over one kept-alive connection (Hive 4's HTTP transport).

Thrift's own HTTP client opens a connection per call and does not look at the status.
"""

from __future__ import annotations

import http.client
import io
from collections.abc import Mapping
from typing import Any

from thrift.transport.TTransport import TTransportException

from ..endpoint import Endpoint
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

    def isOpen(self) -> bool:
        """Return True: a closed one is thrown away."""
        return True

    def open(self) -> None:
        """Do nothing: the socket is connected before it gets here."""

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def write(self, data: bytes) -> None:
        """Keep a message until :meth:`flush`."""
        self._request += data

    def flush(self) -> None:
        """Send what was written and take the whole reply.

        Raises:
            HttpRefused: The status is not 200.
            TTransportException: As :meth:`DeadlineSocket.read`, or the reply is not HTTP, or the
                server has announced with its last reply that it takes no other request.
        """
        body, self._request = self._request, b""
        if self._line.ended:
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
        request.sock = self._line
        request.request("POST", self._endpoint.path, body, self._headers)
        self._line.mark_sent()

    def _receive(self) -> bytes:
        # HTTPConnection.getresponse would close the socket before the body is read where the server
        # ends the connection with this reply: only sockets of Python's own stay open for that.
        line: Any = self._line  # HTTPResponse needs no more of a socket than makefile()
        response = http.client.HTTPResponse(line, method="POST")
        response.begin()
        if response.status != http.client.OK:
            raise HttpRefused(response.status, response.reason)
        self._line.ended = response.will_close
        return response.read(self._max_bytes)

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
