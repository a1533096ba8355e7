"""A catalog of Lance tables for one session: the double of a Unity server, and local files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers.http_proxy import HttpProxy, Request
from servers.unity import UnityServer

from lance_bridge_spark.registration import register

TOKEN = "token-that-nothing-may-show"


@contextmanager
def unity_catalog(spark: Any, name: str, directory: Path) -> Iterator[str]:
    """Register a catalog with a namespace `db`, and give its name."""
    with UnityServer() as server:
        _register(spark, name, directory, server, server.url)
        yield name


@contextmanager
def proxied_catalog(
    spark: Any, name: str, directory: Path, key: Callable[[Request], str]
) -> Iterator[HttpProxy]:
    """Register such a catalog, and give the proxy that its requests come through."""
    with UnityServer() as server, HttpProxy(server.url, key) as proxy:
        _register(spark, name, directory, server, proxy.endpoint)
        yield proxy


def _register(spark: Any, name: str, directory: Path, server: UnityServer, host: str) -> None:
    server.add_catalog("main")
    properties = {"impl": "unity", "host": host, "catalog": "main", "root": str(directory)}
    register(spark, {name: {**properties, "token": TOKEN}})
    spark.sql(f"CREATE NAMESPACE {name}.db")
