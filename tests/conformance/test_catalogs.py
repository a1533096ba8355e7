"""`CatalogSuite` on Glue, Unity Catalog and in memory; Hive's is in `test_hive_2_3` and `_4_2`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.unity import DATABRICKS, OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing import CatalogSuite, Target

from .glue_target import GlueOnDiskTarget
from .memory_suite import MemoryTarget
from .unity_target import DatabricksTarget, UnityTarget

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
