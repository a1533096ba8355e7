"""Records to requests and back, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, InvalidInputError

from lance_bridge.catalog import Column, NamespaceRecord, TableRecord
from lance_bridge_unity import mapping

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#lance-table-identification", "unity.md#table"),
]

FULL = ("c", "s", "t")
MARKS = {"table_type": "lance"}


def made(*columns: Column) -> list[dict[str, Any]]:
    """Return the columns of an entry."""
    record = TableRecord(FULL, "/p", MARKS, columns=columns)
    found: list[dict[str, Any]] = mapping.table_body(FULL, record)["columns"]
    return found


def column(spark: Any, *, nullable: bool = True) -> dict[str, Any]:
    return made(Column("x", spark, nullable))[0]


def field(name: str, spark: Any) -> dict[str, Any]:
    return {"name": name, "type": spark, "nullable": True, "metadata": {}}


def array(spark: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": spark, "containsNull": True}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def test_a_table_is_external_and_of_the_format_that_goes_with_the_marks() -> None:
    record = TableRecord(FULL, "s3://b/t", MARKS, columns=(Column("x", "long"),))
    body = mapping.table_body(FULL, record)
    assert [each["name"] for each in body.pop("columns")] == ["x"]
    assert body == {
        "name": "t",
        "catalog_name": "c",
        "schema_name": "s",
        "table_type": "EXTERNAL",
        "data_source_format": "TEXT",
        "storage_location": "s3://b/t",
        "properties": MARKS,
    }


@pytest.mark.parametrize(
    ("types", "has_one"),
    [([], False), (["string"], False), (["string", "string"], False), (["string", "long"], True)],
)
def test_an_entry_has_a_column_that_readers_of_text_refuse(types: list[str], has_one: bool) -> None:
    """Spark's refuses all but strings; without such a column it would answer with no rows."""
    names = [f"x{number}" for number in range(len(types))]
    found = made(*map(Column, names, types))
    assert [each["name"] for each in found][: len(names)] == names
    assert any(each["type_name"] != "STRING" for each in found)
    assert (len(found) == len(names)) is has_one


def test_the_added_column_has_a_free_name() -> None:
    [refused] = made()
    found = made(Column(refused["name"], "string"))
    assert len({each["name"] for each in found}) == 2


@pytest.mark.spec("unity.md#columns")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain_1", "struct<plain_1:int>"),
        ("a b", "struct<`a b`:int>"),
        ("a`b", "struct<`a``b`:int>"),
        ("1a", "struct<`1a`:int>"),
        ("ü:x", "struct<`ü:x`:int>"),
    ],
)
def test_names_of_nested_fields_are_quoted_where_sql_needs_it(name: str, text: str) -> None:
    spark = struct(field(name, "integer"))
    assert column(spark)["type_text"] == text
    assert column(array(spark))["type_text"] == f"array<{text}>"


@pytest.mark.parametrize(
    ("spark", "name", "text"),
    [
        ("boolean", "BOOLEAN", "boolean"),
        ("byte", "BYTE", "tinyint"),
        ("short", "SHORT", "smallint"),
        ("integer", "INT", "int"),
        ("long", "LONG", "bigint"),
        ("decimal(10,2)", "DECIMAL", "decimal(10,2)"),
        ("timestamp_ntz", "TIMESTAMP_NTZ", "timestamp_ntz"),
        ("void", "NULL", "void"),
        ("interval day to second", "INTERVAL", "interval day to second"),
        ("geometry", "USER_DEFINED_TYPE", "geometry"),
        (array("float"), "ARRAY", "array<float>"),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            "MAP",
            "map<string,bigint>",
        ),
        (
            struct(field("a", "integer"), field("b", array("string"))),
            "STRUCT",
            "struct<a:int,b:array<string>>",
        ),
        ({"type": "udt", "class": "x"}, "USER_DEFINED_TYPE", "udt"),
    ],
)
def test_a_column_has_its_type_for_unity_and_for_sql(spark: Any, name: str, text: str) -> None:
    found = column(spark)
    assert (found["type_name"], found["type_text"]) == (name, text)


def test_a_column_has_a_whole_field_of_spark_its_number_and_the_size_of_a_decimal() -> None:
    found = made(Column("x", "integer", nullable=False), Column("d", "decimal(10,2)"))
    assert json.loads(found[0]["type_json"]) == {**field("x", "integer"), "nullable": False}
    assert found[0]["nullable"] is False
    assert [each["position"] for each in found] == [0, 1]
    assert (found[1]["type_precision"], found[1]["type_scale"]) == (10, 2)


@pytest.mark.spec("unity.md#declaretable")
@pytest.mark.parametrize(
    "properties", [{"k" * 256: "v"}, {"k": "v" * 256}, {"k": "\ud800"}, {"k": "😀" * 128}]
)
def test_properties_that_the_server_would_fail_on_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        mapping.table_body(FULL, TableRecord(FULL, "/p", properties))


def test_properties_of_255_characters_are_taken() -> None:
    properties = {"k" * 255: "v" * 255}
    body = mapping.table_body(FULL, TableRecord(FULL, "/p", properties))
    assert body["properties"] == properties


@pytest.mark.spec(
    "common.md#deregistertable",
    "common.md#describetable",
    "common.md#droptable",
    "common.md#renametable",
    "common.md#tableexists",
)
@pytest.mark.parametrize("kind", ["MANAGED", "VIEW", "STREAMING_TABLE", "METRIC_VIEW", None])
def test_only_an_external_table_is_lances(kind: str | None) -> None:
    info = {"name": "t", "table_type": kind, "properties": {**MARKS, "k": "v"}}
    record = mapping.record_from(("c", "s"), info)
    assert not record.is_lance
    assert record.properties == {"k": "v"}


