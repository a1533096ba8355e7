"""A catalog in memory for the service of the SQL catalog, named ``prod``, with namespace ``db``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryServer

from lance_bridge.catalog import NamespaceRecord
from lance_bridge_spark.addresses import CatalogAddress

from .service_requests import CATALOG, NAMESPACE, Service


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[MemoryServer]:
    """A server of one level of namespaces, whose entries can change and be renamed."""
    levels = CAPABILITIES.namespace_levels[-1:]
    capabilities = replace(CAPABILITIES, namespace_levels=levels, no_rename="", no_alter="")
    server = SERVERS[request.node.nodeid] = MemoryServer(capabilities)
    server.namespaces[tuple(NAMESPACE)] = NamespaceRecord(tuple(NAMESPACE))
    yield server
    del SERVERS[request.node.nodeid]


@pytest.fixture
def service(server: MemoryServer, request: pytest.FixtureRequest, tmp_path: Path) -> Service:
    """The service of a session whose settings say where the server is."""
    properties = {
        "impl": "core.memory_catalog.MemoryNamespace",
        "uri": request.node.nodeid,
        "root": str(tmp_path / "lake"),
    }
    return Service(CatalogAddress(CATALOG, properties), server)
