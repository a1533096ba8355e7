"""The kit on Hive 4.0."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import EntrySuite, RequestSuite, ServerSuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.restart import RestartCases
from lance_bridge.testing.stateful import StatefulCases

from .hive_target import HiveCatalogTarget, hive_target

pytestmark = pytest.mark.server
RELEASE = "4.0"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(ConcurrencyCases, EntrySuite):
    """Two levels: database, table."""


@pytest.mark.slow
class TestHiveInFull(RestartCases, RequestSuite, StatefulCases):
    """What depends little on the release, or takes long: restarts, and random sequences."""


@pytest.mark.slow
class TestHiveWithCatalogs(ServerSuite):
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))
