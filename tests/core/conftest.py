"""Fixtures of the tests over the catalog in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.objectstore import MotoServer

from lance_bridge.catalog import NamespaceRecord

from .building import BUCKET, DATASET
from .memory_catalog import SERVERS, MemoryNamespace, MemoryServer


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    """An S3 of the module's own, in a process of its own, with ``BUCKET``."""
    with MotoServer() as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[MemoryServer]:
    """A server of the test's own, named after it, with one empty namespace on each level."""
    server = SERVERS[request.node.nodeid] = MemoryServer()
    for depth in range(1, len(DATASET) + 1):
        path = tuple(DATASET[:depth])
        server.namespaces[path] = NamespaceRecord(path)
    yield server
    del SERVERS[request.node.nodeid]


@pytest.fixture
def namespace(
    server: MemoryServer, request: pytest.FixtureRequest, tmp_path: Path
) -> MemoryNamespace:
    """A namespace on that server, whose tables are under ``tmp_path / "lake"``."""
    assert not server.effects
    return MemoryNamespace(uri=request.node.nodeid, root=str(tmp_path / "lake"))
