"""Entries of others beside Lance tables: where their data is, and that none of them blocks ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hmsclient.genthrift.hive_metastore import ttypes as hive
from lance_namespace import errors
from servers.hive_raw import raw_client, raw_partition, raw_table
from servers.metastores import Metastores

from lance_bridge.testing.calls import Calls
from lance_bridge_hive import entry_reads
from lance_bridge_hive.entry_reads import in_halves
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = pytest.mark.spec("hive.md#deletion-of-data")

PARTITIONS = 50


@pytest.fixture(scope="module", params=["2.3", "3.1"])
def hms(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    return metastores.get(request.param)


@pytest.fixture
def client(hms: Metastore) -> Iterator[Calls]:
    with open_calls(uri=hms.uri) as calls:
        yield calls


@pytest.fixture
def theirs(hms: Metastore, client: Calls) -> Iterator[str]:
    """A database, and another beside it for Lance tables."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    for each in (name, f"{name}_lance"):
        client.create_namespace([each])
    yield name
    with raw_client(hms.port) as raw:
        for each in (name, f"{name}_lance"):
            for table in raw.get_all_tables(each):
                raw.drop_table(each, table, False)
            raw.drop_database(each, False, False)


def entry_of_spark(table: Any, path: str, provider: str) -> None:
    table.sd.location = f"file:{path}-elsewhere/{table.tableName}-__PLACEHOLDER__"
    table.sd.inputFormat = "org.apache.hadoop.mapred.SequenceFileInputFormat"
    table.sd.serdeInfo.parameters = {"path": f"file:{path}", "serialization.format": "1"}
    table.parameters["spark.sql.sources.provider"] = provider


def delta(table: Any, path: str) -> None:
    entry_of_spark(table, path, "delta")


def csv(table: Any, path: str) -> None:
    entry_of_spark(table, path, "csv")


def unknown_format(table: Any, path: str) -> None:
    entry_of_spark(table, path, "com.example.shards")
    table.sd.serdeInfo.parameters = {"shards": f"file:{path}/shards"}


def iceberg(table: Any, path: str) -> None:
    table.sd.location = f"file:{path}-old"
    metadata = f"file:{path}/metadata/00001-{uuid.uuid4()}.metadata.json"
    table.parameters |= {"table_type": "ICEBERG", "metadata_location": metadata}


def symlinks_to_delta(table: Any, path: str) -> None:
    table.sd.location = f"file:{path}/_symlink_format_manifest"


def skewed(table: Any, path: str) -> None:
    table.sd.location = f"file:{path}-own"
    table.sd.skewedInfo = hive.SkewedInfo(
        skewedColNames=["id"],
        skewedColValues=[["1"]],
        skewedColValueLocationMaps={("1",): f"file:{path}/id=1"},
    )


@pytest.mark.servers
@pytest.mark.parametrize(
    "change",
    [delta, csv, unknown_format, iceberg, symlinks_to_delta],
    ids=lambda each: each.__name__,
)
def test_a_table_in_the_directory_of_another_entry_keeps_its_files(
    hms: Metastore,
    client: Calls,
    theirs: str,
    tmp_path: Path,
    change: Callable[[Any, str], None],
) -> None:
    location = tmp_path / "shared"
    lance.write_dataset(pa.table({"id": [1]}), location)
    entry = raw_table(theirs, "other", str(location))
    entry.parameters = {"EXTERNAL": "TRUE"}
    change(entry, str(location))
    with raw_client(hms.port) as raw:
        raw.create_table(entry)
    mine = [f"{theirs}_lance", "mine"]
    client.register_table(mine, str(location))
    with pytest.raises(errors.InvalidTableStateError, match=f"overlaps that of '{theirs}.other'"):
        client.drop_table(mine)
    assert lance.dataset(location).count_rows() == 1
    with raw_client(hms.port) as raw:
        raw.drop_table(theirs, "other", False)
    client.drop_table(mine)
    assert not (location / "_versions").exists()


@pytest.mark.servers
@pytest.mark.parametrize("location", ["path", "partition"])
def test_partitions_of_spark_keep_their_files(
    hms: Metastore, client: Calls, theirs: str, tmp_path: Path, location: str
) -> None:
    mine = [f"{theirs}_lance", "mine"]
    files = Path(client.create_table(mine, pa.table({"id": [1]})).location or "")
    (files / "day=1").mkdir()
    (files / "day=1" / "part-0.json").write_text("{}")
    entry = raw_table(theirs, "days", str(tmp_path / "days"))
    entry.parameters = {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "json"}
    entry.partitionKeys = [hive.FieldSchema(name="day", type="string")]
    place = files / "day=1" if location == "partition" else tmp_path / "none"
    part = raw_partition(entry, "1", place)
    if location == "path":
        part.sd.serdeInfo.parameters = {"path": f"file:{files}/day=1"}
    with raw_client(hms.port) as raw:
        raw.create_table(entry)
        raw.add_partitions([part])
    with pytest.raises(errors.InvalidTableStateError, match="partition"):
        client.drop_table(mine)
    assert (files / "day=1" / "part-0.json").exists()


