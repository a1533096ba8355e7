"""Fixtures for tests of the Hive adapter: one metastore, a namespace on it, a database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from lance_namespace import CreateNamespaceRequest, DropNamespaceRequest
from servers.hive_raw import raw_client
from servers.metastores import Metastores
from servers.pools import Connect
from servers.proxy import ThriftProxy

from lance_bridge.config import load
from lance_bridge_hive import HiveConfig, HiveNamespace
from lance_bridge_hive.transport import ClientPool
from lance_bridge_metastore import Metastore


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    """The metastore 2.3 that tests share."""
    return metastores.get("2.3")


@pytest.fixture
def proxy(metastore: Metastore) -> Iterator[ThriftProxy]:
    """A proxy in front of it, which counts calls and breaks those that it is told to."""
    with ThriftProxy("127.0.0.1", metastore.port) as running:
        yield running


@pytest.fixture
def connect(proxy: ThriftProxy) -> Iterator[Connect]:
    """Makes pools behind the proxy."""
    pools: list[ClientPool] = []

    def make(**properties: str) -> ClientPool:
        pools.append(ClientPool(load(HiveConfig, "hive", {"uri": proxy.uri, **properties})))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def namespace(metastore: Metastore) -> Iterator[HiveNamespace]:
    """A namespace straight on the metastore."""
    with HiveNamespace(uri=metastore.uri) as connected:
        yield connected


@pytest.fixture
def database(metastore: Metastore, namespace: HiveNamespace) -> Iterator[str]:
    """A database of the test's own; its entries are dropped afterwards, and no file."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    namespace.create_namespace(CreateNamespaceRequest(id=[name]))
    yield name
    with raw_client(metastore.port) as client:
        for table in client.get_all_tables(name):
            client.drop_table(name, table, False)
    namespace.drop_namespace(DropNamespaceRequest(id=[name], mode="Skip"))


@pytest.fixture(scope="module", params=["2.3", "4.0"])
def server(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    """The shared metastore of a release before, and of one after, Hive 4 changed its rules."""
    return metastores.get(request.param)


@pytest.fixture
def connected(server: Metastore) -> Iterator[HiveNamespace]:
    """A namespace on it."""
    with HiveNamespace(uri=server.uri) as namespace:
        yield namespace


@pytest.fixture
def made(connected: HiveNamespace, server: Metastore, tmp_path: Path) -> Iterator[str]:
    """A database outside of the managed warehouse."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    properties = {"database.location-uri": f"file:{tmp_path}/{name}"}
    connected.create_namespace(CreateNamespaceRequest(id=[name], properties=properties))
    yield name
    with raw_client(server.port) as client:
        for table in client.get_all_tables(name):
            client.drop_table(name, table, False)
    connected.drop_namespace(DropNamespaceRequest(id=[name]))
