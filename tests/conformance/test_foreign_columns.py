"""Columns of tables that are not Lance's, as each catalog has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace.errors import TableNotFoundError
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.catalog import CatalogColumn

from .glue_target import GlueOnDiskTarget
from .hive_target import hive_target
from .unity_target import CATALOG, UnityTarget

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("docs/write-a-catalog.md#columns-for-display", "server.md#the-catalog-page"),
]
TYPES = {"hive": "int", "glue": "int", "unity": "integer"}


@pytest.fixture(params=list(TYPES))
def target(request: pytest.FixtureRequest, metastores: Metastores, tmp_path: Path) -> Iterator[Any]:
    if request.param == "hive":
        yield hive_target("2.3", metastores, tmp_path)
    elif request.param == "glue":
        with GlueServer() as glue, HttpProxy(glue.endpoint) as proxy:
            yield GlueOnDiskTarget(glue, proxy, tmp_path)
    else:
        with UnityServer(OPEN_SOURCE_0_6) as unity:
            yield UnityTarget(unity, str(tmp_path))


@pytest.fixture
def namespace(target: Any) -> Iterator[Any]:
    with target.connect() as namespace:
        yield namespace


@pytest.fixture
def path(target: Any, namespace: Any, tmp_path: Path) -> Iterator[list[str]]:
    """A table of another format."""
    parent = [CATALOG, "cols"] if isinstance(target, UnityTarget) else ["foreign_columns"]
    namespace.create_namespace(api.CreateNamespaceRequest(id=parent))
    target.make_foreign_table(parent, "orders", str(tmp_path / "orders"))
    yield [*parent, "orders"]
    target.remove_entry(parent, "orders")
    namespace.drop_namespace(api.DropNamespaceRequest(id=parent))


def test_columns_are_those_of_the_catalog(
    request: pytest.FixtureRequest, namespace: Any, path: list[str]
) -> None:
    type_ = TYPES[request.node.callspec.params["target"]]
    assert list(namespace.catalog.load_columns(tuple(path))) == [CatalogColumn("id", type_)]
    with pytest.raises(TableNotFoundError):
        namespace.catalog.load_columns((*path[:-1], "absent"))
