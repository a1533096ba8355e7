"""The conformance kit on real metastores of every supported release."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import external_metastores
from servers.metastores import VERSIONS, Metastores

from lance_bridge.testing import CatalogSuite, ConformanceSuite, Target, without

from .hive_target import (
    HiveCatalogTarget,
    HiveTarget,
    HiveWithOtherCatalogsTarget,
    RunningHiveTarget,
)

WITH_CATALOGS = ["3.1", "4.0", "4.2"]
INSIDE_IN_FULL = ["2.3", "4.2"]
"""Releases that are put through every case inside a table: the oldest and the newest."""


@pytest.mark.server
class TestHive(ConformanceSuite):
    """Two levels: database, table."""

    @pytest.fixture(scope="class", params=VERSIONS)
    @classmethod
    def target(
        cls,
        request: pytest.FixtureRequest,
        metastores: Metastores,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Target:
        external = external_metastores().get(request.param)
        target: Target
        if external is not None:
            target = RunningHiveTarget(external, Path(os.environ["LANCE_BRIDGE_TEST_WAREHOUSE"]))
        else:
            data_root = tmp_path_factory.mktemp("data")
            target = HiveTarget(metastores.get(request.param), data_root)
        if request.param not in INSIDE_IN_FULL:
            target.features = without(target.features, "inside_in_full")
        return target


@pytest.mark.server
class TestHiveWithCatalogs(ConformanceSuite):
    """Three levels: catalog, database, table."""

    @pytest.fixture(scope="class", params=WITH_CATALOGS)
    @classmethod
    def target(
        cls,
        request: pytest.FixtureRequest,
        metastores: Metastores,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Target:
        data_root = tmp_path_factory.mktemp("data")
        target = HiveCatalogTarget(metastores.get(request.param), data_root)
        target.features = without(target.features, "inside_in_full")
        return target


@pytest.mark.server
class TestHiveCatalog(CatalogSuite):
    """The adapter alone, with entries that are compared under a lock and by a condition."""

    @pytest.fixture(scope="class", params=INSIDE_IN_FULL)
    @classmethod
    def target(
        cls,
        request: pytest.FixtureRequest,
        metastores: Metastores,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Target:
        kind = HiveTarget if request.param == "2.3" else HiveWithOtherCatalogsTarget
        return kind(metastores.get(request.param), tmp_path_factory.mktemp("data"))
