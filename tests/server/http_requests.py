"""Requests of plain HTTP, made short."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa

from lance_bridge.testing.build import ipc

ARROW = "application/vnd.apache.arrow.stream"
ROWS = pa.table({"id": pa.array(range(3), pa.int64()), "word": ["a", "b", "c"]})


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
