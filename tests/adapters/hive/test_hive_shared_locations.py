"""What keeps DropTable from deleting: tables of other Hive catalogs, and partitions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hmsclient.genthrift.hive_metastore import ttypes as hive
from lance_namespace.errors import InvalidTableStateError
from servers.hive_raw import raw_client, raw_partition, raw_table
from servers.metastores import Metastores
from servers.proxy import ThriftProxy

from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#deletion-of-data")]

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
    name = f"db_{uuid.uuid4().hex[:12]}"
    with open_calls(uri=newer.uri) as calls:
        calls.create_namespace([name])
        yield calls, name
        calls.drop_namespace([name], behavior="Cascade")


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
    theirs = register(with_catalogs, [*elsewhere, "t"], place)
    for request in (
        lambda: calls.drop_table(mine),
        lambda: calls.drop_namespace([database], behavior="Cascade"),
    ):
        with pytest.raises(InvalidTableStateError, match=f"overlaps.*{theirs[0]}"):
            request()
    assert lance.dataset(place).count_rows() == 3
    with_catalogs.deregister_table(theirs)
    calls.drop_table(mine)
    assert not place.exists()


def test_other_tables_of_other_catalogs_do_not_keep_a_table(
    plain: tuple[Calls, str],
    other: tuple[Calls, list[str]],
    tmp_path: Path,
) -> None:
    calls, database = plain
    with_catalogs, elsewhere = other
    for name in ("mine", "theirs"):
        lance.write_dataset(ROWS, tmp_path / f"{name}.lance")
    register(with_catalogs, [*elsewhere, "t"], tmp_path / "theirs.lance")
    mine = register(calls, [database, "t"], tmp_path / "mine.lance")
    calls.drop_table(mine)
    assert not (tmp_path / "mine.lance").exists()
    assert lance.dataset(tmp_path / "theirs.lance").count_rows() == 3


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
