"""Views with the mark of Lance tables are none, and a mark that is not quite Lance's is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    ListTablesRequest,
    RegisterTableRequest,
    RenameTableRequest,
    TableExistsRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotEmptyError,
    TableAlreadyExistsError,
)
from servers.hive_raw import raw_client, raw_table

from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

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


REFUSED: dict[str, Callable[[HiveNamespace, list[str]], object]] = {
    "describe": lambda ns, t: ns.describe_table(DescribeTableRequest(id=t)),
    "exists": lambda ns, t: ns.table_exists(TableExistsRequest(id=t)),
    "count": lambda ns, t: ns.count_table_rows(CountTableRowsRequest(id=t)),
    "rename": lambda ns, t: ns.rename_table(RenameTableRequest(id=t, new_table_name="other")),
    "drop": lambda ns, t: ns.drop_table(DropTableRequest(id=t)),
    "deregister": lambda ns, t: ns.deregister_table(DeregisterTableRequest(id=t)),
}


@pytest.mark.parametrize("operation", REFUSED)
def test_a_view_with_the_mark_of_lance_is_no_lance_table(
    connected: HiveNamespace, view: list[str], operation: str
) -> None:
    with pytest.raises(InvalidInputError, match=r"not a Lance table.*_VIEW"):
        REFUSED[operation](connected, view)


TAKEN: dict[str, Callable[[HiveNamespace, list[str], str], object]] = {
    "declare": lambda ns, t, _: ns.declare_table(DeclareTableRequest(id=t)),
    "create": lambda ns, t, _: ns.create_table(CreateTableRequest(id=t), ipc(ROWS)),
    "create exist_ok": lambda ns, t, _: ns.create_table(
        CreateTableRequest(id=t, mode="exist_ok"), ipc(ROWS)
    ),
    "create overwrite": lambda ns, t, _: ns.create_table(
        CreateTableRequest(id=t, mode="overwrite"), ipc(ROWS)
    ),
    "register": lambda ns, t, p: ns.register_table(RegisterTableRequest(id=t, location=p)),
    "register overwrite": lambda ns, t, p: ns.register_table(
        RegisterTableRequest(id=t, location=p, mode="overwrite")
    ),
}


@pytest.mark.parametrize("operation", TAKEN)
def test_the_name_of_a_view_is_taken(
    connected: HiveNamespace, view: list[str], tmp_path: Path, operation: str
) -> None:
    with pytest.raises(TableAlreadyExistsError):
        TAKEN[operation](connected, view, str(tmp_path / "elsewhere"))


def test_cascade_refuses_a_database_with_a_view(connected: HiveNamespace, view: list[str]) -> None:
    request = DropNamespaceRequest(id=view[:1], behavior="Cascade")
    with pytest.raises(NamespaceNotEmptyError, match="Lance tables only"):
        connected.drop_namespace(request)


def test_a_mark_with_spaces_is_no_mark(
    server: Metastore, connected: HiveNamespace, made: str, tmp_path: Path
) -> None:
    table = raw_table(made, "t", str(tmp_path / "t"))
    table.parameters["table_type"] = " lance "
    with raw_client(server.port) as client:
        client.create_table(table)
    with pytest.raises(InvalidInputError, match="not a Lance table"):
        connected.describe_table(DescribeTableRequest(id=[made, "t"]))
    assert connected.list_tables(ListTablesRequest(id=[made])).tables == []
