"""The kit on each release of Hive: every case on 4.2, the others as far as they differ.

2.3 compares an entry under a lock. 3.1 is the first release with catalogs. 4.0 and 4.1 compare
entries as 4.2 does. What is slow runs by ``make test-slow`` alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import CatalogSuite, EntrySuite, RequestSuite, ServerSuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.data import EveryOperationCases, SmokeCases
from lance_bridge.testing.managed import ManagedCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.requests import IdentifierCases
from lance_bridge.testing.restart import RestartCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.tables import RenameCases
from lance_bridge_hive import catalog

from .hive_target import HiveCatalogTarget, HiveWithOtherCatalogsTarget, hive_target

SMALL_PAGE = 10
"""Entries that one call reads on 2.3; on 4.2 it reads as many as users do."""


class OnDatabases:
    """Two levels: database, table."""

    release: str

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return hive_target(cls.release, metastores, tmp_path_factory.mktemp("data"))


class OnCatalogs:
    """Three levels: catalog, database, table."""

    release: str

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return HiveCatalogTarget(metastores.get(cls.release), tmp_path_factory.mktemp("data"))


# -- 2.3 -------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "hive.md#createtable",
    "hive.md#deregistertable",
    "hive.md#describenamespace",
    "hive.md#describetable",
    "hive.md#droptable",
    "hive.md#listnamespaces",
    "hive.md#listtables",
    "hive.md#operations-inside-a-table",
)
class Release23:
    """The release, and what its tests show."""

    release = "2.3"


@pytest.mark.smoke
class TestHive23(Release23, OnDatabases, EntrySuite):
    """Entries, and a little of everything else."""


@pytest.mark.slow
class TestHive23InFull(Release23, OnDatabases, RestartCases, ConcurrencyCases, StatefulCases):
    """Restarts, concurrent clients, and random sequences."""


@pytest.mark.servers
class TestHiveCatalog23(Release23, CatalogSuite):
    """The adapter alone, with entries that are compared under a lock, read in small batches."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(
        cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Target]:
        target = hive_target(cls.release, metastores, tmp_path_factory.mktemp("data"))
        target.page_size = SMALL_PAGE
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(catalog, "_PAGE", SMALL_PAGE)
            patch.setattr(catalog, "_BATCH", SMALL_PAGE)
            yield target


# -- 4.2 -------------------------------------------------------------------------------------------


@pytest.mark.spec("hive.md#compatibility")
class Release42:
    """The release, and what its tests show."""

    release = "4.2"


@pytest.mark.servers
class TestHive42(Release42, OnDatabases, ServerSuite, RequestSuite, EveryOperationCases):
    """Two levels."""


@pytest.mark.slow
class TestHive42AtRandom(Release42, OnDatabases, StatefulCases):
    """Random sequences of operations."""


@pytest.mark.servers
class TestHiveWithCatalogs42(Release42, OnCatalogs, NamespaceCases, RenameCases, IdentifierCases):
    """What the third level changes."""


@pytest.mark.slow
class TestHiveWithCatalogs42InFull(Release42, OnCatalogs, EntrySuite):
    """All that is done with entries."""


@pytest.mark.servers
class TestHiveCatalog42(Release42, CatalogSuite):
    """The adapter alone, with entries that are compared by a condition, beside other catalogs."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Target:
        metastore = metastores.get(cls.release)
        return HiveWithOtherCatalogsTarget(metastore, tmp_path_factory.mktemp("data"))


# -- 3.1, 4.0 and 4.1 ------------------------------------------------------------------------------


@pytest.mark.spec("hive.md#compatibility")
class Release31:
    """The release, and what its tests show."""

    release = "3.1"


@pytest.mark.slow
class TestHive31(Release31, OnDatabases, ServerSuite, StatefulCases):
    """Two levels."""


@pytest.mark.slow
class TestHiveWithCatalogs31(
    Release31, OnCatalogs, SmokeCases, ManagedCases, NamespaceCases, RenameCases
):
    """What the third level changes."""


@pytest.mark.slow
@pytest.mark.spec("hive.md#compatibility")
class TestHive40And41(ServerSuite):
    """Two levels; 4.2 is tried with three."""

    @pytest.fixture(scope="class", params=["4.0", "4.1"])
    @classmethod
    def target(
        cls,
        request: pytest.FixtureRequest,
        metastores: Metastores,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Target:
        return hive_target(request.param, metastores, tmp_path_factory.mktemp("data"))
