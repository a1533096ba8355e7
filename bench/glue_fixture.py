"""AWS Glue to measure, as moto has it in a process of its own, and the raw client of it: boto3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from servers.glue_server import ACCESS_KEY, REGION, ROLE, SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy

import lance_bridge
from bench.fixture import MARKS, NAMESPACE, Fixture, RawCalls, RawClient, fill
from bench.measure import Wire
from bench.subject import Bars, Subject, pages

_PAGE = 100
_ROLE_SECONDS = 900
"""The shortest session of a role that AWS gives."""
ADVISORY_SECONDS = _ROLE_SECONDS / 4
"""So long before its end it is assumed again."""


class GlueClient(RawClient):
    """boto3's paginators and calls."""

    def __init__(self, endpoint: str) -> None:
        self._client = boto3.client(
            "glue",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(retries={"mode": "standard"}),
        )

    def list_tables(self) -> Any:
        found = self._pages("get_tables", DatabaseName=NAMESPACE)
        return [table["Name"] for page in found for table in page["TableList"]]

    def list_namespaces(self) -> Any:
        found = self._pages("get_databases")
        return [database["Name"] for page in found for database in page["DatabaseList"]]

    def _pages(self, operation: str, **arguments: Any) -> Any:
        paginator = self._client.get_paginator(operation)
        return paginator.paginate(**arguments, PaginationConfig={"PageSize": _PAGE})

    def location_of(self, name: str) -> str:
        table = self._client.get_table(DatabaseName=NAMESPACE, Name=name)["Table"]
        found: str = table["StorageDescriptor"]["Location"]
        return found

    def create_table(self, name: str, location: str, *, lance: bool = True) -> None:
        columns = [] if lance else [{"Name": "id", "Type": "bigint"}]
        entry = {
            "Name": name,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [],
            "Parameters": {**(MARKS if lance else {}), "EXTERNAL": "TRUE"},
            "StorageDescriptor": {"Columns": columns, "Location": location},
        }
        self._client.create_table(DatabaseName=NAMESPACE, TableInput=entry)

    def drop_table(self, name: str) -> None:
        self._client.delete_table(DatabaseName=NAMESPACE, Name=name)

    def create_namespace(self, name: str) -> None:
        self._client.create_database(DatabaseInput={"Name": name})

    def close(self) -> None:
        self._client.close()


class Glue(Subject):
    """One account's catalog."""

    calls = RawCalls(
        "boto3",
        "get_tables, all pages",
        "get_databases, all pages",
        "get_table",
        "create_table",
        "delete_table",
    )

    def __init__(self, server: GlueServer, fixture: Fixture, root: str, connections: int) -> None:
        super().__init__("AWS Glue (moto)", fixture)
        self.bars = Bars(
            tables=1.2,
            table_calls=pages(fixture.tables, _PAGE) + 1,
            namespaces=1.2,
            namespace_calls=pages(fixture.namespaces, _PAGE) + 1,
            describe=1.2,
        )
        self.server = server
        self._root = root
        self._connections = connections

    def connect(self, address: str | None = None) -> Any:
        return lance_bridge.connect("glue", self._properties(address))

    def connect_in_role(self, address: str) -> Any:
        """Return a namespace that reaches Glue in a role, which it assumes there."""
        role = {
            "assume_role_arn": ROLE,
            "assume_role_endpoint": address,
            "assume_role_timeout_sec": str(_ROLE_SECONDS),
        }
        return lance_bridge.connect("glue", {**self._properties(address), **role})

    def _properties(self, address: str | None) -> dict[str, str]:
        return {
            **self.server.properties,
            "endpoint": address or self.server.endpoint,
            "client.pool-size": str(self._connections),
            "root": self._root,
            "storage.aws_endpoint": self.server.endpoint,
            "storage.allow_http": "true",
        }

    def raw(self) -> RawClient:
        return GlueClient(self.server.endpoint)

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        with HttpProxy(self.server.endpoint) as proxy:
            yield Wire(proxy.endpoint, proxy.reset, lambda: proxy.counts, lambda: proxy.connections)


@contextmanager
def glue(tables: int, namespaces: int, connections: int) -> Iterator[Glue]:
    """Yield a new catalog with that many tables and databases."""
    with GlueServer() as server:
        bucket = server.make_bucket("lance-bench")
        first = GlueClient(server.endpoint)
        first.create_namespace(NAMESPACE)
        first.close()
        fixture = Fixture.planned(tables, namespaces, f"{bucket}/{NAMESPACE}.db")
        fill(lambda: GlueClient(server.endpoint), fixture)
        yield Glue(server, fixture, bucket, connections)
