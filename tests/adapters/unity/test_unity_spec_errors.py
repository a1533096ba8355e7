"""Errors that the spec promises, each brought about through the namespace itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode
from servers.http_proxy import Answer, HttpProxy
from servers.unity import WAREHOUSE_ID, UnityServer

from lance_bridge.testing.calls import Calls
from lance_bridge.testing.expect import refused
from lance_bridge_unity import UnityNamespace

from .building import API

pytestmark = [pytest.mark.quick, pytest.mark.spec("unity.md#declaretable")]

SCHEMA = ["c", "s"]
TABLE = [*SCHEMA, "t"]
ROWS = pa.table({"i": [0, 1, 2], "s": ["a", "b;c", None]})


@pytest.fixture
def on_databricks(workspace: UnityServer, tmp_path: Path) -> Iterator[Calls]:
    """A client with a warehouse of Databricks without shared or nested locations."""
    workspace.databricks.warehouse.refuses_overlaps = True
    properties = {"token": "dapi-double", "warehouse_id": WAREHOUSE_ID}
    root = f"file://{tmp_path}/lake"
    with UnityNamespace(host=workspace.url, root=root, **properties) as namespace:
        yield Calls(namespace)


# -- namespaces ----------------------------------------------------------------------------------


@pytest.mark.spec("unity.md#createnamespace")
@pytest.mark.parametrize(
    "properties",
    [
        {"": "x"},
        {"lance_bridge.id": "x"},
        {"k" * 256: "x"},
        {"k": "x" * 256},
        {"k": "\ud800"},
        {"schema.comment": "x" * 65_536},
    ],
)
def test_what_a_schema_cannot_hold_is_invalid_input_before_any_call(
    proxy: HttpProxy, calls: Calls, properties: dict[str, str]
) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        calls.create_namespace(["c", "new"], properties=properties)
    assert not proxy.requests


@pytest.mark.spec("unity.md#createnamespace")
def test_overwrite_of_a_schema_keeps_its_storage_root_or_is_refused(calls: Calls) -> None:
    root = {"schema.storage-root": "s3://bucket/managed"}
    calls.create_namespace(["c", "n"], properties=root)
    with refused(ErrorCode.INVALID_INPUT, naming="schema.storage-root"):
        calls.create_namespace(
            ["c", "n"], mode="Overwrite", properties={"schema.storage-root": "s3://bucket/other"}
        )
    calls.create_namespace(["c", "n"], mode="Overwrite", properties={"k": "v"})
    assert calls.describe_namespace(["c", "n"]).properties == {**root, "k": "v"}


@pytest.mark.spec("unity.md#dropnamespace")
@pytest.mark.parametrize(
    ("kind", "key"),
    [("volumes", "volumes"), ("functions", "functions"), ("models", "registered_models")],
)
def test_cascade_refuses_a_schema_that_holds_more_than_tables_and_changes_nothing(
    proxy: HttpProxy, calls: Calls, kind: str, key: str
) -> None:
    calls.create_table(TABLE, ROWS)
    for page in ({"next_page_token": "more"}, {key: [{"name": "precious"}]}):
        proxy.fail_next(f"GET {API}/{kind}", Answer.of_json(200, page))
    with refused(ErrorCode.NAMESPACE_NOT_EMPTY, naming=f"{kind}, such as precious"):
        calls.drop_namespace(SCHEMA, behavior="Cascade")
    assert calls.count(TABLE) == 3


# -- declaring and registering -------------------------------------------------------------------


def test_a_declaration_cannot_be_repeated_with_other_properties(calls: Calls) -> None:
    calls.declare_table(TABLE, properties={"k": "v"})
    with refused(ErrorCode.UNSUPPORTED, naming="no call that changes a table"):
        calls.declare_table(TABLE, properties={"k": "other"})
    assert calls.declare_table(TABLE, properties={"k": "v"}).properties == {"k": "v"}


def test_a_location_of_a_scheme_that_the_server_does_not_know_is_invalid_input(
    calls: Calls,
) -> None:
    with refused(ErrorCode.INVALID_INPUT, naming="Unsupported URI scheme"):
        calls.declare_table(TABLE, location="az://container/t.lance")
    assert calls.all_tables(SCHEMA) == []


@pytest.mark.spec("common.md#createtable", "common.md#registertable")
@pytest.mark.parametrize("value", ["x" * 256, "\ud800"])
def test_what_a_table_cannot_hold_is_invalid_input_and_nothing_is_made(
    calls: Calls, value: str, tmp_path: Path
) -> None:
    for make in (
        lambda: calls.declare_table(TABLE, properties={"k": value}),
        lambda: calls.create_table(TABLE, ROWS, properties={"k": value}),
        lambda: calls.register_table(TABLE, str(tmp_path / "t"), properties={"k": value}),
    ):
        with refused(ErrorCode.INVALID_INPUT):
            make()
    assert calls.all_tables(SCHEMA) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.spec("common.md#renametable", "unity.md#renametable")
def test_a_table_cannot_be_renamed_into_another_schema(server: UnityServer, calls: Calls) -> None:
    server.add_schema("c", "other")
    calls.create_table(TABLE, ROWS)
    with refused(ErrorCode.UNSUPPORTED, naming="within their schema"):
        calls.rename_table(TABLE, "t", new_namespace_id=["c", "other"])
    assert calls.count(TABLE) == 3


# -- Databricks ----------------------------------------------------------------------------------


@pytest.mark.spec("common.md#registertable")
def test_a_location_that_overlaps_another_tables_is_invalid_input_on_databricks(
    on_databricks: Calls,
) -> None:
    place = on_databricks.create_table(TABLE, ROWS).location or ""
    for overlapping in (place, f"{place}/inside", place.rpartition("/")[0]):
        with refused(ErrorCode.INVALID_INPUT, naming="overlaps"):
            on_databricks.register_table([*SCHEMA, "u"], overlapping)
    assert on_databricks.all_tables(SCHEMA) == ["t"]


@pytest.mark.spec("unity.md#createtable", "unity.md#registertable", "unity.md#renametable")
def test_without_a_warehouse_tables_are_read_and_dropped_and_not_made(
    workspace: UnityServer, on_databricks: Calls
) -> None:
    on_databricks.create_table(TABLE, ROWS)
    namespace = UnityNamespace(
        host=workspace.url, token="dapi-double", server="databricks", root="file:///nowhere"
    )
    with namespace:
        reader = Calls(namespace)
        for change in (
            lambda: reader.declare_table([*SCHEMA, "u"]),
            lambda: reader.create_table([*SCHEMA, "u"], ROWS),
            lambda: reader.register_table([*SCHEMA, "u"], "s3://bucket/u"),
            lambda: reader.rename_table(TABLE, "u"),
        ):
            with refused(ErrorCode.UNSUPPORTED, naming="warehouse_id"):
                change()
        assert reader.all_tables(SCHEMA) == ["t"]
        assert reader.count(TABLE) == 3
        reader.drop_table(TABLE)
    assert on_databricks.all_tables(SCHEMA) == []
