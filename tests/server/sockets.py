"""Bytes to and from a server, for what no HTTP client would send."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

SECONDS = 30.0


def dial(url: str) -> socket.socket:
    """Return a connection to the server at an address."""
    parts = urlsplit(url)
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), SECONDS)


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    """Return a request line with headers."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return a part of a body that is sent in chunks."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def read_answer(connection: socket.socket) -> tuple[int, Any]:
    """Return the status and the JSON of an answer after which the connection ends."""
    data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    before, _, body = data.partition(b"\r\n\r\n")
    status, *headers = before.decode("latin-1").split("\r\n")
    assert "content-type: application/json" in [each.lower() for each in headers], before
    return int(status.split()[1]), json.loads(body)


def require_refused(connection: socket.socket, status: int, code: int) -> None:
    """Check that an answer is an error of the specification's form."""
    found, body = read_answer(connection)
    assert (found, body["code"]) == (status, code), body
    assert set(body) == {"code", "error", "instance", "context"}


def reset(connection: socket.socket) -> None:
    """End a connection as the system does for a process that was killed with data unread."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
