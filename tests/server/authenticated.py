"""Servers that authenticate, for tests: in a thread, or as the installed program."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import lance_namespace as api
import uvicorn
import yaml
from cli.running import PROGRAM, answer_of

import lance_bridge
from lance_bridge_server.app import create_app
from lance_bridge_server.authentication.api_keys import ApiKeys
from lance_bridge_server.authentication.chain import AuthenticatorChain
from lance_bridge_server.authentication.key_file import ApiKeyFile
from lance_bridge_server.authorization import AllowAll, Decision
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.principals import Authenticator, Principal
from lance_bridge_server.process.factory import authenticator_from_settings, login_from_settings
from lance_bridge_server.process.listeners import ServedTls, addresses_of, open_sockets
from lance_bridge_server.process.running import uvicorn_config

LIST = "/v1/namespace/$/list"
"""A request that needs no table."""


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Seen(AllowAll):
    """Allows everything, and keeps who asked."""

    def __init__(self) -> None:
        self.principals: list[Principal] = []

    def check(
        self,
        principal: Principal,
        operation: str,
        path: tuple[str, ...],
        location: str | None = None,
    ) -> Decision:
        self.principals.append(principal)
        return super().check(principal, operation, path, location)


def one_api_key(file: Path) -> tuple[Authenticator, str]:
    """Make a key by the command, in a new file; return what authenticates by it, and the key."""
    key = answer_of("keys", "add", "tester", "--file", str(file))["key"]
    return AuthenticatorChain([ApiKeys(ApiKeyFile(file))]), key


@dataclass
class Served:
    """A server in a thread of the test."""

    url: str
    seen: Seen = field(default_factory=Seen)
    tls: ServedTls | None = None

    @property
    def last(self) -> Principal:
        return self.seen.principals[-1]


@contextmanager
def serving_settings(
    directory: Path, authenticator: Authenticator | None = None, **settings: Any
) -> Iterator[Served]:
    """Serve a directory with the settings of a configuration file.

    Args:
        authenticator: Instead of the one of the settings.
    """
    listeners = [{"port": 0}]
    known = ServerSettings.model_validate(
        {"catalogs": {"files": {}}, "root": "files", "listeners": listeners, **settings}
    )
    sockets = open_sockets(known.listeners)
    served = Served(addresses_of(sockets, known.tls)[0])
    gateway = Gateway(
        lance_bridge.connect("dir", {"root": str(directory)}),
        authenticator=authenticator or authenticator_from_settings(known),
        authorizer=served.seen,
        limits=known.limits,
        databases=known.databases,
        audit=known.audit.make(),
        login=login_from_settings(known),
    )
    served.tls = ServedTls(known.tls) if known.tls else None
    server = uvicorn.Server(uvicorn_config(create_app(gateway), known, served.tls))
    thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.should_exit = True
        thread.join(30)


def write_config(directory: Path, **content: Any) -> Path:
    """Write a configuration file."""
    path = directory / "server.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@dataclass
class Program:
    """``lance-bridge serve`` in a process of its own."""

    process: subprocess.Popen[str]
    addresses: list[str]
    log: IO[str]
    """What it prints to standard error, which may be more than a pipe takes."""

    @property
    def url(self) -> str:
        return self.addresses[0]

    def stop(self) -> tuple[int, str, str]:
        """End it by SIGTERM; return the exit code, and what it printed after its addresses."""
        self.process.terminate()
        return self.end()

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return what `stop` does."""
        out, _ = self.process.communicate(timeout=150)
        return self.process.returncode, out, self.printed()

    def printed(self) -> str:
        """Return what it has printed to standard error so far."""
        self.log.seek(0)
        return self.log.read()


@contextmanager
def serve(
    *arguments: str, addresses: int = 1, program: Sequence[str] = (PROGRAM,)
) -> Iterator[Program]:
    """Run the program, and wait until it listens."""
    with TemporaryFile("a+") as log:  # each of its processes appends
        process = subprocess.Popen(
            [*program, "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        served = Program(process, [], log)
        try:
            assert process.stdout is not None
            served.addresses += [process.stdout.readline().strip() for _ in range(addresses)]
            assert all(served.addresses), served.end()
            yield served
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its worker processes too
            process.communicate()


def connect(url: str, **properties: str) -> Any:
    """Connect as pylance's own client does."""
    return lance_bridge.connect("rest", {"uri": url, **properties})


def children(url: str, **properties: str) -> Sequence[str]:
    """Return the namespaces in the root, as pylance's own client gets them."""
    request = api.ListNamespacesRequest(id=[])
    found: Sequence[str] = connect(url, **properties).list_namespaces(request).namespaces
    return found
