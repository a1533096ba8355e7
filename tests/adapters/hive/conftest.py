"""Fixtures for tests of the Hive adapter: one metastore, a namespace on it, a database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from servers.hive_entries import raw_client
from servers.metastores import Connect, Metastores
from servers.proxy import ThriftProxy

from lance_bridge.config import load
from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveConfig, HiveNamespace
from lance_bridge_hive.client import ClientPool
from lance_bridge_metastore import Metastore


def open_calls(**properties: str) -> closing[Calls]:
    """Return a client of a metastore as a context manager, which closes it."""
    return closing(Calls(HiveNamespace(**properties)))


@contextmanager
def database_on(metastore: Metastore, calls: Calls, **properties: str) -> Iterator[str]:
    """Make a database; its entries are dropped at the end, and no file."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    calls.create_namespace([name], properties=properties)
    yield name
    with raw_client(metastore.port) as client:
        for table in client.get_all_tables(name):
            client.drop_table(name, table, False)
    calls.drop_namespace([name], mode="Skip")


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    """The metastore 2.3 that tests share."""
    return metastores.get("2.3")


@pytest.fixture
def proxy(metastore: Metastore) -> Iterator[ThriftProxy]:
    """A proxy in front of it, which counts calls and breaks some on demand."""
    with ThriftProxy("127.0.0.1", metastore.port) as running:
        yield running


@pytest.fixture
def connect(proxy: ThriftProxy) -> Iterator[Connect]:
    """Makes pools behind the proxy."""
    with ExitStack() as stack:

        def make(**properties: str) -> ClientPool:
            config = load(HiveConfig, "hive", {"uri": proxy.uri, **properties})
            return stack.enter_context(closing(ClientPool(config)))

        yield make


@pytest.fixture
def calls(metastore: Metastore) -> Iterator[Calls]:
    """A namespace straight on the metastore."""
    with open_calls(uri=metastore.uri) as connected:
        yield connected


@pytest.fixture
def database(metastore: Metastore, calls: Calls) -> Iterator[str]:
    """A database of the test's own."""
    with database_on(metastore, calls) as name:
        yield name


@pytest.fixture(scope="module", params=["2.3", "4.0"])
def server(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    """The shared metastore of a release before, and of one after, Hive 4 changed its rules."""
    return metastores.get(request.param)


@pytest.fixture
def connected(server: Metastore) -> Iterator[Calls]:
    """A namespace on it."""
    with open_calls(uri=server.uri) as calls:
        yield calls


@pytest.fixture
def made(connected: Calls, server: Metastore, tmp_path: Path) -> Iterator[str]:
    """A database outside of the managed warehouse."""
    location = f"file:{tmp_path}/database"
    with database_on(server, connected, **{"database.location-uri": location}) as name:
        yield name
