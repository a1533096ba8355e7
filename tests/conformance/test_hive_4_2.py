"""The kit on Hive 4.2, the release on which every case runs."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, ConformanceSuite, EntrySuite, RequestSuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases

from .hive_target import HiveCatalogTarget, HiveWithOtherCatalogsTarget, hive_target

pytestmark = pytest.mark.server
RELEASE = "4.2"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(ConformanceSuite):
    """Two levels: database, table."""


class OnCatalogs:
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))


class TestHiveWithCatalogs(OnCatalogs, EntrySuite, RequestSuite):
    """What the third level changes."""


@pytest.mark.slow
class TestHiveWithCatalogsAtOnce(OnCatalogs, ConcurrencyCases):
    """Concurrent clients."""


class TestHiveCatalog(CatalogSuite):
    """The adapter alone, with entries that are compared by a condition, beside other catalogs."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveWithOtherCatalogsTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))
