"""Requests of plain HTTP, made short; and bytes, for what no HTTP client would send."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

from lance_bridge.testing.build import ipc

ARROW = "application/vnd.apache.arrow.stream"
SECONDS = 30.0
ROWS = pa.table({"id": pa.array(range(3), pa.int64()), "word": ["a", "b", "c"]})


def one_row() -> bytes:
    """Return one row as an Arrow IPC stream."""
    return ipc(pa.table({"id": pa.array([1], pa.int64())}))


def send_rows(http: httpx.Client, path: str, table: pa.Table = ROWS, **more: Any) -> httpx.Response:
    """Send rows to an operation."""
    headers = {"Content-Type": ARROW, **more.pop("headers", {})}
    return http.post(path, content=ipc(table), headers=headers, **more)


def refused(response: httpx.Response, status: int, code: int) -> str:
    """Check that an answer is an error of the specification's form, and return its message."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert body["context"] == {"request_id": response.headers["x-request-id"]}
    assert set(body) == {"code", "error", "instance", "context"}
    return str(body["error"])


def done(response: httpx.Response, status: int = 200) -> Any:
    """Check that an answer is no error, and return its JSON."""
    assert response.status_code == status, response.text
    return response.json() if response.content else None


# -- bytes -----------------------------------------------------------------------------------------


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
