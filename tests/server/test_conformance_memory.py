"""The conformance kit through the gateway, on a catalog in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.memory_suite import MemoryTarget
from server.rest_target import over_rest

from lance_bridge.testing import EntrySuite, RequestSuite, Target
from lance_bridge.testing.data_operations.every_operation import EveryOperationCases

pytestmark = pytest.mark.quick


class TestMemory(EntrySuite, RequestSuite, EveryOperationCases):
    """All cases of one client. `test_whole_requests` has all fields of requests."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        with over_rest(MemoryTarget(tmp_path_factory.mktemp("memory")), cls) as target:
            yield target
