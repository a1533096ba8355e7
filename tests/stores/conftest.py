"""A store that enforces the policies of sessions, with a bucket of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.object_stores import MinioServer


@pytest.fixture(scope="session")
def minio() -> Iterator[MinioServer]:
    with MinioServer() as server:
        yield server


@pytest.fixture
def bucket(minio: MinioServer, request: pytest.FixtureRequest) -> str:
    """The name of an empty bucket."""
    name = f"b{abs(hash(request.node.nodeid)):x}"
    minio.make_bucket(name)
    return name
