"""The catalogs to measure: started, filled with raw calls, each with its raw client.

A catalog holds many namespaces, and in one of them many tables: every other one is a Lance table,
the rest are ordinary ones.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy, Request
from servers.proxy import ThriftProxy
from servers.unity import OPEN_SOURCE_0_6
from servers.unity.process import UnityProcess

import lance_bridge
from bench.raw_clients import (
    GLUE_PAGE,
    NAMESPACE,
    UNITY_API,
    UNITY_CATALOG,
    GlueClient,
    HiveClient,
    RawClient,
    UnityClient,
)
from bench.runner import Bar, Wire
from lance_bridge.locations import for_lance
from lance_bridge_metastore import Metastore

_FILLERS = 4


@dataclass(frozen=True)
class Contents:
    """What a catalog holds; the Lance tables are below ``root``."""

    tables: int
    namespaces: int
    root: str

    @property
    def lance_names(self) -> list[str]:
        """The names of the Lance tables, sorted."""
        return [f"table_{number:05}" for number in range(0, self.tables, 2)]

    def location(self, name: str) -> str:
        """Return where the Lance table of a name is, or would be created."""
        return f"{self.root}/{name}.lance"

    def create(self, open_client: Callable[[], RawClient], existing_namespaces: int) -> None:
        """Create all tables and the missing namespaces, on several connections."""
        others = [f"other_{n:04}" for n in range(self.namespaces - existing_namespaces)]

        def create_share(number: int) -> None:
            client = open_client()
            for name in others[number::_FILLERS]:
                client.create_namespace(name)
            for index in range(number, self.tables, _FILLERS):
                name, lance = f"table_{index:05}", index % 2 == 0
                location = self.location(name) if lance else f"{self.root}/{name}"
                client.create_table(name, location, lance=lance)
            client.close()

        with ThreadPoolExecutor(_FILLERS) as pool:
            list(pool.map(create_share, range(_FILLERS)))


class RawCall(NamedTuple):
    """The raw client's call for an operation, and our limits if there are any."""

    name: str
    bars: Sequence[Bar] = ()


def _raw_call(name: str, ratio: float, calls: int) -> RawCall:
    return RawCall(name, [Bar("ratio", "<=", ratio), Bar("calls", "<=", calls)])


@dataclass(frozen=True)
class Catalog:
    """One catalog, and how it is reached.

    Attributes:
        connect: Returns a namespace on the catalog, or on the proxy at an address.
        proxy: Returns a proxy in front of the catalog that counts.
        raw_calls: What each operation is compared with.
        threads_ratio: The least throughput of threads, as a multiple of the raw clients'.
        aws: The double of AWS behind Glue.
    """

    title: str
    client_name: str
    contents: Contents
    connect: Callable[..., Any]
    open_client: Callable[[], RawClient]
    proxy: Callable[[], AbstractContextManager[Wire]]
    raw_calls: Mapping[str, RawCall]
    threads_ratio: float | None = None
    aws: GlueServer | None = None

    def is_at(self, name: str, location: Any) -> bool:
        """Return whether a location is the one of the Lance table of that name."""
        return bool(for_lance(location) == for_lance(self.contents.location(name)))


