"""The kit on Hive 4.2, the release on which every case runs: some with ``slow`` only."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, EntrySuite, RequestSuite, ServerSuite, Target
from lance_bridge.testing.data import EveryOperationCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.requests import IdentifierCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.tables import RenameCases

from .hive_target import HiveCatalogTarget, HiveWithOtherCatalogsTarget, hive_target

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#compatibility")]


RELEASE = "4.2"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(ServerSuite, RequestSuite, EveryOperationCases):
    """Two levels: database, table."""


@pytest.mark.slow
class TestHiveAtRandom(StatefulCases):
    """Random sequences of operations."""


class OnCatalogs:
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))


class TestHiveWithCatalogs(OnCatalogs, NamespaceCases, RenameCases, IdentifierCases):
    """What the third level changes."""


@pytest.mark.slow
class TestHiveWithCatalogsInFull(OnCatalogs, EntrySuite):
    """All that is done with entries."""


class TestHiveCatalog(CatalogSuite):
    """The adapter alone, with entries that are compared by a condition, beside other catalogs."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveWithOtherCatalogsTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))
