"""The kit over a federation of a real metastore and Glue, on each of the two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.glue_server import SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores

from lance_bridge.testing import EntrySuite, RequestSuite, Target

from .federated_target import CombinationSuite, FederatedTarget
from .glue_target import GlueOnDiskTarget
from .hive_target import hive_target

RELEASE = "4.2"


@pytest.fixture(scope="module")
def targets(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Target]]:
    with (
        GlueServer() as server,
        HttpProxy(server.endpoint) as proxy,
        pytest.MonkeyPatch.context() as environment,
    ):
        # Pickles hold no secrets: the reader of a pickle takes them from the environment.
        environment.setenv("LANCE_BRIDGE_GLUE_SECRET_ACCESS_KEY", SECRET_KEY)
        yield {
            "prod": hive_target(RELEASE, metastores, tmp_path_factory.mktemp("hive")),
            "aws": GlueOnDiskTarget(server, proxy, tmp_path_factory.mktemp("glue")),
        }


@pytest.mark.servers
class TestFederatedHive(EntrySuite, RequestSuite):
    """The metastore's tables: what a federation could break."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, targets: dict[str, Target]) -> Target:
        return FederatedTarget("prod", targets)


@pytest.mark.slow
class TestFederatedGlue(CombinationSuite):
    """The same of Glue's, as far as the catalog decides it."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, targets: dict[str, Target]) -> Target:
        return FederatedTarget("aws", targets)
