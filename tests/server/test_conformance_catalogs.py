"""What a gateway to each catalog could break, alone and in a federation; see `CombinationSuite`.

`test_conformance_memory` runs all cases of the kit through a gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conformance.combination_suite import CombinationSuite
from conformance.federated_target import FederatedTarget
from conformance.glue_target import GlueOnDiskTarget
from conformance.hive_target import hive_target
from conformance.unity_target import UnityTarget
from server.rest_target import over_rest
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing import Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.restart import RestartCases

pytestmark = pytest.mark.slow

Makers = Mapping[str, Callable[[], Target]]


@pytest.fixture(scope="module")
def makers(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Makers]:
    make: Callable[[str], Path] = tmp_path_factory.mktemp
    with (
        UnityServer(OPEN_SOURCE_0_6) as unity,
        GlueServer() as glue,
        HttpProxy(glue.endpoint) as proxy,
    ):
        yield {
            "old": lambda: hive_target("2.3", metastores, make("old")),
            "prod": lambda: hive_target("4.2", metastores, make("prod")),
            "aws": lambda: GlueOnDiskTarget(glue, proxy, make("aws")),
            "unity": lambda: UnityTarget(unity, str(make("unity"))),
        }


@pytest.fixture(scope="class", params=["alone", "federated"])
def target(request: pytest.FixtureRequest, makers: Makers) -> Iterator[Target]:
    catalog = request.cls.catalog
    if request.param == "alone":
        direct = makers[catalog]()
    else:
        direct = FederatedTarget(catalog, {name: make() for name, make in makers.items()})
    with over_rest(direct, request.cls) as target:
        yield target


class TestHive23(CombinationSuite):
    """Entries that are compared under a lock."""

    catalog = "old"


class TestHive42(CombinationSuite, ConcurrencyCases, RestartCases):
    """Entries that are compared by a condition; and one pool of connections for many clients."""

    catalog = "prod"


class TestGlue(CombinationSuite):
    """Entries that are compared by their version."""

    catalog = "aws"


class TestUnity(CombinationSuite):
    """Entries that never change, below two levels."""

    catalog = "unity"
