"""The catalogs to measure: started and filled, each with the calls of its raw client.

A catalog holds many namespaces, and in one of them many tables, of which a share are Lance tables.
The raw client does each operation with the fewest possible calls.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import hmsclient.genthrift.hive_metastore.ttypes as hms
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.catalog import DataSourceFormat, TableType
from hmsclient import HMSClient
from servers.glue_server import GlueServer
from servers.hive_entries import raw_client, raw_table
from servers.http_proxy import HttpProxy, Request, operation
from servers.proxy import ThriftProxy
from servers.unity import OPEN_SOURCE_0_6
from servers.unity.server import UnityProcess
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated

import lance_bridge
from bench.runner import Bars, Wire, request
from lance_bridge.locations import for_lance
from lance_bridge_metastore import Metastore

NAMESPACE = "bench"
"""The namespace with the tables."""
_FILLERS = 4
LANCE = {"table_type": "lance", "managed_by": "storage"}
"""The properties that distinguish a Lance table."""


@dataclass(frozen=True)
class Catalog:
    """One catalog. A subclass has the calls of its raw client, by the names of our operations.

    Attributes:
        server: What runs.
        root: Where the Lance tables are.
        properties: How a namespace on the catalog is connected.
        lance_share: Each table of so many is a Lance table.
        impl: The name of the adapter.
        address: The property that has the server's address.
        ratios: The most time that operations may take, as a multiple of the raw calls'.
        page: How many entries a reply to a listing has.
        open_client: Opens a raw client, for one thread.
        open_proxy: Returns a proxy in front of the catalog that counts.
    """

    title: str
    server: Any
    root: str
    properties: Mapping[str, str]
    tables: int
    namespaces: int
    lance_share: int = 2

    impl: ClassVar[str]
    address: ClassVar[str]
    ratios: ClassVar[Mapping[str, float]]
    page: ClassVar[int] = sys.maxsize
    open_client: ClassVar[Callable[[Any], AbstractContextManager[Any]]]
    open_proxy: ClassVar[Callable[[Any], AbstractContextManager[Wire]]]

    @property
    def lance_names(self) -> list[str]:
        """The names of the Lance tables, sorted."""
        return [f"table_{number:05}" for number in range(0, self.tables, self.lance_share)]

    def bars(self, method: str) -> Bars:
        """Return our limits of time and calls; a listing may take one call more than its pages."""
        ratio = self.ratios.get(method)
        entries = {"list_tables": self.tables, "list_namespaces": self.namespaces}.get(method, 0)
        calls = -(-entries // self.page) + 1
        return {"ratio": f"<= {ratio:g}", "calls": f"<= {calls}"} if ratio else {}

    def raw(self, method: str, client: Any, *arguments: Any) -> Any:
        """Do an operation with a raw client."""
        return getattr(self, method)(client, *arguments)

    def connect(self, **more: str) -> Any:
        """Return a namespace on the catalog, with more properties."""
        return lance_bridge.connect(self.impl, {**self.properties, **more})

    @contextmanager
    def counted(self) -> Iterator[tuple[Wire, Any]]:
        """Yield a proxy in front of the catalog, and a namespace that is connected through it."""
        with self.open_proxy() as wire, closing(self.connect(**{self.address: wire.address})) as it:
            # The first call on a connection asks the server more.
            request(it, "list_tables", id=[NAMESPACE])
            yield wire, it

    def location(self, name: str) -> str:
        """Return where the Lance table of a name is, or would be created."""
        return f"{self.root}/{NAMESPACE}.db/{name}.lance"

    def is_at(self, name: str, location: Any) -> bool:
        """Return whether a location is the one of the Lance table of that name."""
        return bool(for_lance(location) == for_lance(self.location(name)))

    def fill(self) -> None:
        """Create the missing namespaces, and all tables on several connections."""
        with closing(self.connect()) as namespace, self.open_client() as client:
            request(namespace, "create_namespace", id=[NAMESPACE])
            for number in range(self.namespaces - len(self.raw("list_namespaces", client))):
                request(namespace, "create_namespace", id=[f"other_{number:04}"])

        def create_share(first: int) -> None:
            with self.open_client() as client:
                for number in range(first, self.tables, _FILLERS):
                    properties = {} if number % self.lance_share else LANCE
                    self.raw("declare_table", client, f"table_{number:05}", properties)

        with ThreadPoolExecutor(_FILLERS) as pool:
            list(pool.map(create_share, range(_FILLERS)))


# -- Hive ------------------------------------------------------------------------------------------

# The metastore's own limit returns any ten: the first ten need all names.
_LANCE_TABLES = 'hive_filter_field_params__table_type like "(?i)lance"'


class Hive(Catalog):
    """A Hive Metastore of a release."""

    impl, address = "hive", "uri"
    ratios: ClassVar = {"list_tables": 2.0, "describe_table": 1.5}

    def open_client(self) -> AbstractContextManager[Any]:
        return raw_client(self.server.port)

    def open_proxy(self) -> AbstractContextManager[Wire]:
        return thrift_proxy(self.server.port)

    def list_tables(self, client: Any) -> Any:
        return client.get_table_names_by_filter(NAMESPACE, _LANCE_TABLES, -1)

    def list_namespaces(self, client: Any) -> list[Any]:
        return list(client.get_all_databases())

    def describe_table(self, client: Any, name: str) -> Any:
        found = client.get_table_req(hms.GetTableRequest(dbName=NAMESPACE, tblName=name))
        return found.table.sd.location

    def declare_table(self, client: Any, name: str, properties: Mapping[str, str] = LANCE) -> None:
        table = raw_table(NAMESPACE, name, self.location(name))
        table.parameters = {"EXTERNAL": "TRUE", **properties}
        client.create_table(table)

    def deregister_table(self, client: Any, name: str) -> None:
        client.drop_table(NAMESPACE, name, False)


class AcceleratedHive(Hive):
    """The same, with the raw client at its fastest: Thrift's protocol in C, as ours has it."""

    def open_client(self) -> AbstractContextManager[Any]:
        def client(protocol: Any) -> Any:
            return HMSClient(iprot=TBinaryProtocolAccelerated(protocol.trans))

        return raw_client(self.server.port, client)


