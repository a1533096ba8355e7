"""Fixtures for tests of the Unity adapter: a server, a proxy in front of it, catalogs on that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from servers.http_proxy import HttpProxy
from servers.unity import DATABRICKS, OPEN_SOURCE_0_6, WAREHOUSE_ID, UnityServer

from lance_bridge.config import load
from lance_bridge.testing.calls import Calls
from lance_bridge_unity import UnityConfig, UnityNamespace
from lance_bridge_unity.catalog import UnityCatalog

from .servers import Connect, server_with_schema

TOKEN = "dapi-double"


@pytest.fixture(autouse=True)
def _no_configuration_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DATABRICKS_HOST", "DATABRICKS_TOKEN", "DATABRICKS_CONFIG_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nonexistent")


@contextmanager
def _catalogs(**defaults: str) -> Iterator[Connect]:
    """Make catalogs with these properties and more, without those that are None; close them."""
    with ExitStack() as stack:

        def connect(**properties: str | None) -> UnityCatalog:
            given = {k: v for k, v in {**defaults, **properties}.items() if v is not None}
            return stack.enter_context(closing(UnityCatalog(load(UnityConfig, "unity", given))))

        yield connect


@pytest.fixture
def server() -> Iterator[UnityServer]:
    """The open-source server with a catalog `c` and a schema `c.s`."""
    with server_with_schema(OPEN_SOURCE_0_6) as running:
        yield running


@pytest.fixture
def proxy(server: UnityServer) -> Iterator[HttpProxy]:
    """A proxy in front of it, which counts requests and breaks some on demand."""
    with HttpProxy(server.url) as running:
        yield running


@pytest.fixture
def connect(proxy: HttpProxy) -> Iterator[Connect]:
    """Makes catalogs behind the proxy."""
    with _catalogs(host=proxy.endpoint, retry_timeout="5", root="/data") as make:
        yield make


@pytest.fixture
def calls(proxy: HttpProxy, tmp_path: Path) -> Iterator[Calls]:
    """A client behind the proxy, with tables below ``lake``."""
    with UnityNamespace(host=proxy.endpoint, root=str(tmp_path / "lake")) as namespace:
        yield Calls(namespace)


@pytest.fixture
def workspace() -> Iterator[UnityServer]:
    """Databricks with a catalog `c` and a schema `c.s`."""
    with server_with_schema(DATABRICKS) as running:
        yield running


@pytest.fixture
def workspace_proxy(workspace: UnityServer) -> Iterator[HttpProxy]:
    """A proxy in front of Databricks."""
    with HttpProxy(workspace.url) as running:
        yield running


@pytest.fixture
def databricks(workspace_proxy: HttpProxy) -> Iterator[Connect]:
    """Makes catalogs on Databricks, behind its proxy, with a SQL warehouse unless it is None."""
    with _catalogs(
        host=workspace_proxy.endpoint,
        server="databricks",
        token=TOKEN,
        warehouse_id=WAREHOUSE_ID,
        retry_timeout="5",
        root="/data",
    ) as make:
        yield make
