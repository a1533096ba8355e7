"""Fixtures for tests of the Glue adapter: one server, a proxy in front of it, a database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.processes import remove_settings

from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueNamespace

from .catalogs import BUCKET, BUDGETS, Connect


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
