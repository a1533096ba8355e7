"""Tasks whose credentials end while they read or write go on with new ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from lance_namespace import CreateNamespaceRequest
from servers.glue_server import ROLE, GlueServer
from servers.http_proxy import HttpProxy
from servers.sparks import Spark
from spark.vended_jobs import FILES

from lance_bridge.credentials import EXPIRES_AT
from lance_bridge_spark import settings
from lance_bridge_spark.addresses import Access, CatalogAddress, TableAddress
from lance_bridge_spark.lookup import create_table, find_table
from lance_bridge_spark.source.writer import Target

pytestmark = [pytest.mark.slow, pytest.mark.spec("spark.md#credentials")]


SECONDS = 6.0
"""How long credentials last: long enough for a few requests."""
ROWS = pa.table({"id": pa.array(range(4), pa.int64())})


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    with GlueServer() as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture
def table(
    server: GlueServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[TableAddress]:
    """An empty table whose files are for a role alone, whose sessions are short."""
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/config")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    properties = {
        "impl": "glue",
        **server.properties,
        "root": f"s3://bucket/{tmp_path.name}",
        "assume_role_arn": ROLE,
        "assume_role_endpoint": server.endpoint,
        "storage.aws_endpoint": server.endpoint,
        "storage.allow_http": "true",
    }
    catalog = CatalogAddress("glue", properties)
    database = f"db_{time.time_ns()}"
    with server.short_sessions(SECONDS):
        catalog.connect().create_namespace(CreateNamespaceRequest(id=[database]))
        address = TableAddress(catalog, (database, "t"))
        create_table(address, ROWS.schema)
        yield address


def access_of(table: TableAddress, *, write: bool) -> Access:
    found = find_table(table)
    return found.access(found.open(), write=write)


def slowly(access: Access) -> Iterator[pa.RecordBatch]:
    """Yield the rows, half of them when the credentials of before have ended."""
    storage = access.storage_options()
    first, second = ROWS.to_batches(2)
    yield first
    assert storage is not None
    wait_until(int(storage[EXPIRES_AT]) / 1000 + SECONDS)
    yield second


def wait_until(moment: float) -> None:
    while time.time() < moment:
        time.sleep(0.1)


@pytest.mark.servers
def test_readers_writers_and_other_connections_share_no_store_in_a_session() -> None:
    """Lance would use the credentials of the one that came first for all."""

    def identity(*, write: bool, **properties: str) -> str:
        address = TableAddress(CatalogAddress("glue", properties), ("db", "t"))
        access = Access(address, "s3://bucket/t", 1, write=write, storage={EXPIRES_AT: "0"})
        return str(access.renewal_arguments()["namespace_client"].namespace_id())

    found = [
        identity(write=write, access_key_id=key) for write in (True, False) for key in ("a", "b")
    ]
    assert len({*found}) == 4
    assert identity(write=True, access_key_id="a") == found[0]


def test_a_task_writes_on_when_its_credentials_have_ended(table: TableAddress) -> None:
    access = access_of(table, write=True)
    target = Target(
        access,
        access.location,
        ROWS.schema.serialize().to_pybytes(),
        {"id": "id"},
        "append",
        {"max_rows_per_file": 2},
    )
    assert len(target.write(slowly(access)).fragments) == 2


def test_an_open_table_is_written_to_and_read_when_its_credentials_have_ended(
    table: TableAddress,
) -> None:
    access = access_of(table, write=True)
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, slowly(access))
    files = write_fragments(reader, access.open(), max_rows_per_file=2)
    assert len(files) == 2
    place, storage = access.location, access.storage_options()
    append = lance.LanceOperation.Append(files)
    lance.LanceDataset.commit(place, append, read_version=1, storage_options=storage)
    dataset = access_of(table, write=False).open()
    batches = dataset.to_batches(batch_size=1, batch_readahead=1, fragment_readahead=1)
    rows = [next(batches)]
    wait_until(time.time() + SECONDS)
    rows += list(batches)
    assert sorted(pa.Table.from_batches(rows)["id"].to_pylist()) == [0, 1, 2, 3]


def test_sql_and_the_data_source_write_and_read_with_vended_sessions_alone(
    server: GlueServer, tmp_path: Path
) -> None:
    """A direct catalog whose vendor's sessions end while tasks write; moto refuses ended ones."""
    with HttpProxy(server.endpoint) as sts:
        properties = {
            "impl": "glue",
            **server.properties,
            "root": f"s3://bucket/{tmp_path.name}",
            **{f"storage.{key}": value for key, value in server.storage_options.items()},
            "credentials.vendor": "aws",
            "credentials.role_arn": ROLE,
            "credentials.sts_endpoint": sts.endpoint,
            "credentials.write": "true",
        }
        lake = CatalogAddress("lake", properties)
        database = f"db_{time.time_ns()}"
        lake.connect().create_namespace(CreateNamespaceRequest(id=[database]))
        conf = settings({"lake": properties})
        with server.short_sessions(SECONDS):
            run = Spark(conf=conf, environment={"AWS_EC2_METADATA_DISABLED": "true"}).run
            found = run(
                "spark.vended_jobs:write_and_read",
                tmp_path / "spark",
                seconds=300,
                table=f"lake.{database}.t",
            )
        assert found == [2 * FILES, 2 * FILES]
        assert 4 <= sts.counts["AssumeRole"] <= 60, sts.counts