@contextmanager
def thrift_proxy(port: int) -> Iterator[Wire]:
    """Provide a proxy in front of a metastore."""
    with ThriftProxy("127.0.0.1", port) as it:
        yield Wire(it.uri, it.reset, lambda: it.calls, lambda: it.connections)


@contextmanager
def hive(
    version: str,
    tables: int,
    namespaces: int,
    *,
    kind: type[Hive] = Hive,
    lance_share: int = 2,
) -> Iterator[Catalog]:
    """Start a Hive Metastore of a release."""
    with Metastore(version) as metastore:
        title = f"Hive Metastore {metastore.release.full_version}"
        properties, root = {"uri": metastore.uri}, metastore.warehouse
        yield kind(title, metastore, root, properties, tables, namespaces, lance_share)


# -- Glue ------------------------------------------------------------------------------------------


class Glue(Catalog):
    """The Glue of moto."""

    impl, address, page = "glue", "endpoint", 100
    ratios: ClassVar = {"list_tables": 1.2, "list_namespaces": 1.2, "describe_table": 1.2}

    def open_client(self) -> AbstractContextManager[Any]:
        return closing(self.server._client("glue"))

    def open_proxy(self) -> AbstractContextManager[Wire]:
        return _http_proxy(self.server.endpoint)

    def list_tables(self, client: Any) -> Any:
        return self._names(client, "Table", DatabaseName=NAMESPACE)

    def list_namespaces(self, client: Any) -> list[Any]:
        return self._names(client, "Database")

    def _names(self, client: Any, entries: str, **arguments: Any) -> list[Any]:
        paginator = client.get_paginator(f"get_{entries.lower()}s")
        pages = paginator.paginate(**arguments, PaginationConfig={"PageSize": self.page})
        return [each["Name"] for page in pages for each in page[f"{entries}List"]]

    def describe_table(self, client: Any, name: str) -> Any:
        table = client.get_table(DatabaseName=NAMESPACE, Name=name)["Table"]
        return table["StorageDescriptor"]["Location"]

    def declare_table(self, client: Any, name: str, properties: Mapping[str, str] = LANCE) -> None:
        entry = {
            "Name": name,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [],
            "Parameters": {**properties, "EXTERNAL": "TRUE"},
            "StorageDescriptor": {"Columns": [], "Location": self.location(name)},
        }
        client.create_table(DatabaseName=NAMESPACE, TableInput=entry)

    def deregister_table(self, client: Any, name: str) -> None:
        client.delete_table(DatabaseName=NAMESPACE, Name=name)


