"""Gateways for tests: in a thread, by policies in files, or as a process that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import lance_namespace as api
import uvicorn
from cli.program import PROGRAM
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from managed import death
from servers.processes import free_port
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from lance_bridge_cli import main
from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.access.policies import CedarAuthorizer
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway
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
            dies_at: A step of `managed.death` at which it kills itself.
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


if __name__ == "__main__":
    death.at(sys.argv.pop(1))
    main()
