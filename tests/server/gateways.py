"""Gateways for tests, in a thread or as a process that is killed, and requests to them."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import lance_namespace as api
import pyarrow as pa
import uvicorn
from cli.program import PROGRAM
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from managed import crashes
from servers.processes import free_port
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from lance_bridge.testing.calls import ipc
from lance_bridge_cli import main
from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.access.policies import CedarAuthorizer
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.operations import OPERATIONS, Body, Operation
from lance_bridge_server.run.listening import http_options

_TESTS = Path(__file__).parents[1]
_SECONDS = 120.0


@contextmanager
def serve_app(app: ASGIApp, connections: int | None = None) -> Iterator[str]:
    """Serve an application; yield its address.

    Args:
        connections: How many may be open.
    """
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            started.set()

    options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "log_level": "warning"}
    options |= http_options(connections)
    server = Server(uvicorn.Config(app, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert started.wait(30)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def serve_namespace(namespace: Any, **options: Any) -> Iterator[str]:
    """Serve a namespace by a gateway with these options; yield its address."""
    with serve_app(create_app(Gateway(namespace, **options))) as address:
        yield address


# -- policies --------------------------------------------------------------------------------------


class NamedByHeader:
    """Takes the principal, and its groups, from headers."""

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        name = connection.headers.get("x-user")
        groups = connection.headers.get("x-groups", "").split(",")
        if not name:
            return None
        return Principal(name, frozenset(groups) - {""}, "proxy")


def cedar(directory: Path, text: str, check_seconds: float = 1.0) -> CedarAuthorizer:
    """Return an authorizer for policies, which it writes to a file."""
    file = directory / "policies.cedar"
    file.write_text(text)
    return CedarAuthorizer(file, check_seconds)


def memory_namespace(directory: Path, **capabilities: Any) -> MemoryNamespace:
    """Return a namespace whose databases and tables are in memory."""
    able = {"namespace_levels": (rule("database"),), "no_rename": "", "no_alter": ""}
    SERVERS[str(directory)] = MemoryServer(
        capabilities=replace(CAPABILITIES, **{**able, **capabilities})
    )
    return MemoryNamespace(uri=str(directory), root=str(directory / "root"))


def declare(namespace: Any, *tables: str) -> None:
    """Declare tables, given as ``database.table``, and create their databases."""
    for each in tables:
        database, name = each.split(".")
        namespace.create_namespace(api.CreateNamespaceRequest(id=[database], mode="ExistOk"))
        namespace.declare_table(api.DeclareTableRequest(id=[database, name]))


@contextmanager
def clients(namespace: Any, authorizer: Any, **options: Any) -> Iterator[Any]:
    """Serve a namespace; yield a function that returns the HTTP client of a principal."""
    with (
        serve_namespace(
            namespace, authenticator=NamedByHeader(), authorizer=authorizer, **options
        ) as url,
        httpx.Client(base_url=url, timeout=60) as shared,
    ):

        def client_of(name: str, groups: str = "") -> Any:
            headers = {"x-user": name, "x-groups": groups}

            def send(method: str, path: str, **more: Any) -> httpx.Response:
                more["headers"] = {**headers, **more.pop("headers", {})}
                return shared.request(method, path, **more)

            return send

        yield client_of


# -- the installed program -------------------------------------------------------------------------


class GatewayProcess:
    """``lance-bridge serve`` at one port, over any number of starts."""

    def __init__(self, log: Path, *arguments: str) -> None:
        """Args: log: The file that has what it prints to standard error."""
        self._port = free_port()
        self._log = log
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, dies_at: str = "") -> None:
        """Start it, and wait until it listens.

        Args:
            dies_at: A step of `managed.crashes` at which it kills itself.
        """
        program = [sys.executable, "-m", "server.gateways", dies_at] if dies_at else [PROGRAM]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*program, "serve", *self._arguments, "--port", str(self._port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(_TESTS)} if dies_at else None,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == self.url, self._log.read_text()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def await_end(self) -> int:
        """Return the exit code of one that ends by itself.

        Raises:
            subprocess.TimeoutExpired: it does not.
        """
        assert self._process is not None
        return self._process.wait(_SECONDS)

    def restart(self) -> None:
        self.kill()
        self.start()

    def __enter__(self) -> GatewayProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


# -- requests of plain HTTP, and bytes for what no HTTP client would send --------------------------


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


if __name__ == "__main__":
    crashes.at(sys.argv.pop(1))
    main()
