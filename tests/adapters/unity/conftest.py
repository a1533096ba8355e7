"""Fixtures for tests of the Unity adapter: a server, a proxy in front of it, catalogs on that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from servers.http_proxy import Answer, HttpProxy
from servers.unity import DATABRICKS, OPEN_SOURCE_0_6, WAREHOUSE_ID, UnityServer
from servers.unity.dialects import Dialect

from lance_bridge.catalog import TableRecord
from lance_bridge.config import load
from lance_bridge.testing.calls import Calls
from lance_bridge_unity import UnityConfig, UnityNamespace
from lance_bridge_unity.catalog import UnityCatalog

Connect = Callable[..., UnityCatalog]
"""Makes catalogs with these properties."""
API = "/api/2.1/unity-catalog"
ID = "lance_bridge.id"
TABLE = ("c", "s", "t")
TOKEN = "dapi-double"


def record(name: str = "t", own: str = "1", root: str = "file:///data", **more: str) -> TableRecord:
    """Return a Lance table in the schema ``c.s``, with this id."""
    return TableRecord(
        (*TABLE[:2], name), f"{root}/{name}", {"table_type": "lance", ID: own, **more}
    )


@contextmanager
def server_with_schema(dialect: Dialect) -> Iterator[UnityServer]:
    """Run a server that has a catalog ``c`` and a schema ``c.s``."""
    with UnityServer(dialect) as running:
        running.add_catalog("c")
        running.add_schema("c", "s")
        yield running


def failed(code: str, message: str) -> Answer:
    """Return the reply to a statement that failed."""
    status = {"state": "FAILED", "error": {"error_code": code, "message": message}}
    return Answer.of_json(200, {"statement_id": "1", "status": status})


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