@pytest.mark.servers
def test_insert_only_tables_block_nothing(metastores: Metastores, tmp_path: Path) -> None:
    """Hive 3 and 4 refuse them to clients that declare nothing, and the batch with them."""
    server, name = metastores.get("3.1"), f"db_{uuid.uuid4().hex[:12]}"
    with open_calls(uri=server.uri, root=str(tmp_path)) as calls, raw_client(server.port) as raw:
        for each in (name, f"{name}_lance"):
            calls.create_namespace([each])
        entry = raw_table(name, "acid", str(tmp_path / "acid"))
        entry.tableType = "MANAGED_TABLE"
        entry.parameters = {"transactional": "true", "transactional_properties": "insert_only"}
        raw.create_table(entry)
        with pytest.raises(errors.InvalidInputError, match="not a Lance table"):
            calls.describe_table([name, "acid"])
        with pytest.raises(errors.TableAlreadyExistsError):
            calls.declare_table([name, "acid"])
        mine = [f"{name}_lance", "mine"]
        calls.create_table(mine, pa.table({"id": [1]}))
        calls.drop_table(mine)
        raw.drop_table(name, "acid", False)
        for each in (name, f"{name}_lance"):
            calls.drop_namespace([each])


@pytest.mark.servers
@pytest.mark.parametrize("limit", [1, 7])
def test_fewer_partitions_are_read_where_the_metastore_limits_them(
    metastores: Metastores, tmp_path: Path, limit: int
) -> None:
    settings = {"metastore.limit.partition.request": str(limit)}
    with (
        metastores.new("4.2", settings=settings) as server,
        open_calls(uri=server.uri, root=str(tmp_path / "root")) as calls,
        raw_client(server.port) as raw,
    ):
        calls.create_namespace(["db"], properties={"database.location-uri": f"file:{tmp_path}/db"})
        entry = raw_table("db", "days", str(tmp_path / "days"))
        entry.parameters = {"EXTERNAL": "TRUE"}
        entry.partitionKeys = [hive.FieldSchema(name="day", type="string")]
        raw.create_table(entry)
        mine = ["db", "mine"]
        files = Path(calls.create_table(mine, pa.table({"id": [1]})).location or "")
        (files / "notes.txt").write_text("a note")
        locations = [tmp_path / f"day={number}" for number in range(PARTITIONS)]
        raw.add_partitions(
            [raw_partition(entry, str(n), location) for n, location in enumerate(locations)]
        )
        raw.add_partitions([raw_partition(entry, str(PARTITIONS), files / "day=x")])
        with pytest.raises(errors.InvalidTableStateError, match="partition"):
            calls.drop_table(mine)
        raw.drop_partition("db", "days", [str(PARTITIONS)], False)
        calls.drop_table(mine)
        assert sorted(each.name for each in files.iterdir()) == ["day=x", "notes.txt"]


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("bad", [set(), {0}, {9}, {3, 4}, set(range(10))])
def test_a_batch_is_halved_down_to_the_entries_that_fail(bad: set[int]) -> None:
    def read(names: Any) -> list[str]:
        if bad & {int(each) for each in names}:
            raise errors.InternalError("one of them")
        return [f"entry {each}" for each in names]

    good, failed = in_halves(read, [str(number) for number in range(10)])
    assert list(failed) == [str(number) for number in sorted(bad)]
    assert good == [f"entry {number}" for number in range(10) if number not in bad]


@pytest.mark.quick
def test_a_server_that_refuses_all_is_not_called_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_reads, "_MOST_FAILURES", 4)
    calls = 0

    def read(_: Any) -> list[str]:
        nonlocal calls
        calls += 1
        raise errors.PermissionDeniedError("none of them")

    found, failed = in_halves(read, [str(number) for number in range(1024)])
    assert (len(found), len(failed)) == (0, 1024)
    assert calls < 40


@pytest.mark.quick
def test_an_outage_is_no_property_of_an_entry() -> None:
    def read(_: Any) -> list[str]:
        raise errors.ServiceUnavailableError("the metastore does not respond")

    with pytest.raises(errors.ServiceUnavailableError):
        in_halves(read, ["a", "b"])
