"""A catalog of Lance tables for one session: the double of a Unity server, and local files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers.unity import UnityServer

from lance_bridge_spark.registration import register

TOKEN = "token-that-nothing-may-show"


@contextmanager
def unity_catalog(spark: Any, name: str, directory: Path) -> Iterator[str]:
    """Register a catalog with a namespace `db`, and give its name."""
    with UnityServer() as server:
        server.add_catalog("main")
        properties = {
            "impl": "unity",
            "host": server.url,
            "catalog": "main",
            "root": str(directory),
            "token": TOKEN,
        }
        register(spark, {name: properties})
        spark.sql(f"CREATE NAMESPACE {name}.db")
        yield name
