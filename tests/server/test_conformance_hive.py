"""The conformance kit through the gateway, on real Hive Metastores: by ``make test-slow``.

`test_conformance_memory` runs it on a catalog in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.hive_target import hive_target
from server.rest_target import over_rest
from servers.metastores import Metastores

from lance_bridge.testing import ConformanceSuite, EntrySuite, RequestSuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.suite import DataOperationSuite

pytestmark = [pytest.mark.server, pytest.mark.slow]


class OnRelease:
    """A gateway to a metastore of one release."""

    release: str

    @pytest.fixture(scope="class")
    @classmethod
    def target(
        cls, metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Target]:
        data_root = tmp_path_factory.mktemp("data")
        with over_rest(hive_target(cls.release, metastores, data_root), cls) as target:
            yield target


class TestHive23(
    OnRelease, ConcurrencyCases, EntrySuite, RequestSuite, DataOperationSuite, StatefulCases
):
    """Everything but restarts, which 4.2 has."""

    release = "2.3"


class TestHive42(OnRelease, ConformanceSuite):
    """Everything."""

    release = "4.2"
