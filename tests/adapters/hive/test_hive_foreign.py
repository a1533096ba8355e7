"""Entries of others beside Lance tables: where their data is, and which are Lance's."""

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
from servers.hive_entries import raw_client, raw_entry, raw_partition, raw_table
from servers.metastores import Metastores
from servers.proxy import ThriftProxy

from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import database_on, open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#deletion-of-data")]

PARTITIONS = 50


@pytest.fixture(scope="module", params=["2.3", "3.1", "4.0"])
def server(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    return metastores.get(request.param)


@pytest.fixture
def other_db(server: Metastore, connected: Calls) -> Iterator[str]:
    """A database for entries of others."""
    with database_on(server, connected) as name:
        yield name


@pytest.fixture
def mine(server: Metastore, connected: Calls) -> Iterator[list[str]]:
    """The identifier of a Lance table in another database."""
    with database_on(server, connected) as name:
        yield [name, "mine"]


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


@pytest.mark.parametrize(
    "change",
    [delta, csv, unknown_format, iceberg, symlinks_to_delta],
    ids=lambda each: each.__name__,
)
def test_a_table_in_the_directory_of_another_entry_keeps_its_files(
    server: Metastore,
    connected: Calls,
    other_db: str,
    mine: list[str],
    tmp_path: Path,
    *,
    change: Callable[[Any, str], None],
) -> None:
    location = tmp_path / "shared"
    lance.write_dataset(pa.table({"id": [1]}), location)
    entry = raw_table(other_db, "other", str(location))
    entry.parameters = {"EXTERNAL": "TRUE"}
    change(entry, str(location))
    with raw_client(server.port) as raw:
        raw.create_table(entry)
    connected.register_table(mine, str(location))
    with pytest.raises(errors.InvalidTableStateError, match=f"overlaps that of '{other_db}.other'"):
        connected.drop_table(mine)
    assert lance.dataset(location).count_rows() == 1
    with raw_client(server.port) as raw:
        raw.drop_table(other_db, "other", False)
    connected.drop_table(mine)
    assert not (location / "_versions").exists()


@pytest.mark.parametrize("location", ["path", "partition"])
def test_partitions_of_spark_keep_their_files(
    server: Metastore,
    connected: Calls,
    other_db: str,
    mine: list[str],
    tmp_path: Path,
    *,
    location: str,
) -> None:
    files = Path(connected.create_table(mine, pa.table({"id": [1]})).location or "")
    (files / "day=1").mkdir()
    (files / "day=1" / "part-0.json").write_text("{}")
    entry = raw_table(other_db, "days", str(tmp_path / "days"))
    entry.parameters = {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "json"}
    entry.partitionKeys = [hive.FieldSchema(name="day", type="string")]
    place = files / "day=1" if location == "partition" else tmp_path / "none"
    part = raw_partition(entry, "1", place)
    if location == "path":
        part.sd.serdeInfo.parameters = {"path": f"file:{files}/day=1"}
    with raw_client(server.port) as raw:
        raw.create_table(entry)
        raw.add_partitions([part])
    with pytest.raises(errors.InvalidTableStateError, match="partition"):
        connected.drop_table(mine)
    assert (files / "day=1" / "part-0.json").exists()


def test_insert_only_tables_block_nothing(metastores: Metastores, tmp_path: Path) -> None:
    """Hive 3 and 4 refuse them to clients that declare nothing, and the batch with them."""
    server = metastores.get("3.1")
    with (
        open_calls(uri=server.uri, root=str(tmp_path)) as calls,
        database_on(server, calls) as other_db,
        database_on(server, calls) as ours,
        raw_client(server.port) as raw,
    ):
        entry = raw_table(other_db, "acid", str(tmp_path / "acid"))
        entry.tableType = "MANAGED_TABLE"
        entry.parameters = {"transactional": "true", "transactional_properties": "insert_only"}
        raw.create_table(entry)
        with pytest.raises(errors.InvalidInputError, match="not a Lance table"):
            calls.describe_table([other_db, "acid"])
        with pytest.raises(errors.TableAlreadyExistsError):
            calls.declare_table([other_db, "acid"])
        calls.create_table([ours, "mine"], pa.table({"id": [1]}))
        calls.drop_table([ours, "mine"])


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


# -- other catalogs, and partitions ---------------------------------------------------------------


ROWS = pa.table({"id": [0, 1, 2]})


def register(calls: Calls, table: list[str], place: Path) -> list[str]:
    calls.register_table(table, str(place))
    return table


def add_partitions(server: Metastore, table: list[str], places: list[Path]) -> None:
    """Make a foreign table with partitions at these places."""
    entry = raw_table(table[0], table[1], str(places[0].parent / f"{table[1]}-own"))
    entry.parameters = {"EXTERNAL": "TRUE"}
    entry.partitionKeys = [hive.FieldSchema(name="day", type="string")]
    with raw_client(server.port) as client:
        client.create_table(entry)
        client.add_partitions(
            [raw_partition(entry, str(number), place) for number, place in enumerate(places)]
        )


@pytest.fixture(scope="module", params=["3.1", "4.0"])
def newer(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    return metastores.get(request.param)


@pytest.fixture
def other(newer: Metastore, tmp_path: Path) -> Iterator[tuple[Calls, list[str]]]:
    """A namespace with catalogs, and a database of another catalog than Hive's own."""
    name = f"cat_{uuid.uuid4().hex[:12]}"
    with open_calls(uri=newer.uri, catalog_levels="true", root=str(tmp_path)) as calls:
        calls.create_namespace([name])
        calls.create_namespace([name, "sales"])
        yield calls, [name, "sales"]
        calls.drop_namespace([name], behavior="Cascade")


@pytest.fixture
def plain(newer: Metastore) -> Iterator[tuple[Calls, str]]:
    """A namespace without catalogs, and a database in it."""
    with open_calls(uri=newer.uri) as calls, database_on(newer, calls) as name:
        yield calls, name


def test_a_table_of_another_catalog_keeps_the_files_that_it_shares(
    plain: tuple[Calls, str],
    other: tuple[Calls, list[str]],
    tmp_path: Path,
) -> None:
    calls, database = plain
    with_catalogs, elsewhere = other
    place = tmp_path / "t.lance"
    lance.write_dataset(ROWS, place)
    mine = register(calls, [database, "t"], place)
    other_table = register(with_catalogs, [*elsewhere, "t"], place)
    for request in (
        lambda: calls.drop_table(mine),
        lambda: calls.drop_namespace([database], behavior="Cascade"),
    ):
        with pytest.raises(errors.InvalidTableStateError, match=f"overlaps.*{other_table[0]}"):
            request()
    assert lance.dataset(place).count_rows() == 3
    with_catalogs.deregister_table(other_table)
    calls.drop_table(mine)
    assert not place.exists()


def test_partitions_are_read_only_where_others_files_lie_in_the_table(
    calls: Calls,
    metastore: Metastore,
    proxy: ThriftProxy,
    database: str,
    tmp_path: Path,
) -> None:
    for name in ("clean", "mixed"):
        lance.write_dataset(ROWS, tmp_path / f"{name}.lance")
        register(calls, [database, name], tmp_path / f"{name}.lance")
    (tmp_path / "mixed.lance" / "notes.txt").write_text("kept")
    add_partitions(metastore, [database, "days"], [tmp_path / f"day={n}" for n in range(3)])
    with open_calls(uri=proxy.uri) as behind:
        behind.drop_table([database, "clean"])
        assert proxy.calls["get_partition_names"] == 0
        behind.drop_table([database, "mixed"])
        # At least: other tests leave partitioned tables in the metastore that they share.
        assert proxy.calls["get_partition_names"] >= 1
        assert proxy.calls["get_partitions_by_names"] >= 1
        assert proxy.calls["get_catalogs"] == 1  # the first answer of Hive 2 does for both
    assert [each.name for each in (tmp_path / "mixed.lance").iterdir()] == ["notes.txt"]


# -- views ----------------------------------------------------------------------------------------


@pytest.fixture(params=["VIRTUAL_VIEW", "MATERIALIZED_VIEW"])
def view(
    request: pytest.FixtureRequest, server: Metastore, made: str, tmp_path: Path
) -> Iterator[list[str]]:
    """A view with the mark of Lance tables, which is as it was after the test."""
    place = tmp_path / "v.lance"
    lance.write_dataset(ROWS, str(place))
    table = raw_table(made, "v", str(place))
    table.tableType = request.param
    table.viewOriginalText = table.viewExpandedText = "select 1"
    if request.param == "VIRTUAL_VIEW":
        table.sd.location = None
    with raw_client(server.port) as client:
        client.create_table(table)
    before = raw_entry(server.port, made, "v")
    yield [made, "v"]
    assert raw_entry(server.port, made, "v") == before
    assert lance.dataset(str(place)).count_rows() == ROWS.num_rows


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#deregistertable",
    "common.md#describetable",
    "common.md#dropnamespace",
    "common.md#droptable",
    "common.md#registertable",
    "common.md#renametable",
    "common.md#tableexists",
    "hive.md#lance-table-identification",
)
def test_a_view_with_the_mark_of_lance_is_no_lance_table(
    connected: Calls, view: list[str], tmp_path: Path
) -> None:
    place = str(tmp_path / "elsewhere")
    for refuse in (
        lambda: connected.describe_table(view),
        lambda: connected.table_exists(view),
        lambda: connected.count(view),
        lambda: connected.rename_table(view, "other"),
        lambda: connected.drop_table(view),
        lambda: connected.deregister_table(view),
    ):
        with pytest.raises(errors.InvalidInputError, match=r"not a Lance table.*_VIEW"):
            refuse()
    for take in (
        lambda: connected.declare_table(view),
        lambda: connected.create_table(view, ROWS, mode="exist_ok"),
        lambda: connected.create_table(view, ROWS, mode="overwrite"),
        lambda: connected.register_table(view, place, mode="overwrite"),
    ):
        with pytest.raises(errors.TableAlreadyExistsError):
            take()
    with pytest.raises(errors.NamespaceNotEmptyError, match="Lance tables only"):
        connected.drop_namespace(view[:1], behavior="Cascade")


@pytest.mark.spec("hive.md#lance-table-identification")
def test_a_mark_with_spaces_is_no_mark(
    server: Metastore, connected: Calls, made: str, tmp_path: Path
) -> None:
    table = raw_table(made, "t", str(tmp_path / "t"))
    table.parameters["table_type"] = " lance "
    with raw_client(server.port) as client:
        client.create_table(table)
    with pytest.raises(errors.InvalidInputError, match="not a Lance table"):
        connected.describe_table([made, "t"])
    assert connected.all_tables([made]) == []


@pytest.mark.spec("common.md#dropnamespace")
def test_a_helper_view_that_was_left_is_named_when_it_keeps_a_database(
    server: Metastore, connected: Calls, made: str, tmp_path: Path
) -> None:
    left = f"lance_bridge_{'0a' * 16}"
    table = raw_table(made, left, str(tmp_path / "v"))
    table.tableType = "VIRTUAL_VIEW"
    table.viewOriginalText = table.viewExpandedText = "select 1"
    table.sd.location = None
    with raw_client(server.port) as client:
        client.create_table(table)
        with pytest.raises(errors.NamespaceNotEmptyError, match=r"Drop the views lance_bridge_\*"):
            connected.drop_namespace([made])
        client.drop_table(made, left, False)
    connected.declare_table([made, "t"])
    with pytest.raises(errors.NamespaceNotEmptyError) as raised:
        connected.drop_namespace([made])
    assert "views" not in str(raised.value)
