"""A Hive Metastore to measure, and the raw client of it: hmsclient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hmsclient
import hmsclient.genthrift.hive_metastore.ttypes as hms_types
from servers.proxy import ThriftProxy
from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

import lance_bridge
from bench.fixture import MARKS, NAMESPACE, Fixture, RawCalls, RawClient, fill
from bench.measure import Wire
from bench.subject import Bars, Subject
from lance_bridge.catalog import TableRecord
from lance_bridge_hive import mapping
from lance_bridge_hive.embedded import Metastore

_FILTER = 'hive_filter_field_params__table_type like "(?i)lance"'
_OWN_DATABASES = 1
"""Hive begins with a database of its own, ``default``."""


class HiveClient(RawClient):
    """One open connection: hmsclient, as it comes or at its fastest.

    Args:
        accelerated: Take Thrift's protocol in C instead of the one in Python that hmsclient uses.
    """

    def __init__(self, port: int, *, accelerated: bool = False) -> None:
        protocol = TBinaryProtocolAccelerated if accelerated else TBinaryProtocol
        self._transport = TBufferedTransport(TSocket("127.0.0.1", port))
        self._client = hmsclient.HMSClient(iprot=protocol(self._transport))
        self._transport.open()

    def list_tables(self) -> Any:
        # The metastore's own limit returns any ten: the first ten need all names.
        return self._client.get_table_names_by_filter(NAMESPACE, _FILTER, -1)

    def list_namespaces(self) -> Any:
        return self._client.get_all_databases()

    def location_of(self, name: str) -> str:
        request = hms_types.GetTableRequest(dbName=NAMESPACE, tblName=name)
        found: str = self._client.get_table_req(request).table.sd.location
        return found

    def create_table(self, name: str, location: str, *, lance: bool = True) -> None:
        record = TableRecord((NAMESPACE, name), location, MARKS if lance else {})
        table = mapping.table_from(hms_types, record, None)
        if not lance:
            table.sd.cols = [hms_types.FieldSchema(name="id", type="bigint", comment="")]
        self._client.create_table(table)

    def drop_table(self, name: str) -> None:
        self._client.drop_table(NAMESPACE, name, False)

    def create_namespace(self, name: str) -> None:
        self._client.create_database(hms_types.Database(name=name))

    def root(self) -> str:
        """Return where the namespace with the tables is."""
        found: str = self._client.get_database(NAMESPACE).locationUri
        return found

    def close(self) -> None:
        self._transport.close()


class Hive(Subject):
    """One metastore."""

    bars = Bars(tables=2.0, table_calls=2, describe=1.5, threads=0.7)

    def __init__(
        self, metastore: Metastore, fixture: Fixture, connections: int, *, accelerated: bool
    ) -> None:
        super().__init__(f"Hive Metastore {metastore.release.full_version}", fixture)
        self._connections = connections
        self._port = metastore.port
        self._accelerated = accelerated
        self.calls = RawCalls(
            "hmsclient, accelerated" if accelerated else "hmsclient",
            "get_table_names_by_filter",
            "get_all_databases",
            "get_table_req",
            "create_table",
            "drop_table",
        )

    def connect(self, address: str | None = None) -> Any:
        uri = address or f"thrift://127.0.0.1:{self._port}"
        return lance_bridge.connect("hive", {"uri": uri, "client.pool-size": self._connections})

    def raw(self) -> RawClient:
        return HiveClient(self._port, accelerated=self._accelerated)

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        with ThriftProxy("127.0.0.1", self._port) as proxy:
            yield Wire(proxy.uri, proxy.reset, lambda: proxy.calls, lambda: proxy.connections)


@contextmanager
def hive(
    version: str, tables: int, namespaces: int, connections: int, *, accelerated: bool
) -> Iterator[Hive]:
    """Yield a new metastore with that many tables and databases."""
    with Metastore(version) as metastore:
        first = HiveClient(metastore.port)
        first.create_namespace(NAMESPACE)
        fixture = Fixture.planned(tables, namespaces, first.root())
        first.close()
        fill(lambda: HiveClient(metastore.port, accelerated=True), fixture, _OWN_DATABASES)
        yield Hive(metastore, fixture, connections, accelerated=accelerated)