@contextmanager
def _http_proxy(upstream: str, route: Callable[[Request], str] = operation) -> Iterator[Wire]:
    with HttpProxy(upstream, route) as it:
        yield Wire(it.endpoint, it.reset, lambda: it.counts, lambda: it.connections)


@contextmanager
def glue(tables: int, namespaces: int) -> Iterator[Catalog]:
    """Start moto."""
    with GlueServer() as server:
        bucket = server.make_bucket("lance-bench")
        storage = {"storage.aws_endpoint": server.endpoint, "storage.allow_http": "true"}
        properties = {**server.properties, **storage, "root": bucket}
        yield Glue("AWS Glue (moto)", server, bucket, properties, tables, namespaces)


# -- Unity -----------------------------------------------------------------------------------------

_UNITY_CATALOG = "bench_catalog"
_UNITY_NAMESPACE = f"{_UNITY_CATALOG}.{NAMESPACE}"
_UNITY_API = "/api/2.1/unity-catalog"


class Unity(Catalog):
    """The project's double of the open-source server."""

    impl, address = "unity", "host"
    ratios: ClassVar = {"list_tables": 1.5, "list_namespaces": 1.5, "describe_table": 1.2}
    page = OPEN_SOURCE_0_6.page_size

    def open_client(self) -> AbstractContextManager[Any]:
        # The SDK has no way to close its connections.
        return nullcontext(WorkspaceClient(host=self.server.url, token="not-used", auth_type="pat"))

    def open_proxy(self) -> AbstractContextManager[Wire]:
        return _http_proxy(self.server.url, _route)

    def list_tables(self, client: Any) -> Any:
        found = client.tables.list(_UNITY_CATALOG, NAMESPACE, max_results=0, omit_columns=True)
        return list(found)

    def list_namespaces(self, client: Any) -> list[Any]:
        return list(client.schemas.list(_UNITY_CATALOG, max_results=0))

    def describe_table(self, client: Any, name: str) -> Any:
        return client.tables.get(f"{_UNITY_NAMESPACE}.{name}").storage_location

    def declare_table(self, client: Any, name: str, properties: Mapping[str, str] = LANCE) -> None:
        client.tables.create(
            name=name,
            catalog_name=_UNITY_CATALOG,
            schema_name=NAMESPACE,
            table_type=TableType.EXTERNAL,
            columns=[],
            data_source_format=DataSourceFormat.TEXT,
            storage_location=self.location(name),
            properties=properties,
        )

    def deregister_table(self, client: Any, name: str) -> None:
        # The SDK's own call takes the reply for JSON.
        path = f"{_UNITY_API}/tables/{_UNITY_NAMESPACE}.{name}"
        client.api_client.do("DELETE", path, raw=True)


def _route(request: Request) -> str:
    """Return what a request is counted under: its route, without the object's name."""
    path = request.path.partition("?")[0].removeprefix(_UNITY_API)
    return f"{request.method} {re.sub(r'/[^/]*[.][^/]*', '/NAME', path)}"


@contextmanager
def unity(tables: int, namespaces: int) -> Iterator[Catalog]:
    """Start the project's double of the open-source server."""
    # The SDK warns that the open-source server does not say how to log in, and goes on.
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    process = UnityProcess(OPEN_SOURCE_0_6, [_UNITY_CATALOG])
    with TemporaryDirectory(prefix="unity-") as root, process:
        title = f"Unity Catalog, open source (double, {OPEN_SOURCE_0_6.name})"
        properties = {"host": process.url, "catalog": _UNITY_CATALOG, "root": root}
        yield Unity(title, process, f"file://{root}", properties, tables, namespaces)
