"""`CatalogSuite` on Glue, Unity Catalog and in memory; Hive's is in `test_hive`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace.errors import TableNotFoundError
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import DATABRICKS, OPEN_SOURCE_0_6, UnityServer

from lance_bridge.catalog import CatalogColumn
from lance_bridge.testing import CatalogSuite, Target

from .glue_target import GlueOnDiskTarget
from .hive_target import hive_target
from .memory_suite import MemoryTarget
from .unity_target import CATALOG, DatabricksTarget, UnityTarget

pytestmark = pytest.mark.spec(
    "docs/write-a-catalog.md#columns-for-display", "server.md#the-catalog-page"
)

SMALL_PAGE = 10
"""Entries on a page, for servers with a configurable size of pages."""
_TOO_LONG = (
    "the double takes no longer texts than the open-source server, and fails as that does; what "
    "Databricks takes is not known"
)
_BY_SQL = (
    "Databricks changes properties by SQL, which leaves the owner of the files as it is; the "
    "adapter takes such an entry for none of Lance's, so that core never changes it"
)
_IN_TWO_STEPS = "SQL sets a location and properties by two statements; core repeats what is missing"
DATABRICKS_DEVIATIONS = {
    "test_alter_makes_an_entry_external_or_is_unsupported": _BY_SQL,
    "test_a_change_without_a_good_reply_is_unknown_and_made_whole[lose_next_reply]": _IN_TWO_STEPS,
    **{f"test_a_long_value_is_kept_or_refused[{n}]": _TOO_LONG for n in (256, 4000, 4001, 33000)},
    **{f"test_a_long_key_is_kept_or_refused[{length}]": _TOO_LONG for length in (256, 257)},
}
TYPES = {"hive": "int", "glue": "int", "unity": "integer"}


@pytest.mark.quick
class TestMemoryCatalog(CatalogSuite):
    """The double of core's own tests, which has three levels and no faults."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return MemoryTarget(tmp_path_factory.mktemp("memory"))


@pytest.mark.servers
class TestGlueCatalog(CatalogSuite):
    """Entries are compared by their version; a rename is a copy."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        with (
            GlueServer() as server,
            HttpProxy(server.endpoint) as proxy,
            server.small_pages(SMALL_PAGE),
        ):
            target = GlueOnDiskTarget(server, proxy, tmp_path_factory.mktemp("data"))
            target.page_size = SMALL_PAGE
            yield target


@pytest.mark.quick
class TestUnityCatalog(CatalogSuite):
    """Entries never change."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        with UnityServer(replace(OPEN_SOURCE_0_6, page_size=SMALL_PAGE)) as server:
            target = UnityTarget(server, str(tmp_path_factory.mktemp("data")))
            target.page_size = SMALL_PAGE
            yield target


@pytest.mark.servers
class TestDatabricksCatalog(CatalogSuite):
    """Entries change by SQL, which compares nothing."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        with UnityServer(DATABRICKS) as server:
            target = DatabricksTarget(server, f"file://{tmp_path_factory.mktemp('data')}")
            target.page_size = DATABRICKS.page_size
            target.deviations = DATABRICKS_DEVIATIONS
            yield target


# -- columns of tables that are not Lance's --------------------------------------------------------


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


@pytest.mark.servers
def test_columns_are_those_of_the_catalog(
    request: pytest.FixtureRequest, namespace: Any, path: list[str]
) -> None:
    type_ = TYPES[request.node.callspec.params["target"]]
    assert list(namespace.catalog.load_columns(tuple(path))) == [CatalogColumn("id", type_)]
    with pytest.raises(TableNotFoundError):
        namespace.catalog.load_columns((*path[:-1], "absent"))
