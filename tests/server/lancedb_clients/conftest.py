"""A gateway over a real Hive Metastore."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server.gateways import serve_namespace
from servers.metastores import Metastores

from lance_bridge_hive import HiveNamespace


@pytest.fixture(scope="package")
def hive(
    tmp_path_factory: pytest.TempPathFactory, metastores: Metastores
) -> Iterator[HiveNamespace]:
    port, root = metastores.get("2.3").port, tmp_path_factory.mktemp("root")
    given = {"uri": f"thrift://127.0.0.1:{port}", "root": str(root)}
    # Other tests leave many tables there, which each of hundreds of drops would read.
    with HiveNamespace(**given, **{"drop.check-sharing": "namespace"}) as namespace:
        yield namespace


@pytest.fixture(scope="package")
def url(hive: HiveNamespace) -> Iterator[str]:
    with serve_namespace(hive) as address:
        yield address
