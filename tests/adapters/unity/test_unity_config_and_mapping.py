"""Unity without a server: properties of ``impl=unity``, and records to requests and back."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, InvalidInputError, UnsupportedOperationError

from lance_bridge.catalog import Column, NamespaceRecord, TableRecord
from lance_bridge.config import load
from lance_bridge_unity import UnityConfig, UnityNamespace, mapping

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "unity.md#namespace-implementation-configuration-properties",
        "unity.md#lance-table-identification",
        "unity.md#table",
    ),
]

HOST = "http://unity.invalid:8080"


def config(**properties: str) -> UnityConfig:
    return load(UnityConfig, "unity", {"host": HOST, **properties})


def refusal(**properties: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        UnityNamespace(**properties)
    return str(caught.value)


def test_a_host_is_required_under_either_name_and_has_a_scheme() -> None:
    assert "'host' is required" in refusal()
    assert "scheme" in refusal(endpoint="localhost:8080")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"host": "localhost:8080"}, "scheme"),
        ({"host": "unity.example.com"}, "scheme"),
        ({"host": "//unity"}, "scheme"),
        ({"host": "ftp://a"}, "host"),
        ({"host": "http://"}, "host"),
        ({"host": "http://a b"}, "host"),
        ({"host": "http://user:s3cret@a"}, "host"),
        ({"host": "http://a?x=1"}, "host"),
        ({"host": "http://a#b"}, "host"),
        ({"host": "http://a:65536"}, "host"),
        ({"host": "http://a:0"}, "host"),
        ({"host": "http://[::1"}, "host"),
        ({"endpoint": "http://other"}, "differ"),
        ({"token": "a", "auth_token": "b"}, "differ"),
        ({"client_id": "a"}, "need each other"),
        ({"client_secret": "a"}, "need each other"),
        ({"token": "a", "client_id": "b", "client_secret": "c"}, "leave one of them out"),
        ({"token": "a", "profile": "b"}, "leave one of them out"),
        ({"server": "open-source", "warehouse_id": "w"}, "Databricks"),
        ({"server": "other"}, "server"),
        ({"token": "two words"}, "ASCII"),
        ({"token": "line\nend"}, "ASCII"),
        ({"catalog": "a.b"}, "catalog"),
        ({"catalog": ""}, "catalog"),
        ({"catalog": "a" * 256}, "catalog"),
        ({"warehouse_id": "../x"}, "warehouse_id"),
        ({"api_path": "api?x"}, "api_path"),
        ({"read_timeout": "0"}, "read_timeout"),
        ({"connect_timeout": "inf"}, "connect_timeout"),
        ({"max_retries": "-1"}, "max_retries"),
        ({"credentials.vend": "maybe"}, "credentials.vend"),
        ({"hosts": "x"}, "did you mean 'host'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(properties: dict[str, str], said: str) -> None:
    message = refusal(**{"host": HOST, **properties})
    assert said in message
    assert "s3cret" not in message


def test_secrets_are_in_no_message_and_no_repr() -> None:
    assert "hush" not in refusal(host=HOST, token="hush hush")
    assert "hush" not in repr(config(token="hush-hush"))


@pytest.mark.parametrize(
    "host",
    [
        "http://unity:8080/",
        "http://unity:8080/api/2.1/unity-catalog",
        "http://unity:8080/api/2.1/unity-catalog/",
    ],
)
def test_an_address_may_carry_the_apis_path(host: str) -> None:
    assert config(host=host).address == "http://unity:8080"


def test_the_keys_of_other_implementations_work() -> None:
    found = load(
        UnityConfig,
        "unity",
        {
            "endpoint": "http://unity:8080",
            "catalog": "main",
            "auth_token": "dapi",
            "connect_timeout": "3",
            "read_timeout": "5",
            "max_retries": "1",
            "root": "/data",
            "storage.region": "eu-west-1",
        },
    )
    assert found.address == "http://unity:8080"
    assert found.bearer is not None
    assert found.bearer.get_secret_value() == "dapi"
    assert (found.connect_timeout, found.read_timeout, found.max_retries) == (3.0, 5.0, 1)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, False),
        ({"host": "https://dbc-1.cloud.databricks.com"}, True),
        ({"host": "https://adb-1.2.azuredatabricks.net"}, True),
        ({"host": "https://1.2.gcp.databricks.com"}, True),
        ({"host": "https://x.databricks.azure.cn"}, True),
        ({"host": "https://cloud.databricks.com.evil.example"}, False),
        ({"host": "https://notdatabricks.com"}, False),
        ({"warehouse_id": "w"}, True),
        ({"server": "databricks"}, True),
        ({"host": "https://dbc-1.cloud.databricks.com", "server": "open-source"}, False),
    ],
)
def test_databricks_is_recognised(properties: dict[str, str], expected: bool) -> None:
    assert config(**properties).is_databricks is expected


def test_a_host_of_the_environment_counts_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", "dbc-1.cloud.databricks.com")
    found = load(UnityConfig, "unity", {})
    assert found.address == "https://dbc-1.cloud.databricks.com"
    assert found.is_databricks
    assert config().address == HOST


@pytest.mark.parametrize("host", ["https://user:s3cret@a.cloud.databricks.com", "a?o=s3cret"])
def test_a_host_of_the_environment_is_checked_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", host)
    with pytest.raises(InvalidInputError, match=r"\$DATABRICKS_HOST must be https") as caught:
        load(UnityConfig, "unity", {})
    assert "s3cret" not in str(caught.value)
    assert config().address == HOST


def test_a_profile_stands_for_a_host() -> None:
    found = load(UnityConfig, "unity", {"profile": "work"})
    assert found.address is None
    assert found.is_databricks


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("aws_region", True),
        ("aws_endpoint", True),
        ("allow_http", True),
        ("aws_sse_kms_key_id", True),
        ("timeout", True),
        ("aws_access_key_id", False),
        ("aws_secret_access_key", False),
        ("aws_session_token", False),
        ("aws_skip_signature", False),
        ("azure_storage_account_key", False),
        ("azure_storage_sas_token", False),
        ("google_service_account", False),
        ("azure_use_azure_cli", False),
        ("azure_use_emulator", False),
        ("azure_object_id", False),
        ("azure_storage_tenant_id", False),
        ("AWS_ROLE_ARN", False),
        ("aws_web_identity_token_file", False),
        ("oss_access_key_secret", False),
        ("google_application_credentials", False),
        ("token", False),
    ],
)
def test_auto_vends_unless_an_option_has_credentials(option: str, expected: bool) -> None:
    storage = {f"storage.{option}": "http://x"}
    assert config(**storage).vends is expected
    assert config(**storage, **{"credentials.vend": "true"}).vends
    assert not config(**storage, **{"credentials.vend": "false"}).vends


def test_capabilities_follow_the_server() -> None:
    open_source, databricks = config().capabilities, config(server="databricks").capabilities
    with_sql = config(warehouse_id="w").capabilities
    assert (open_source.folds_case, databricks.folds_case) == (False, True)
    assert "no call that changes a table" in open_source.no_alter
    assert open_source.no_rename == ""
    assert "warehouse_id" in databricks.no_alter
    assert "warehouse_id" in databricks.no_rename
    assert (with_sql.no_alter, with_sql.no_rename) == ("", "")
    assert open_source.no_rename_across
    assert with_sql.no_rename_across
    assert open_source.atomic_restrict
    assert databricks.atomic_restrict


@pytest.mark.parametrize("name", ["a-b", "@x", "-", "A", "1", "a" * 255])
def test_the_open_source_server_takes_these_names(name: str) -> None:
    rule = config().capabilities.table_rule
    assert rule.pattern.fullmatch(name)
    assert len(name) <= rule.max_length


def test_connecting_sends_no_request() -> None:
    namespace = UnityNamespace(host=HOST, catalog="main")
    assert namespace.namespace_id() == f"unity({HOST}, catalog=main)"


@pytest.mark.spec("clients.md#several-principals-in-one-process")
def test_the_identity_says_as_whom_the_catalog_vends_and_shows_no_token() -> None:
    one, other = (UnityNamespace(host=HOST, token=f"dapi-{name}") for name in ("anna", "bob"))
    assert one.namespace_id() == UnityNamespace(host=HOST, auth_token="dapi-anna").namespace_id()
    assert one.namespace_id() != other.namespace_id()
    assert one.describe_connection() == other.describe_connection()
    assert "dapi" not in one.namespace_id()


@pytest.mark.parametrize("package", ["requests", "databricks"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UnsupportedOperationError, match=r"pip install 'lance-bridge\[unity\]'"):
        UnityNamespace(host=HOST)


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


def test_an_entry_has_its_owner_and_the_format_of_its_files() -> None:
    info = {"name": "t", "table_type": "MANAGED", "data_source_format": "DELTA", "owner": "ada"}
    record = mapping.record_from(("c", "s"), info)
    assert (record.format, record.owner) == ("Delta", "ada")
