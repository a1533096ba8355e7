"""The kit on Hive 4.2, the release on which every case runs: some with ``slow`` only."""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, RequestSuite, ServerSuite, Target
from lance_bridge.testing.data_operations.columns import ColumnCases
from lance_bridge.testing.data_operations.every_operation import EveryOperationCases
from lance_bridge.testing.data_operations.indices import IndexCases
from lance_bridge.testing.data_operations.queries import QueryCases
from lance_bridge.testing.data_operations.references import BranchCases, TagCases
from lance_bridge.testing.data_operations.rows import RowCases
from lance_bridge.testing.data_operations.searches import SearchCases
from lance_bridge.testing.data_operations.transactions import TransactionCases
from lance_bridge.testing.data_operations.versions import VersionCases
from lance_bridge.testing.identifiers import IdentifierCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.rename import RenameCases
from lance_bridge.testing.stateful import StatefulCases

from .hive_target import HiveCatalogTarget, HiveWithOtherCatalogsTarget, hive_target

pytestmark = pytest.mark.server
RELEASE = "4.2"


@pytest.fixture(scope="class")
def target(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return hive_target(RELEASE, metastores, tmp_path_factory.mktemp("data"))


class TestHive(ServerSuite, RequestSuite, EveryOperationCases, TransactionCases):
    """Two levels: database, table."""


@pytest.mark.slow
class TestHiveInFull(
    BranchCases,
    TagCases,
    VersionCases,
    IndexCases,
    ColumnCases,
    SearchCases,
    QueryCases,
    RowCases,
    StatefulCases,
):
    """What happens inside of a table, and random sequences.

    `test_operations` runs them on a catalog in memory.
    """


class OnCatalogs:
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))


class TestHiveWithCatalogs(OnCatalogs, NamespaceCases, RenameCases, IdentifierCases):
    """What the third level changes."""


@pytest.mark.slow
class TestHiveWithCatalogsInFull(OnCatalogs, ServerSuite, RequestSuite):
    """What the server decides."""


class TestHiveCatalog(CatalogSuite):
    """The adapter alone, with entries that are compared by a condition, beside other catalogs."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveWithOtherCatalogsTarget(metastores.get(RELEASE), tmp_path_factory.mktemp("data"))
