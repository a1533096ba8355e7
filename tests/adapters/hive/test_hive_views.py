"""Views with the mark of Lance tables are none, and a mark that is not quite Lance's is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotEmptyError,
    TableAlreadyExistsError,
)
from servers.hive_raw import raw_client, raw_table

from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
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
    ),
]

ROWS = pa.table({"id": [0, 1, 2]})


def raw_entry(server: Metastore, database: str, name: str) -> object:
    request = hive.GetTableRequest(dbName=database, tblName=name)
    with raw_client(server.port) as client:
        return client.get_table_req(request).table


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
    before = raw_entry(server, made, "v")
    yield [made, "v"]
    assert raw_entry(server, made, "v") == before
    assert lance.dataset(str(place)).count_rows() == ROWS.num_rows


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
        with pytest.raises(InvalidInputError, match=r"not a Lance table.*_VIEW"):
            refuse()
    for take in (
        lambda: connected.declare_table(view),
        lambda: connected.create_table(view, ROWS, mode="exist_ok"),
        lambda: connected.create_table(view, ROWS, mode="overwrite"),
        lambda: connected.register_table(view, place, mode="overwrite"),
    ):
        with pytest.raises(TableAlreadyExistsError):
            take()
    with pytest.raises(NamespaceNotEmptyError, match="Lance tables only"):
        connected.drop_namespace(view[:1], behavior="Cascade")


def test_a_mark_with_spaces_is_no_mark(
    server: Metastore, connected: Calls, made: str, tmp_path: Path
) -> None:
    table = raw_table(made, "t", str(tmp_path / "t"))
    table.parameters["table_type"] = " lance "
    with raw_client(server.port) as client:
        client.create_table(table)
    with pytest.raises(InvalidInputError, match="not a Lance table"):
        connected.describe_table([made, "t"])
    assert connected.all_tables([made]) == []


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
        with pytest.raises(NamespaceNotEmptyError, match=r"Drop the views lance_bridge_\*"):
            connected.drop_namespace([made])
        client.drop_table(made, left, False)
    connected.declare_table([made, "t"])
    with pytest.raises(NamespaceNotEmptyError) as raised:
        connected.drop_namespace([made])
    assert "views" not in str(raised.value)
