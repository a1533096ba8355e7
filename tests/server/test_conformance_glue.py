"""The conformance kit through the gateway, on AWS Glue (moto, in its own process)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.glue_target import GlueOnDiskTarget
from server.rest_target import over_rest
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy

from lance_bridge.testing import ConformanceSuite, Target

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="class")
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    data_root = tmp_path_factory.mktemp("data")
    with (
        GlueServer() as server,
        HttpProxy(server.endpoint) as proxy,
        over_rest(GlueOnDiskTarget(server, proxy, data_root), request.cls) as target,
    ):
        yield target


class TestGlue(ConformanceSuite):
    """Everything."""
