"""The kit on Hive 3.1, 4.0 and 4.1: by ``make test-slow``.

3.1 is the first release with catalogs. 4.0 and 4.1 compare entries as 4.2 does.
"""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import ServerSuite, Target
from lance_bridge.testing.data import SmokeCases
from lance_bridge.testing.managed import ManagedCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.tables import RenameCases

from .hive_target import HiveCatalogTarget, hive_target

pytestmark = [pytest.mark.slow, pytest.mark.spec("hive.md#compatibility")]
RELEASE = "3.1"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(ServerSuite, StatefulCases):
    """Two levels: database, table."""


class TestHiveWithCatalogs(SmokeCases, ManagedCases, NamespaceCases, RenameCases):
    """Three levels, catalog, database and table: what the third one changes."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))


class TestHive4(ServerSuite):
    """Two levels, on releases that `test_hive_4_2` tries with three."""

    @pytest.fixture(scope="class", params=["4.0", "4.1"])
    @classmethod
    def target(
        cls,
        request: pytest.FixtureRequest,
        metastores: Metastores,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Target:
        return hive_target(request.param, metastores, tmp_path_factory.mktemp("data"))
