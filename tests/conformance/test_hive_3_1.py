"""The kit on Hive 3.1, the first release with catalogs."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import EntrySuite, RequestSuite, ServerSuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.rename import RenameCases
from lance_bridge.testing.restart import RestartCases
from lance_bridge.testing.stateful import StatefulCases

from .hive_target import HiveCatalogTarget, hive_target

pytestmark = pytest.mark.server
RELEASE = "3.1"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(EntrySuite):
    """Two levels: database, table."""


@pytest.mark.slow
class TestHiveInFull(ConcurrencyCases, RestartCases, RequestSuite, StatefulCases):
    """What depends little on the release, or takes long: restarts, and random sequences."""


class OnCatalogs:
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))


class TestHiveWithCatalogs(OnCatalogs, NamespaceCases, RenameCases):
    """What the third level changes."""


@pytest.mark.slow
class TestHiveWithCatalogsInFull(OnCatalogs, ServerSuite):
    """What the server decides."""
