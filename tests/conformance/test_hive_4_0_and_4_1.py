"""The kit on Hive 4.0 and 4.1, which compare entries as 4.2 does: by ``make test-slow``.

`test_hive_3_1` and `test_hive_4_2` have three levels.
"""

from __future__ import annotations

import pytest
from servers.metastores import Metastores

from lance_bridge.testing import ServerSuite, Target

from .hive_target import hive_target

pytestmark = pytest.mark.slow


class TestHive(ServerSuite):
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
