"""The kit on Hive 2.3, which compares an entry under a lock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, EntrySuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.restart import RestartCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge_hive import catalog

from .hive_target import hive_target

pytestmark = pytest.mark.spec(
    "hive.md#createtable",
    "hive.md#deregistertable",
    "hive.md#describenamespace",
    "hive.md#describetable",
    "hive.md#droptable",
    "hive.md#listnamespaces",
    "hive.md#listtables",
    "hive.md#operations-inside-a-table",
)


RELEASE = "2.3"
SMALL_PAGE = 10
"""Entries that one call reads; `test_hive_4_2` reads as many as users do."""


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


@pytest.mark.smoke
class TestHive(EntrySuite):
    """Two levels, database and table: entries, and a little of everything else."""


@pytest.mark.slow
class TestHiveInFull(RestartCases, ConcurrencyCases, StatefulCases):
    """Restarts, concurrent clients, and random sequences."""


@pytest.mark.servers
class TestHiveCatalog(CatalogSuite):
    """The adapter alone, with entries that are compared under a lock, read in small batches."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(
        cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Target]:
        target = hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))
        target.page_size = SMALL_PAGE
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(catalog, "_PAGE", SMALL_PAGE)
            patch.setattr(catalog, "_BATCH", SMALL_PAGE)
            yield target
