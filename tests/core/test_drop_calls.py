"""How many requests DropTable and Cascade make of an object store."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from servers.http_faults import Request
from servers.http_proxy import HttpProxy
from servers.objectstore import MotoServer

from lance_bridge.catalog import TableRecord

from .building import BUCKET, DATASET, TABLE, at, create
from .memory_catalog import MemoryNamespace, MemoryServer

pytestmark = pytest.mark.server


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """A prefix of the test's own."""
    return f"s3://{BUCKET}/{request.node.name}"


@pytest.fixture
def wire(moto: MotoServer) -> Iterator[HttpProxy]:
    """What counts the requests to S3 by what they do, listings apart."""

    def key(request: Request) -> str:
        return "LIST" if "list-type=2" in request.path else request.method

    with HttpProxy(moto.endpoint, key=key) as proxy:
        yield proxy


@pytest.fixture
def counted(
    server: MemoryServer,
    moto: MotoServer,
    wire: HttpProxy,
    root: str,
    request: pytest.FixtureRequest,
) -> MemoryNamespace:
    """A namespace whose requests are counted."""
    assert not server.effects
    given = {**moto.storage_options, "aws_endpoint": wire.endpoint}
    options = {f"storage.{key}": value for key, value in given.items()}
    return MemoryNamespace(uri=request.node.nodeid, root=root, **options)


def register_others(server: MemoryServer, moto: MotoServer, root: str, count: int) -> None:
    """Add Lance tables with one version each."""
    for number in range(count):
        location, path = f"{root}/other{number}.lance", at(f"other{number}")
        rows = pa.table({"a": [1, 2]})
        lance.write_dataset(rows, location, storage_options=moto.storage_options)
        server.tables[path] = TableRecord(path, location, {"table_type": "lance"})


def test_a_drop_lists_its_table_once_and_reads_each_manifest_of_others_once(
    counted: MemoryNamespace, server: MemoryServer, moto: MotoServer, wire: HttpProxy, root: str
) -> None:
    others = 10
    register_others(server, moto, root, others)
    for reads in (others, 0):
        create(counted, TABLE)
        before = wire.counts
        counted.drop_table(api.DropTableRequest(id=TABLE))
        # Of the table: its files, its manifest, and versions that were added since.
        assert wire.counts - before == {"LIST": others + 2, "GET": reads + 1, "POST": 2}


def test_a_cascade_reads_each_manifest_once(
    counted: MemoryNamespace, server: MemoryServer, moto: MotoServer, wire: HttpProxy, root: str
) -> None:
    tables = 6
    register_others(server, moto, root, tables)
    counted.drop_namespace(api.DropNamespaceRequest(id=DATASET, behavior="Cascade"))
    # Of each: its files, when checked and when deleted, and whether it is a clone of another.
    assert wire.counts == {"LIST": tables * 3, "GET": tables * 3, "POST": tables * 2}