def _listing_bars(page: int, tables: int, namespaces: int) -> tuple[int, int]:
    """Return the most calls that listings may take: their pages, and one more."""
    return -(-tables // page) + 1, -(-namespaces // page) + 1


@contextmanager
def _http_proxy(url: str, *key: Callable[[Request], str]) -> Iterator[Wire]:
    with HttpProxy(url, *key) as it:
        yield Wire(it.endpoint, it.reset, lambda: it.counts, lambda: it.connections)


@contextmanager
def hive(
    version: str, tables: int, namespaces: int, pool_size: int, *, accelerated: bool
) -> Iterator[Catalog]:
    """Start and fill a Hive Metastore of a release."""
    with Metastore(version) as metastore:
        first = HiveClient(metastore.port)
        first.create_namespace(NAMESPACE)
        contents = Contents(tables, namespaces, first.root())
        first.close()
        # A new Hive Metastore has a database, `default`.
        contents.create(partial(HiveClient, metastore.port, accelerated=True), 2)

        def connect(address: str | None = None) -> Any:
            properties = {"uri": address or metastore.uri, "client.pool-size": str(pool_size)}
            return lance_bridge.connect("hive", properties)

        @contextmanager
        def proxy() -> Iterator[Wire]:
            with ThriftProxy("127.0.0.1", metastore.port) as it:
                yield Wire(it.uri, it.reset, lambda: it.calls, lambda: it.connections)

        yield Catalog(
            f"Hive Metastore {metastore.release.full_version}",
            "hmsclient, accelerated" if accelerated else "hmsclient",
            contents,
            connect,
            partial(HiveClient, metastore.port, accelerated=accelerated),
            proxy,
            {
                "list_tables": _raw_call("get_table_names_by_filter", 2.0, 2),
                "list_namespaces": RawCall("get_all_databases"),
                "describe_table": _raw_call("get_table_req", 1.5, 1),
                "declare_table": RawCall("create_table"),
                "deregister_table": RawCall("drop_table"),
            },
            threads_ratio=0.7,
        )


@contextmanager
def glue(tables: int, namespaces: int, pool_size: int) -> Iterator[Catalog]:
    """Start and fill moto, a double of AWS."""
    with GlueServer() as server:
        bucket = server.make_bucket("lance-bench")
        open_client = partial(GlueClient, server.endpoint)
        open_client().create_namespace(NAMESPACE)
        contents = Contents(tables, namespaces, f"{bucket}/{NAMESPACE}.db")
        contents.create(open_client, 1)

        def connect(address: str | None = None, **more: str) -> Any:
            properties = {
                **server.properties,
                "endpoint": address or server.endpoint,
                "client.pool-size": str(pool_size),
                "root": bucket,
                "storage.aws_endpoint": server.endpoint,
                "storage.allow_http": "true",
            }
            return lance_bridge.connect("glue", {**properties, **more})

        table_calls, namespace_calls = _listing_bars(GLUE_PAGE, tables, namespaces)
        yield Catalog(
            "AWS Glue (moto)",
            "boto3",
            contents,
            connect,
            open_client,
            partial(_http_proxy, server.endpoint),
            {
                "list_tables": _raw_call("get_tables, all pages", 1.2, table_calls),
                "list_namespaces": _raw_call("get_databases, all pages", 1.2, namespace_calls),
                "describe_table": _raw_call("get_table", 1.2, 1),
                "declare_table": RawCall("create_table"),
                "deregister_table": RawCall("delete_table"),
            },
            aws=server,
        )


@contextmanager
def unity(tables: int, namespaces: int) -> Iterator[Catalog]:
    """Start and fill the project's double of the open-source server."""
    # The SDK warns that the open-source server does not say how to log in, and goes on.
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    dialect = OPEN_SOURCE_0_6
    process = UnityProcess(dialect, [UNITY_CATALOG])
    with TemporaryDirectory(prefix="unity-") as root, process:
        open_client = partial(UnityClient, process.url)
        open_client().create_namespace(NAMESPACE)
        contents = Contents(tables, namespaces, Path(root, f"{NAMESPACE}.db").as_uri())
        contents.create(open_client, 1)

        def connect(address: str | None = None) -> Any:
            host = address or process.url
            properties = {"host": host, "catalog": UNITY_CATALOG, "root": root}
            return lance_bridge.connect("unity", properties)

        table_calls, namespace_calls = _listing_bars(dialect.page_size, tables, namespaces)
        yield Catalog(
            f"Unity Catalog, open source (double, {dialect.name})",
            "databricks-sdk",
            contents,
            connect,
            open_client,
            partial(_http_proxy, process.url, _route),
            {
                "list_tables": _raw_call("tables.list, without columns", 1.5, table_calls),
                "list_namespaces": _raw_call("schemas.list", 1.5, namespace_calls),
                "describe_table": _raw_call("tables.get", 1.2, 1),
                "declare_table": RawCall("tables.create"),
                "deregister_table": RawCall("DELETE by api_client"),
            },
        )


def _route(request: Request) -> str:
    """Return what a request is counted under: its route, without the object's name."""
    path = urlsplit(request.path).path.removeprefix(UNITY_API)
    return f"{request.method} {re.sub(r'/[^/]*[.][^/]*', '/NAME', path)}"
