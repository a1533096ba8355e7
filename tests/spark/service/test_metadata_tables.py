"""Metadata tables as the service describes and reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryServer
from lance_namespace import DeclareTableRequest

from lance_bridge.catalog import NamespaceRecord
from lance_bridge_spark.addresses import CatalogAddress
from lance_bridge_spark.sql.metadata_tables import TABLES

from .service_requests import ID, TABLE, Service, fields_of, struct

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#metadata-tables")]


def rows_of(service: Service, name: str, table: list[str] = TABLE) -> list[dict[str, Any]]:
    """Return the rows of a metadata table."""
    answer, parts = service.call("metadata_rows", {"table": [*table, name]}, [])
    assert answer == {"answer": {}}
    [stream] = parts
    read = pa.ipc.open_stream(stream).read_all()
    assert read.schema.equals(TABLES[name].columns)
    return list(read.to_pylist())


def test_each_is_described_with_commented_columns_and_read_without_rows(service: Service) -> None:
    service.create(TABLE)
    for name in TABLES:
        answer = service.ask("load_table", table=[*TABLE, name.upper()])
        assert answer["metadata"] == name
        fields = fields_of(answer)
        assert list(fields) == TABLES[name].columns.names
        assert all(each["metadata"]["comment"] for each in fields.values())
        assert service.ask("table_exists", table=[*TABLE, name]) == {"exists": True}
    assert [len(rows_of(service, name)) for name in sorted(TABLES)] == [0, 0, 0, 0, 1, 1]


def test_versions_and_transactions_list_what_writers_committed(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1, 2)
    lance.write_dataset(
        pa.table({"id": pa.array([3], pa.int64()), "name": ["c"]}),
        service.dataset(TABLE),
        mode="append",
        transaction_properties={"job": "nightly"},
    )
    found = rows_of(service, "versions")
    assert [(each["version"], each["rows"], each["fragments"]) for each in found] == [
        (1, 0, 0), (2, 2, 1), (3, 3, 2),
    ]  # fmt: skip
    last = rows_of(service, "transactions")[-1]
    assert (last["version"], last["read_version"], last["operation"]) == (3, 2, "Append")
    assert ("job", "nightly") in last["properties"]


def test_a_branch_of_a_branch_names_its_parent(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1)
    branch = service.dataset(TABLE).create_branch("dev", 2)
    branch.create_branch("dev/next", ("dev", 2))
    service.dataset(TABLE).tags.create("trial", ("dev", 2))
    found = {each["name"]: each for each in rows_of(service, "branches")}
    assert list(found) == ["dev", "dev/next"]
    assert (found["dev"]["parent_branch"], found["dev/next"]["parent_branch"]) == (None, "dev")
    assert found["dev"]["created_at"].tzinfo is not None
    assert rows_of(service, "tags") == [{"name": "trial", "version": 2, "branch": "dev"}]


def test_an_unknown_one_names_those_that_exist(service: Service) -> None:
    service.create(TABLE)
    code, message = service.refusal("load_table", table=[*TABLE, "snapshots"])
    assert code == 13
    assert message.endswith("branches, fragments, indices, tags, transactions, versions")
    assert service.ask("table_exists", table=[*TABLE, "snapshots"]) == {"exists": False}
    assert service.refusal("load_table", table=["db", "none", "versions"])[0] == 4
    assert service.ask("table_exists", table=["db", "none", "versions"]) == {"exists": False}


@pytest.mark.parametrize("travel", [{"version": "1"}, {"timestamp_us": 1}])
def test_time_travel_is_refused(service: Service, travel: dict[str, Any]) -> None:
    service.create(TABLE)
    code, message = service.refusal("load_table", table=[*TABLE, "tags"], **travel)
    assert code == 13
    assert "leave out VERSION AS OF" in message


@pytest.mark.parametrize("op", ["drop_table", "alter_table", "truncate", "create_table"])
def test_nothing_changes_them(service: Service, op: str) -> None:
    service.create(TABLE)
    given = {"schema": struct(ID), "properties": {}, "changes": [], "evolves": False}
    code, message = service.refusal(op, table=[*TABLE, "versions"], **given)
    assert code == 0
    assert "read only" in message


def test_a_table_without_data_is_refused_as_by_a_query(service: Service) -> None:
    service.catalog.connect().declare_table(DeclareTableRequest(id=TABLE))
    for name in ("versions", "fragments", "transactions"):
        answer, _ = service.call("metadata_rows", {"table": [*TABLE, name]}, [])
        assert answer["error"]["code"] == 19, answer


def test_a_table_in_a_nested_namespace_is_never_taken_for_one(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = SERVERS[request.node.nodeid] = MemoryServer(CAPABILITIES)
    for path in (("eu",), ("eu", "sales"), ("eu", "sales", "t")):
        server.namespaces[path] = NamespaceRecord(path)
    properties = {
        "impl": "core.memory_catalog.MemoryNamespace",
        "uri": request.node.nodeid,
        "root": str(tmp_path),
    }
    name = ["eu", "sales", "t", "versions"]
    service = Service(CatalogAddress("prod", properties), server)
    try:
        service.create(name)
        service.append(name, 7)
        assert service.ids_in(name) == [7]
        found = rows_of(service, "versions", name)
        assert [each["rows"] for each in found] == [0, 1]
    finally:
        del SERVERS[request.node.nodeid]


def test_a_deleted_row_is_counted(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1, 2, 3)
    service.ask("delete_where", table=TABLE, where="id = 2")
    [fragment] = rows_of(service, "fragments")
    assert (fragment["rows"], fragment["deleted_rows"], fragment["files"]) == (2, 1, 1)
    assert fragment["bytes"] == rows_of(service, "versions")[-1]["bytes"]
