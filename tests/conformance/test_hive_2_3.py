"""The kit on Hive 2.3, which compares an entry under a lock."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, RequestSuite, ServerSuite, Target
from lance_bridge.testing.data_operations.smoke import SmokeCases
from lance_bridge.testing.drops import DropCases
from lance_bridge.testing.managed import ManagedCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.rename import RenameCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.tables import TableCases

from .hive_target import hive_target

pytestmark = pytest.mark.server
RELEASE = "2.3"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(SmokeCases, ManagedCases, DropCases, RenameCases, TableCases, NamespaceCases):
    """Two levels, database and table: what changes entries."""


@pytest.mark.slow
class TestHiveInFull(ServerSuite, RequestSuite, StatefulCases):
    """All that depends on the server, and random sequences."""


class TestHiveCatalog(CatalogSuite):
    """The adapter alone, with entries that are compared under a lock."""
