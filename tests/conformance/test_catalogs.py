"""The suite of catalogs on every adapter: what the suites of namespaces cannot see."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, Target

from .hive_target import HiveTarget


@pytest.mark.server
class TestHiveCatalog(CatalogSuite):
    """The oldest and the newest release: entries are compared under a lock, and by a condition."""

    @pytest.fixture(scope="class", params=["2.3", "4.2"])
    @classmethod
    def target(
        cls,
        request: pytest.FixtureRequest,
        metastores: Metastores,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Target:
        return HiveTarget(metastores.get(request.param), tmp_path_factory.mktemp("data"))
