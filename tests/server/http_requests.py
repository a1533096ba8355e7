"""Requests of plain HTTP, made short; and bytes, for what no HTTP client would send."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

from lance_bridge.testing.calls import ipc
from lance_bridge_server.operations import OPERATIONS, Body, Operation

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


# -- a valid request for each operation, on any object ---------------------------------------------


_QUERY = {"k": 1, "vector": {"single_vector": [1.0]}}
_STAGED = {"version": 1, "manifest_path": "_versions/1.manifest-x"}
_INDEX = {"column": "id", "index_type": "BTREE"}

_BODIES: dict[str, Any] = {
    "register_table": {"location": "/nowhere/t.lance"},
    "restore_table": {"version": 1},
    "rename_table": {"new_table_name": "renamed"},
    "update_field_metadata": {"updates": [{"path": "id", "metadata": {}}]},
    "create_table_version": _STAGED,
    "describe_table_version": {"version": 1},
    "batch_delete_table_versions": {"ranges": [{"start_version": 1, "end_version": 2}]},
    "alter_table_add_columns": {"new_columns": [{"name": "x", "expression": "1"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "id", "rename": "x"}]},
    "alter_table_drop_columns": {"columns": ["id"]},
    "alter_table_backfill_columns": {"column": "id"},
    "update_table": {"updates": [["id", "1"]]},
    "delete_from_table": {"predicate": "true"},
    "query_table": _QUERY,
    "explain_table_query_plan": {"query": _QUERY},
    "analyze_table_query_plan": _QUERY,
    "create_table_index": _INDEX,
    "create_table_scalar_index": _INDEX,
    "get_table_tag_version": {"tag": "v"},
    "create_table_tag": {"tag": "v", "version": 1},
    "update_table_tag": {"tag": "v", "version": 1},
    "delete_table_tag": {"tag": "v"},
    "create_table_branch": {"name": "b"},
    "delete_table_branch": {"name": "b"},
    "create_materialized_view": {"kind": "query", "source_query": "q", "output_schema": "s"},
    "alter_transaction": {"actions": [{"set_status_action": {"status": "Succeeded"}}]},
}


def operation_named(name: str) -> Operation:
    """Return an operation."""
    return next(each for each in OPERATIONS if each.name == name)


def request_for(operation: Operation, path: list[str]) -> dict[str, Any]:
    """Return the arguments of an HTTP request, as httpx takes them.

    Args:
        path: The table, or the namespace for an operation on namespaces.
    """
    name = operation.name
    names = [*path, "1"] if name.endswith("_transaction") else path
    url = operation.path.replace("{id}", "%24".join(names) or "%24")
    request: dict[str, Any] = {
        "method": operation.method,
        "path": url.replace("{index_name}", "i"),
    }
    if name == "batch_create_table_versions":
        return {**request, "json": {"entries": [{"id": path, **_STAGED}]}}
    if name == "batch_commit_tables":
        return {**request, "json": {"operations": [{"deregister_table": {"id": path}}]}}
    if operation.body is Body.ROWS:
        more = {"params": {"on": "id"}} if name.startswith("merge") else {}
        return {**request, "content": one_row(), "headers": {"Content-Type": ARROW}, **more}
    if operation.body in (Body.JSON, Body.METADATA):
        request["json"] = _BODIES.get(name, {})
    return request
