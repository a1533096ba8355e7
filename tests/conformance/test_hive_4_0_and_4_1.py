"""The kit on Hive 4.0 and 4.1, which compare entries as 4.2 does: by ``make test-slow``."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import RequestSuite, ServerSuite, Target
from lance_bridge.testing.stateful import StatefulCases

from .hive_target import HiveCatalogTarget, hive_target

pytestmark = [pytest.mark.server, pytest.mark.slow]


class TestHive(ServerSuite, RequestSuite, StatefulCases):
    """Two levels: database, table."""

    @pytest.fixture(scope="class", params=["4.0", "4.1"])
    @classmethod
    def target(
        cls,
        request: pytest.FixtureRequest,
        metastores: Metastores,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Target:
        return hive_target(request.param, metastores, tmp_path_factory.mktemp("data"))


class TestHiveWithCatalogs(ServerSuite):
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get("4.0"), tmp_path_factory.mktemp("data"))
