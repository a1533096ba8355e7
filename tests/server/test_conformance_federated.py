"""The conformance kit through a gateway whose root is a federation, on two of its catalogs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.federated_target import FederatedTarget
from conformance.hive_target import hive_target
from conformance.unity_target import UnityTarget
from server.rest_target import over_rest
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing import EntrySuite, RequestSuite, ServerSuite, Target

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="class")
def targets(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Target]]:
    with UnityServer(OPEN_SOURCE_0_6) as server:
        yield {
            "prod": hive_target("2.3", metastores, tmp_path_factory.mktemp("hive")),
            "unity": UnityTarget(server, str(tmp_path_factory.mktemp("unity"))),
        }


@pytest.fixture(scope="class")
def target(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Iterator[Target]:
    with over_rest(FederatedTarget(request.cls.catalog, targets), request.cls) as target:
        yield target


class TestHive(EntrySuite, RequestSuite):
    """What the kind of catalog decides."""

    catalog = "prod"


class TestUnity(ServerSuite, RequestSuite):
    """What the server and the kind of catalog decide."""

    catalog = "unity"
