"""The kit on Hive 2.3, which compares an entry under a lock."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, EntrySuite, RequestSuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.restart import RestartCases
from lance_bridge.testing.stateful import StatefulCases

from .hive_target import hive_target

pytestmark = pytest.mark.server
RELEASE = "2.3"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(ConcurrencyCases, EntrySuite):
    """Two levels: database, table."""


@pytest.mark.slow
class TestHiveInFull(RestartCases, RequestSuite, StatefulCases):
    """What depends little on the release, or takes long: restarts, and random sequences."""


class TestHiveCatalog(CatalogSuite):
    """The adapter alone, with entries that are compared under a lock."""
