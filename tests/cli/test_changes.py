"""Commands that create tables from files of columns, and change columns and properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.arrow_types import schema_from_json, schema_to_json

from .conftest import ORDERS, Lake
from .program import answer_of, run, said

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#table", "cli.md#ns")]

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("ms", "UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("vector", pa.list_(pa.float32(), 4)),
        pa.field("parts", pa.struct([pa.field("took", pa.duration("s"))])),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def write_ipc_file(path: Path) -> None:
    with pa.ipc.new_file(str(path), COLUMNS):
        pass


def write_ipc_stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, COLUMNS):
        pass


def write_json(path: Path) -> None:
    path.write_text(json.dumps(schema_to_json(COLUMNS, exact=True).to_dict()))


def write_fields(path: Path) -> None:
    path.write_text(json.dumps(schema_to_json(COLUMNS, exact=True).to_dict()["fields"]))


# -- schema and location ---------------------------------------------------------------------------


def test_a_schema_is_shown_in_each_format(lake: Lake) -> None:
    name = lake.create("orders")
    assert run("table", "schema", "prod", name).stdout == (
        "id\tbigint\tyes\nprice\tfloat\tyes\nvector\tfloat[2]\tyes\n"
    )
    lines = run("table", "schema", "prod", name, "-o", "jsonl").stdout.splitlines()
    assert json.loads(lines[2]) == {"column": "vector", "type": "float[2]", "nullable": True}
    csv = run("table", "schema", "prod", name, "-o", "csv").stdout
    assert csv.startswith("column,type,nullable\nid,bigint,")
    assert schema_from_json(answer_of("table", "schema", "prod", name)) == ORDERS.schema


def test_the_schema_of_an_older_version_is_shown(lake: Lake) -> None:
    name = lake.create("orders")
    run("table", "rename-column", "prod", name, "price", "cost")
    assert "price" in run("table", "schema", "prod", name, "--version", "1").stdout
    assert "cost" in run("table", "schema", "prod", name).stdout


def test_a_location_is_one_line_and_needs_no_file(lake: Lake) -> None:
    name = lake.create("orders")
    place = lake.place("orders")
    assert run("table", "location", "prod", name).stdout == f"{place}\n"
    place.rename(place.with_name("away"))
    assert answer_of("table", "location", "prod", name) == {"table": name, "location": str(place)}


# -- create ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write", [write_ipc_file, write_ipc_stream, write_json, write_fields], ids=lambda f: f.__name__
)
def test_a_table_is_created_with_the_columns_of_a_file(
    lake: Lake, tmp_path: Path, write: Any
) -> None:
    write(tmp_path / "columns")
    name = lake.name("made")
    made = answer_of("table", "create", "prod", name, "--schema", str(tmp_path / "columns"))
    assert made["location"] == str(lake.place("made"))
    found = lance.dataset(made["location"])
    assert (found.schema, found.count_rows()) == (COLUMNS, 0)


def test_a_table_is_created_with_the_columns_of_a_parquet_file(lake: Lake, tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet")
    name, file = lake.name("made"), str(tmp_path / "orders.parquet")
    done = run("table", "create", "prod", name, "--schema", file, "--set", "team=shop")
    assert done.stdout == f"{name}: created at {lake.place('made')}\n"
    assert lance.dataset(str(lake.place("made"))).schema.names == ORDERS.column_names
    assert run("table", "properties", "get", "prod", name, "team").stdout == "shop\n"
    assert "already exists" in run("table", "create", "prod", name, "--schema", file, code=1).stderr
    again = run("table", "create", "prod", name, "--schema", file, "--exist-ok").stdout
    assert again == f"{name}: exists at {lake.place('made')}\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no schema that can be read"),
        (b"id,price\n1,2\n", "has no schema that can be read"),
        (b"PAR1 and no more", "has no schema that can be read"),
        (b"{", "has no schema that can be read"),
        (b"{}", "not a JsonArrowSchema"),
        (b"[]", "The schema has no fields"),
        (b'{"fields": [{"name": "a", "nullable": true, "type": {"type": "x"}}]}', "'x' is not"),
    ],
    ids=["empty", "csv", "parquet", "json", "object", "list", "type"],
)
def test_a_file_without_a_schema_is_refused(
    lake: Lake, tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "columns").write_bytes(content)
    command = ["table", "create", "prod", lake.name("made"), "--schema"]
    assert reason in said(run(*command, str(tmp_path / "columns"), code=1).stderr)
    missing = said(run(*command, str(tmp_path / "nothing"), code=1).stderr)
    assert missing.endswith("nothing cannot be read: No such file or directory")
    assert "Is a directory" in said(run(*command, str(tmp_path), code=1).stderr)
    assert lake.tables() == []


# -- columns ---------------------------------------------------------------------------------------


def test_a_column_is_renamed(lake: Lake) -> None:
    name = lake.create("orders")
    done = answer_of("table", "rename-column", "prod", name, "price", "cost")
    assert (done["column"], done["renamed_from"], done["version"]) == ("cost", "price", 2)
    assert lance.dataset(str(lake.place("orders"))).schema.names == ["id", "cost", "vector"]
    missing = said(run("table", "rename-column", "prod", name, "price", "x", code=1).stderr)
    assert "has no column 'price'" in missing
    taken = said(run("table", "rename-column", "prod", name, "cost", "id", code=1).stderr)
    assert "id" in taken


# -- properties ------------------------------------------------------------------------------------


@pytest.mark.parametrize("noun", ["table", "ns"])
def test_properties_are_set_shown_and_removed(lake: Lake, noun: str) -> None:
    lake.create("orders", season="winter")
    name = lake.name("orders") if noun == "table" else lake.database
    command = [noun, "properties"]
    run(*command, "set", "prod", name, "season=summer", "team=shop", "empty=")
    found = answer_of(*command, "get", "prod", name)
    expected = {"season": "summer", "team": "shop", "empty": ""}
    assert {key: found[key] for key in expected} == expected
    assert run(*command, "get", "prod", name, "season").stdout == "summer\n"
    assert "team\tshop" in run(*command, "get", "prod", name).stdout.splitlines()
    done = answer_of(*command, "remove", "prod", name, "season", "empty")
    assert done["removed"] == ["season", "empty"]
    assert answer_of(*command, "get", "prod", name, "team") == {"team": "shop"}
    for action in ("get", "remove"):
        error = said(run(*command, action, "prod", name, "season", code=1).stderr)
        assert "has no property 'season': it has " in error
        assert "team" in error


def test_changes_of_properties_keep_rows_and_managers(lake: Lake) -> None:
    name = lake.create("orders", managed_by="impl")
    run("table", "properties", "set", "prod", name, "team=shop")
    run("table", "properties", "remove", "prod", name, "team")
    assert run("table", "count", "prod", name).stdout == "5\n"
    assert answer_of("table", "describe", "prod", name)["managed_versioning"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("managed_by=impl", "lance-bridge managed begin"),
        ("table_type=iceberg", "cannot be 'iceberg'"),
        ("external.table.purge=true", "reserved by the metastore"),
        ("publish.columns=perhaps", "must be true or false"),
    ],
)
def test_properties_that_mark_tables_are_refused(lake: Lake, setting: str, reason: str) -> None:
    name = lake.create("orders")
    command = ["table", "properties"]
    assert reason in said(run(*command, "set", "prod", name, setting, code=1).stderr)
    run(*command, "set", "prod", name, "no-equals-sign", code=2)
    kept = run(*command, "remove", "prod", name, "table_type", code=1).stderr
    assert "table_type" in kept
    assert lake.tables() == ["orders"]


def test_properties_that_core_keeps_are_removed_too(lake: Lake) -> None:
    """A redefinition of a table keeps them: see `replace_visible`."""
    name = lake.create("orders", protected="true", **{"publish.columns": "true"})
    assert "protected" in run("table", "drop", "prod", name, "--yes", code=1).stderr
    run("table", "properties", "remove", "prod", name, "publish.columns", "protected")
    assert answer_of("table", "properties", "get", "prod", name) == {}
    run("table", "drop", "prod", name, "--yes")


def test_a_dropped_table_is_taken_back_or_purged(lake: Lake) -> None:
    name, other = lake.create("orders"), lake.name("back")
    place = lake.place("orders")
    run("ns", "properties", "set", "prod", lake.database, "drop.retention=7d")
    dropped = answer_of("table", "drop", "prod", name, "--yes")
    assert dropped["kept_until"] is not None
    assert lake.tables() == []
    [listed] = answer_of("table", "list", "prod", lake.database, "--dropped")["tables"]
    assert (listed["table"], listed["kept until"]) == (name, dropped["kept_until"])
    lake.create("orders", ORDERS.slice(0, 1))
    assert "already exists" in said(run("table", "undrop", "prod", name, code=1).stderr)
    run("table", "undrop", "prod", name, "--as", other)
    assert answer_of("table", "count", "prod", other)["rows"] == ORDERS.num_rows
    run("table", "drop", "prod", other, "--yes")
    run("table", "purge", "prod", other, "--yes")
    assert not place.exists()
    assert "dropped table" in said(run("table", "purge", "prod", other, "--yes", code=1).stderr)
    run("ns", "properties", "set", "prod", lake.database, "drop.retention=90m")
    run("table", "drop", "prod", name, "--yes")
    assert answer_of("maintain", "purge", "prod", "-n", lake.database)["purged"] == []
    lake.create("orders")
    run("table", "drop", "prod", name, "--purge", "--yes")
    assert run("table", "list", "prod", lake.database, "--dropped", "-o", "json").stdout


def test_the_description_of_a_database_before_hive_4_is_refused(lake: Lake) -> None:
    command = ["ns", "properties", "set", "prod", lake.database, "database.description=x"]
    error = said(run(*command, code=1).stderr)
    assert f"The comment of namespace '{lake.database}' cannot be changed" in error


@pytest.fixture
def unity(config: Path, tmp_path: Path) -> Any:
    """Unity, as the catalog ``prod``, with a table ``lake.sales.orders``."""
    with UnityServer(OPEN_SOURCE_0_6) as server:
        server.add_catalog("lake")
        properties = {"impl": "unity", "host": server.url, "root": str(tmp_path / "root")}
        config.write_text(yaml.safe_dump({"catalogs": {"prod": properties}}))
        run("ns", "create", "prod", "lake.sales")
        file = tmp_path / "columns.json"
        write_json(file)
        run("table", "create", "prod", "lake.sales.orders", "--schema", str(file))
        yield server


@pytest.mark.usefixtures("unity")
def test_what_a_catalog_cannot_change_is_refused() -> None:
    """The open-source server has no call that changes a table's entry."""
    name = "lake.sales.orders"
    refused = said(run("table", "properties", "set", "prod", name, "a=b", code=1).stderr)
    assert f"Properties of '{name}' cannot change" in refused
    run("ns", "properties", "set", "prod", "lake.sales", "team=shop")
    assert run("ns", "properties", "get", "prod", "lake.sales", "team").stdout == "shop\n"
    run("table", "rename-column", "prod", name, "price", "cost")
    assert "cost" in run("table", "schema", "prod", name).stdout


def test_namespaces_of_a_federation_are_not_changed(lake: Lake) -> None:
    lake.set("all", impl="federated", catalogs="prod")
    name = lake.create("orders", team="shop")
    get = ["table", "properties", "get", "all", f"prod.{name}", "team"]
    assert run(*get).stdout == "shop\n"
    for command in (
        ["table", "properties", "set", "all", f"prod.{name}", "a=b"],
        ["ns", "properties", "remove", "all", f"prod.{lake.database}", "a"],
    ):
        assert "federat" in said(run(*command, code=2).stderr)


def test_a_property_is_kept_when_its_namespace_is_unknown(lake: Lake) -> None:
    error = run("ns", "properties", "set", "prod", f"{lake.database}_x", "a=b", code=1).stderr
    assert "Namespace not found" in said(error)
    with pytest.raises(api.NamespaceNotFoundError):
        lake.namespace.describe_namespace(api.DescribeNamespaceRequest(id=[f"{lake.database}_x"]))
