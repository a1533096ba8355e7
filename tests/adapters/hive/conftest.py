"""Fixtures for tests of the Hive adapter: one metastore, a namespace on it, a database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from lance_namespace import CreateNamespaceRequest, DropNamespaceRequest
from servers.hive_raw import raw_client
from servers.metastores import Metastores
from servers.pools import Connect
from servers.proxy import ThriftProxy

from lance_bridge.config import load
from lance_bridge_hive import HiveConfig, HiveNamespace
from lance_bridge_hive.embedded import Metastore
from lance_bridge_hive.transport import ClientPool


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
