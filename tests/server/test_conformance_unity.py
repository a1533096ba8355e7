"""The conformance kit through the gateway, on a double of Unity Catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.unity_target import UnityTarget
from server.rest_target import over_rest
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing import ConformanceSuite, Target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="class")
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    with UnityServer(OPEN_SOURCE_0_6) as server:
        direct = UnityTarget(server, str(tmp_path_factory.mktemp("data")))
        with over_rest(direct, request.cls) as target:
            yield target


class TestUnity(ConformanceSuite):
    """Everything."""
