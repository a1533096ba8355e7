"""Fixtures of the tests over the catalog in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers.object_stores import MotoServer

from .managed_tables import able as able  # noqa: PLC0414 - a fixture
from .managed_tables import create_managed, leave_unfinished
from .memory_catalog import (
    ASKED,
    BEFORE,
    BUCKET,
    LOCATION,
    OWN,
    SERVERS,
    TABLE,
    MemoryNamespace,
    MemoryServer,
    build,
    connect,
    create,
    put,
    start_server,
    vendor_properties,
)
from .table_data import make


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoServer]:
    """An S3 in a process of its own."""
    with MotoServer() as server:
        yield server


@pytest.fixture(scope="module")
def moto(moto_server: MotoServer) -> MotoServer:
    """An S3 with ``BUCKET``, in which nothing of other modules is left."""
    moto_server.reset()
    moto_server.make_bucket(BUCKET)
    return moto_server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[MemoryServer]:
    """A server of the test's own, named after it, with one empty namespace on each level."""
    yield start_server(request.node.nodeid)
    del SERVERS[request.node.nodeid]


@pytest.fixture
def namespace(
    server: MemoryServer, request: pytest.FixtureRequest, tmp_path: Path
) -> MemoryNamespace:
    """A namespace on that server, whose tables are under ``tmp_path / "lake"``."""
    assert not server.effects
    return MemoryNamespace(uri=request.node.nodeid, root=str(tmp_path / "lake"))


@pytest.fixture
def on_s3(
    server: MemoryServer, moto: MotoServer, request: pytest.FixtureRequest
) -> MemoryNamespace:
    """A namespace whose tables are under a prefix of the test's own in ``BUCKET``."""
    assert not server.effects
    options = {f"storage.{key}": value for key, value in moto.storage_options.items()}
    root = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    return MemoryNamespace(uri=request.node.nodeid, root=root, **options)


@pytest.fixture
def with_table(namespace: MemoryNamespace) -> MemoryNamespace:
    """A namespace with a table of the rows 0, 1 and 2."""
    create(namespace, TABLE)
    return namespace


@pytest.fixture
def two_versions(namespace: MemoryNamespace) -> MemoryNamespace:
    """A namespace with a table of two versions, the second with one row more."""
    build(namespace, 2)
    return namespace


@pytest.fixture
def three_versions(namespace: MemoryNamespace) -> MemoryNamespace:
    """The same with a third version, with yet another row."""
    build(namespace, 3)
    return namespace


@pytest.fixture
def ns(namespace: MemoryNamespace) -> MemoryNamespace:
    """A namespace with a table of many types."""
    make(namespace)
    return namespace


@pytest.fixture
def managed(able: MemoryServer, namespace: MemoryNamespace) -> MemoryNamespace:
    """A namespace with a managed table of the rows 0, 1 and 2, whose entry can be set."""
    assert able.capabilities.no_alter == ""
    create_managed(namespace)
    return namespace


@pytest.fixture
def unfinished(managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch) -> MemoryNamespace:
    """The same, with a version 2 whose client died before its manifest had its final name."""
    leave_unfinished(managed, monkeypatch)
    return managed


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the test's vendor in memory notes what it is asked."""
    name = request.node.nodeid
    yield name
    ASKED.pop(name, None)
    BEFORE.pop(name, None)


@pytest.fixture
def vending_with(
    server: MemoryServer, request: pytest.FixtureRequest, log: str
) -> Callable[..., MemoryNamespace]:
    """Connects with that vendor and further properties, to one table at ``LOCATION``."""
    put(server, TABLE[-1], LOCATION)
    return lambda **more: connect(request, **vendor_properties(log, **more))


@pytest.fixture
def vending(vending_with: Callable[..., MemoryNamespace]) -> MemoryNamespace:
    """A namespace with that vendor and credentials of its own."""
    return vending_with(**OWN)
