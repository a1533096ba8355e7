"""The kit on Hive 3.1, the first release with catalogs: in full, by ``make test-slow``."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import RequestSuite, ServerSuite, Target
from lance_bridge.testing.stateful import StatefulCases

from .hive_target import HiveCatalogTarget, hive_target

pytestmark = [pytest.mark.server, pytest.mark.slow]
RELEASE = "3.1"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(ServerSuite, RequestSuite, StatefulCases):
    """Two levels: database, table."""


class TestHiveWithCatalogs(ServerSuite):
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))
