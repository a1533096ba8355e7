"""Fixtures for tests of the Glue adapter: one server, a proxy in front of it, catalogs on that."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol

import pytest
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.processes import remove_settings

from lance_bridge.config import load
from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueConfig, GlueNamespace
from lance_bridge_glue.catalog import GlueCatalog

BUDGETS = {"max_retries": "1", "client.connect-timeout": "2", "client.read-timeout": "2"}
"""Limits that let a dead server be noticed within seconds."""
BUCKET = "glue-tests"
DATA_FILE = "data/1f6a43f4-5d0b-4a5e-9d0c-6c1f0a9b7e21.lance"
"""A file in a table's location that is Lance's by its name."""


class Connect(Protocol):
    """Makes namespaces behind the proxy, with small budgets."""

    def __call__(self, **properties: str) -> Calls: ...


def catalog_at(endpoint: str, server: GlueServer, **properties: str) -> GlueCatalog:
    """Return a catalog for the server behind an endpoint; an empty property is left out."""
    given = {**server.properties, **BUDGETS, "endpoint": endpoint, **properties}
    return GlueCatalog(load(GlueConfig, "glue", {k: v for k, v in given.items() if v}))


def raw_table(server: GlueServer, database: str, name: str, **fields: Any) -> dict[str, Any]:
    """Make an entry as others do, and return it as Glue then has it."""
    server.glue.create_table(DatabaseName=database, TableInput={"Name": name, **fields})
    return raw(server, database, name)


def raw(server: GlueServer, database: str, name: str) -> dict[str, Any]:
    """Return an entry as Glue has it."""
    found: dict[str, Any] = server.glue.get_table(DatabaseName=database, Name=name)["Table"]
    return found


def declare(calls: Calls, database: str, name: str = "t") -> None:
    """Declare a table at ``s3://BUCKET/DATABASE/NAME``."""
    place = f"s3://{BUCKET}/{database}/{name}"
    calls.declare_table([database, name], location=place)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what this machine's user has set for AWS out of the tests."""
    remove_settings(monkeypatch)
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/credentials")


@pytest.fixture(scope="session")
def server() -> Iterator[GlueServer]:
    """The server that tests share: Glue, S3 and STS."""
    with GlueServer() as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture
def proxy(server: GlueServer) -> Iterator[HttpProxy]:
    """A proxy in front of it, which counts requests and breaks some on demand."""
    with HttpProxy(server.endpoint) as running:
        yield running


@pytest.fixture
def connect(server: GlueServer, proxy: HttpProxy) -> Iterator[Connect]:
    """Makes namespaces behind the proxy; without a key pair where other credentials are named."""
    given = {
        **server.properties,
        **BUDGETS,
        "endpoint": proxy.endpoint,
        "root": f"s3://{BUCKET}/lake",
        **{f"storage.{k}": v for k, v in server.storage_options.items()},
    }
    with ExitStack() as stack:

        def make(**properties: str) -> Calls:
            kept = {k: v for k, v in {**given, **properties}.items() if v}
            return stack.enter_context(closing(Calls(GlueNamespace(**kept))))

        yield make


@pytest.fixture
def calls(connect: Connect) -> Calls:
    """A namespace behind the proxy."""
    return connect()


@pytest.fixture
def database(server: GlueServer, calls: Calls, proxy: HttpProxy) -> Iterator[str]:
    """A database of the test's own, and those that begin like it; all are dropped afterwards.

    The proxy has counted nothing yet.
    """
    name = f"db_{uuid.uuid4().hex[:12]}"
    calls.create_namespace([name])
    proxy.reset()
    yield name
    for each in server.glue.get_paginator("get_databases").paginate():
        for found in each["DatabaseList"]:
            if found["Name"].startswith(name):
                server.glue.delete_database(Name=found["Name"])
