"""The kit on Hive 4.0 and 4.1, which compare entries as 4.2 does."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import RequestSuite, ServerSuite, Target
from lance_bridge.testing.managed import ManagedCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.paging import PagingCases
from lance_bridge.testing.rename import RenameCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.tables import TableCases

from .hive_target import HiveCatalogTarget, hive_target

pytestmark = pytest.mark.server


class OnEachRelease:
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


class TestHive(OnEachRelease, ManagedCases, PagingCases, RenameCases, TableCases, NamespaceCases):
    """Every call that the adapter makes."""


@pytest.mark.slow
class TestHiveInFull(OnEachRelease, ServerSuite, RequestSuite, StatefulCases):
    """What depends little on the release, or takes long: restarts, and random sequences."""


@pytest.mark.slow
class TestHiveWithCatalogs(ServerSuite):
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get("4.0"), tmp_path_factory.mktemp("data"))
