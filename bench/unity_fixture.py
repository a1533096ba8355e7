"""Unity Catalog to measure, and the raw client of it: databricks-sdk.

The server is the project's own double of the open-source one, in a process of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from databricks.sdk import WorkspaceClient
from databricks.sdk.service.catalog import ColumnInfo, ColumnTypeName, DataSourceFormat, TableType
from servers.http_proxy import HttpProxy, Request
from servers.unity import OPEN_SOURCE_0_6
from servers.unity.process import UnityProcess

import lance_bridge
from bench.fixture import MARKS, NAMESPACE, Fixture, RawCalls, RawClient, fill
from bench.measure import Wire
from bench.subject import Bars, Subject, pages

CATALOG = "bench_catalog"
_API = "/api/2.1/unity-catalog"
_PAGE = OPEN_SOURCE_0_6.page_size
_ID = ColumnInfo(
    name="id",
    type_name=ColumnTypeName.LONG,
    type_text="bigint",
    type_json='{"name": "id", "type": "long", "nullable": true, "metadata": {}}',
    position=0,
    nullable=True,
)


class UnityClient(RawClient):
    """The SDK's own calls; a delete without reading the reply, which the SDK takes for JSON."""

    def __init__(self, url: str) -> None:
        self._client = WorkspaceClient(host=url, token="not-used", auth_type="pat")

    def list_tables(self) -> Any:
        found = self._client.tables.list(CATALOG, NAMESPACE, max_results=0, omit_columns=True)
        return [table.name for table in found]

    def list_namespaces(self) -> Any:
        return [schema.name for schema in self._client.schemas.list(CATALOG, max_results=0)]

    def location_of(self, name: str) -> str:
        found = self._client.tables.get(_full(name)).storage_location
        assert found is not None, f"{name} has no location"
        return found

    def create_table(self, name: str, location: str, *, lance: bool = True) -> None:
        self._client.tables.create(
            name=name,
            catalog_name=CATALOG,
            schema_name=NAMESPACE,
            table_type=TableType.EXTERNAL,
            columns=[] if lance else [_ID],
            data_source_format=DataSourceFormat.TEXT if lance else DataSourceFormat.PARQUET,
            storage_location=location,
            properties=dict(MARKS) if lance else {},
        )

    def drop_table(self, name: str) -> None:
        self._client.api_client.do("DELETE", f"{_API}/tables/{_full(name)}", raw=True)

    def create_namespace(self, name: str) -> None:
        self._client.schemas.create(name, CATALOG)


def _full(name: str) -> str:
    return f"{CATALOG}.{NAMESPACE}.{name}"


class Unity(Subject):
    """One catalog of a server."""

    calls = RawCalls(
        "databricks-sdk",
        "tables.list, without columns",
        "schemas.list",
        "tables.get",
        "tables.create",
        "DELETE by api_client",
    )

    def __init__(self, url: str, fixture: Fixture, root: str) -> None:
        super().__init__(f"Unity Catalog, open source (double, {OPEN_SOURCE_0_6.name})", fixture)
        self.bars = Bars(
            tables=1.5,
            table_calls=pages(fixture.tables, _PAGE) + 1,
            namespaces=1.5,
            namespace_calls=pages(fixture.namespaces, _PAGE) + 1,
            describe=1.2,
        )
        self._url = url
        self._root = root

    def connect(self, address: str | None = None) -> Any:
        host = address or self._url
        return lance_bridge.connect("unity", {"host": host, "catalog": CATALOG, "root": self._root})

    def raw(self) -> RawClient:
        return UnityClient(self._url)

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        with HttpProxy(self._url, _route) as proxy:
            yield Wire(proxy.endpoint, proxy.reset, lambda: proxy.counts, lambda: proxy.connections)


def _route(request: Request) -> str:
    """Return what a request is counted under: its route, without the object's name."""
    path = urlsplit(request.path).path.removeprefix(_API)
    return f"{request.method} {re.sub(r'/[^/]*[.][^/]*', '/NAME', path)}"


@contextmanager
def unity(tables: int, namespaces: int) -> Iterator[Unity]:
    """Yield a new server with that many tables and schemas in one catalog."""
    # It warns that the open-source server says nothing of logging in, and goes on.
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    process = UnityProcess(OPEN_SOURCE_0_6, [CATALOG])
    with TemporaryDirectory(prefix="unity-") as root, process:
        first = UnityClient(process.url)
        first.create_namespace(NAMESPACE)
        fixture = Fixture.planned(tables, namespaces, Path(root, f"{NAMESPACE}.db").as_uri())
        fill(lambda: UnityClient(process.url), fixture)
        yield Unity(process.url, fixture, root)
