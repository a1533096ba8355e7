"""Fixtures for tests of the Unity adapter: a server, a proxy in front of it, catalogs on that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.http_proxy import HttpProxy
from servers.unity import DATABRICKS, OPEN_SOURCE_0_6, WAREHOUSE_ID, UnityServer

from lance_bridge.config import load
from lance_bridge_unity import UnityConfig
from lance_bridge_unity.catalog import UnityCatalog

from .building import Connect

TOKEN = "dapi-double"


@pytest.fixture(autouse=True)
def _no_configuration_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DATABRICKS_HOST", "DATABRICKS_TOKEN", "DATABRICKS_CONFIG_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nonexistent")


@pytest.fixture
def server() -> Iterator[UnityServer]:
    """The open-source server with a catalog `c` and a schema `c.s`."""
    with UnityServer(OPEN_SOURCE_0_6) as running:
        running.add_catalog("c")
        running.add_schema("c", "s")
        yield running


@pytest.fixture
def proxy(server: UnityServer) -> Iterator[HttpProxy]:
    """A proxy in front of it, which counts requests and breaks some on demand."""
    with HttpProxy(server.url) as running:
        yield running


@pytest.fixture
def connect(proxy: HttpProxy) -> Iterator[Connect]:
    """Makes catalogs behind the proxy."""
    made: list[UnityCatalog] = []

    def open_catalog(**properties: str) -> UnityCatalog:
        given = {"host": proxy.endpoint, "retry_timeout": "5", "root": "/data", **properties}
        made.append(UnityCatalog(load(UnityConfig, "unity", given)))
        return made[-1]

    yield open_catalog
    for catalog in made:
        catalog.close()


@pytest.fixture
def workspace() -> Iterator[UnityServer]:
    """Databricks with a catalog `c` and a schema `c.s`."""
    with UnityServer(DATABRICKS) as running:
        running.add_catalog("c")
        running.add_schema("c", "s")
        yield running


@pytest.fixture
def workspace_proxy(workspace: UnityServer) -> Iterator[HttpProxy]:
    """A proxy in front of Databricks."""
    with HttpProxy(workspace.url) as running:
        yield running


@pytest.fixture
def databricks(workspace_proxy: HttpProxy) -> Iterator[Connect]:
    """Makes catalogs on Databricks, behind its proxy, with a SQL warehouse unless it is None."""
    made: list[UnityCatalog] = []

    def open_catalog(**properties: str | None) -> UnityCatalog:
        defaults = {
            "host": workspace_proxy.endpoint,
            "server": "databricks",
            "token": TOKEN,
            "warehouse_id": WAREHOUSE_ID,
            "retry_timeout": "5",
            "root": "/data",
        }
        given = {k: v for k, v in {**defaults, **properties}.items() if v is not None}
        made.append(UnityCatalog(load(UnityConfig, "unity", given)))
        return made[-1]

    yield open_catalog
    for catalog in made:
        catalog.close()