def test_the_mark_is_found_under_the_key_that_sql_takes() -> None:
    info = {"name": "t", "table_type": "EXTERNAL", "properties": {"TABLE_TYPE": "lance", "k": "v"}}
    assert mapping.record_from(("c", "s"), info).properties == {"table_type": "lance", "k": "v"}


@pytest.mark.spec("unity.md#errors-of-every-operation")
@pytest.mark.parametrize("info", [{}, {"name": ""}, {"name": None}, {"name": 7}])
def test_an_answer_without_a_name_is_an_error_of_the_server(info: dict[str, Any]) -> None:
    with pytest.raises(InternalError):
        mapping.record_from(("c", "s"), info)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["table_type", "properties", "storage_location", "table_id"]), JUNK
    )
)
def test_whatever_a_server_puts_into_its_fields_a_record_can_be_made(info: dict[str, Any]) -> None:
    record = mapping.record_from(("c", "s"), {"name": "t", **info})
    assert record.path == FULL
    assert isinstance(record.location, str | None)
    assert isinstance(record.identity, str | None)
    assert all(isinstance(text, str) for pair in record.properties.items() for text in pair)


# -- namespaces ----------------------------------------------------------------------------------


@pytest.mark.spec("unity.md#namespace")
@pytest.mark.parametrize("full", [("c",), ("c", "s")])
def test_comment_and_storage_root_are_properties(full: tuple[str, ...]) -> None:
    kind = ("catalog", "schema")[len(full) - 1]
    given_properties = {f"{kind}.comment": "about", f"{kind}.storage-root": "s3://b/r", "k": "v"}
    body = mapping.namespace_body(full, NamespaceRecord(full, given_properties))
    assert body["comment"] == "about"
    assert body["storage_root"] == "s3://b/r"
    assert body["properties"] == {"k": "v"}
    assert body["name"] == full[-1]
    assert dict(mapping.namespace_from(full, full, body).properties) == given_properties


def test_fields_of_the_other_level_are_plain_properties() -> None:
    body = mapping.namespace_body(("c", "s"), NamespaceRecord(("c", "s"), {"catalog.comment": "x"}))
    assert body["properties"] == {"catalog.comment": "x"}
    assert "comment" not in body


def test_a_change_takes_a_comment_away_that_is_not_given() -> None:
    assert mapping.namespace_changes(("c", "s"), {"k": "v"}) == {
        "comment": "",
        "properties": {"k": "v"},
    }


@pytest.mark.parametrize(
    ("info", "location"),
    [
        ({"storage_root": "s3://b/r", "storage_location": "s3://b/r/x"}, "s3://b/r"),
        ({"storage_location": "s3://b/r/__unitystorage/schemas/1"}, "s3://b/r"),
        ({"storage_location": "s3://b/r"}, "s3://b/r"),
        ({}, None),
    ],
)
def test_the_location_of_a_schema_is_its_root_and_not_where_managed_tables_go(
    info: dict[str, str], location: str | None
) -> None:
    assert (
        mapping.namespace_from(("c", "s"), ("c", "s"), {"name": "s", **info}).location == location
    )


# -- credentials ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "write", "call", "operation"),
    [
        ("id-1", False, "temporary-table-credentials", "READ"),
        ("id-1", True, "temporary-table-credentials", "READ_WRITE"),
        (None, False, "temporary-path-credentials", "PATH_READ"),
        (None, True, "temporary-path-credentials", "PATH_CREATE_TABLE"),
    ],
)
def test_an_existing_table_is_named_by_id_and_a_new_one_by_location(
    identity: str | None, write: bool, call: str, operation: str
) -> None:
    record = TableRecord(FULL, "s3://b/t", identity=identity)
    what, body = mapping.credentials_request(record, write=write)
    assert (what, body["operation"]) == (call, operation)
    assert body.get("table_id") == identity
    assert body.get("url") == (None if identity else "s3://b/t")


@pytest.mark.parametrize(
    ("member", "content", "options"),
    [
        (
            "aws_temp_credentials",
            {"access_key_id": "a", "secret_access_key": "b", "session_token": "c"},
            {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_session_token": "c"},
        ),
        ("azure_user_delegation_sas", {"sas_token": "a"}, {"azure_storage_sas_token": "a"}),
        ("azure_aad", {"aad_token": "a"}, {"azure_storage_token": "a"}),
        ("gcp_oauth_token", {"oauth_token": "a"}, {"google_storage_token": "a"}),
    ],
)
def test_credentials_of_each_cloud_become_options_of_lance(
    member: str, content: dict[str, str], options: dict[str, str]
) -> None:
    clouds = ("aws_temp_credentials", "azure_user_delegation_sas", "gcp_oauth_token")
    reply = {**dict.fromkeys(clouds), member: content, "expiration_time": 1_700_000_000_000}
    expected = {**options, "expires_at_millis": "1700000000000"}
    assert mapping.storage_options(reply) == expected


@pytest.mark.parametrize(
    "reply",
    [{}, {"aws_temp_credentials": None, "expiration_time": 5}, {"aws_temp_credentials": {}}],
)
def test_a_reply_without_credentials_gives_none(reply: dict[str, Any]) -> None:
    assert mapping.storage_options(reply) is None


def test_credentials_without_an_expiration_expire_soon() -> None:
    options = mapping.storage_options({"gcp_oauth_token": {"oauth_token": "a"}})
    assert options is not None
    assert int(options["expires_at_millis"]) > 1_700_000_000_000
