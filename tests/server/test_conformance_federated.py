"""The conformance kit through a gateway whose root is a federation of all catalogs, on each one.

Each class runs what its catalog decides; everything else runs without a federation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.federated_target import FederatedTarget
from conformance.glue_target import GlueOnDiskTarget
from conformance.hive_target import hive_target
from conformance.unity_target import UnityTarget
from server.rest_target import over_rest
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing import EntrySuite, RequestSuite, ServerSuite, Target

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def targets(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Target]]:
    make: Callable[[str], Path] = tmp_path_factory.mktemp
    with (
        UnityServer(OPEN_SOURCE_0_6) as unity,
        GlueServer() as glue,
        HttpProxy(glue.endpoint) as proxy,
    ):
        yield {
            "old": hive_target("2.3", metastores, make("old")),
            "prod": hive_target("4.2", metastores, make("prod")),
            "aws": GlueOnDiskTarget(glue, proxy, make("aws")),
            "unity": UnityTarget(unity, str(make("unity"))),
        }


@pytest.fixture(scope="class")
def target(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Iterator[Target]:
    with over_rest(FederatedTarget(request.cls.catalog, targets), request.cls) as target:
        yield target


class TestHive23(EntrySuite, RequestSuite):
    """What the kind of catalog decides."""

    catalog = "old"


class TestHive42(EntrySuite, RequestSuite):
    """The same, of the newest release."""

    catalog = "prod"


class TestGlue(ServerSuite, RequestSuite):
    """What the server and the kind of catalog decide."""

    catalog = "aws"


class TestUnity(ServerSuite, RequestSuite):
    """The same."""

    catalog = "unity"
