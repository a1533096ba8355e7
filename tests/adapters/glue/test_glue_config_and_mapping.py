"""Glue without a server: bad configuration, and Glue's objects as records and back."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import (
    InvalidInputError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Delay, HttpProxy

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueConfig, GlueNamespace, client, mapping

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "glue.md#namespace-implementation-configuration-properties",
        "glue.md#lance-table-identification",
        "glue.md#table",
    ),
]

IN_REGION = {"region": "us-east-1"}
KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": "hush-hush"}
ROLE = {"assume_role_arn": "arn:aws:iam::123456789012:role/lance"}


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({}, "'region' is required"),
        ({"region": "us east"}, "'region'"),
        ({**IN_REGION, "regoin": "x"}, "did you mean 'region'"),
        ({**IN_REGION, "endpoint": "glue.local"}, "'endpoint': must begin with http"),
        ({**IN_REGION, "endpoint": "http://"}, "'endpoint': must begin with http"),
        ({**IN_REGION, "endpoint": "http://host:99999"}, "'endpoint': must begin with http"),
        ({**IN_REGION, "endpoint": "http://me:secret@host"}, "'endpoint': must not contain a user"),
        ({**IN_REGION, "endpoint": " http://host"}, "'endpoint': must not contain.* spaces"),
        ({**IN_REGION, "endpoint": "http://h\u00f6st"}, "'endpoint': must not contain.*non-ASCII"),
        (
            {**IN_REGION, **KEYS, "access_key_id": "\u043a\u043b"},
            "'access_key_id': must be visible",
        ),
        ({**IN_REGION, **KEYS, "secret_access_key": "hush hush"}, "'secret_access_key'"),
        ({**IN_REGION, "catalog_id": "1 2"}, "'catalog_id': must be visible"),
        ({**IN_REGION, "drop.check-functions": "perhaps"}, "'drop.check-functions'"),
        (
            {**IN_REGION, "access_key_id": "a"},
            "access_key_id and secret_access_key need each other",
        ),
        ({**IN_REGION, "secret_access_key": "a"}, "access_key_id and secret_access_key need each"),
        ({**IN_REGION, "session_token": "a"}, "session_token needs"),
        ({**IN_REGION, **KEYS, "profile_name": "x"}, "exclude each other"),
        ({**IN_REGION, "profile_name": "nobody"}, "'profile_name'.*nobody"),
        ({**IN_REGION, "assume_role_external_id": "xx"}, "assume_role_external_id needs"),
        ({**IN_REGION, "assume_role_timeout_sec": "900"}, "assume_role_timeout_sec needs"),
        ({**IN_REGION, "assume_role_arn": "lance"}, "'assume_role_arn': write a role's ARN"),
        ({**IN_REGION, **ROLE, "assume_role_timeout_sec": "60"}, "'assume_role_timeout_sec'"),
        ({**IN_REGION, **ROLE, "assume_role_session_name": "a b"}, "'assume_role_session_name'"),
        ({**IN_REGION, "retry_mode": "hard"}, "'retry_mode'"),
        ({**IN_REGION, "max_retries": "many"}, "'max_retries'"),
        ({**IN_REGION, "client.read-timeout": "0"}, "'client.read-timeout'"),
        ({**IN_REGION, "lakeformation.vend-credentials": "true"}, "needs catalog_id"),
        ({**IN_REGION, "client": "glue"}, "'client' must be a Glue client"),
    ],
)
def test_a_bad_configuration_is_refused_at_once_with_the_name_of_the_property(
    properties: dict[str, str], says: str
) -> None:
    begun = time.monotonic()
    with pytest.raises(InvalidInputError, match=says) as refused:
        GlueNamespace(**properties)
    assert "hush" not in str(refused.value)
    assert time.monotonic() - begun < 30


def test_the_region_of_a_profile_or_of_the_environment_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile sales]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert "eu-west-1" in GlueNamespace(profile_name="sales").namespace_id()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert "eu-north-1" in GlueNamespace().namespace_id()


def test_a_configuration_file_that_cannot_be_read_is_invalid_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile sales\nregion eu")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(InvalidInputError, match="cannot be read"):
        GlueNamespace()


@pytest.mark.parametrize("package", ["boto3", "botocore"])
def test_a_missing_package_is_unsupported_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedOperationError, match=rf"'{package}': pip install 'lance-bridge"):
        GlueNamespace(**IN_REGION, **KEYS)


def test_secrets_are_declared_and_in_no_text() -> None:
    secrets = {each.key for each in GlueConfig.declared() if each.secret}
    assert secrets == {"secret_access_key", "session_token"}
    shown = GlueNamespace(**IN_REGION, **KEYS, session_token="hush-too")
    assert "hush" not in f"{shown!r} {shown.namespace_id()} {shown.connection.config!r}"


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_credentials_are_looked_for_with_the_first_call_and_missed_soon_where_all_is_silent(
    monkeypatch: pytest.MonkeyPatch, server: GlueServer
) -> None:
    with HttpProxy(server.endpoint) as instance:
        instance.fail_next("*", Delay(), times=float("inf"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.endpoint)
        calls = Calls(GlueNamespace(**IN_REGION, endpoint=server.endpoint))
        assert instance.connections == 0
        begun = time.monotonic()
        with pytest.raises(UnauthenticatedError, match="There are no credentials"):
            calls.all_namespaces([])
        assert time.monotonic() - begun < 30
        assert instance.connections > 0


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_half_a_key_pair_in_the_environment_is_unauthenticated_until_the_rest_comes(
    monkeypatch: pytest.MonkeyPatch, server: GlueServer
) -> None:
    calls = Calls(GlueNamespace(**IN_REGION, endpoint=server.endpoint))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    with pytest.raises(UnauthenticatedError, match=r"(?i)aws_secret_access_key"):
        calls.all_namespaces([])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert calls.all_namespaces([]) is not None


def test_sessions_leave_nothing_behind_in_what_they_share() -> None:
    before = list(client._models(None).search_paths)
    for _ in range(3):
        client.Session(GlueConfig(region="us-east-1"))
    assert client._models(None).search_paths == before


def test_models_of_the_callers_own_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DATA_PATH", os.pathsep.join(["/mine", "/ours"]))
    made = client._create_session(GlueConfig(region="us-east-1"))
    assert made.get_component("data_loader").search_paths[:2] == ["/mine", "/ours"]


MODEL = botocore.session.get_session().get_service_model("glue")
TABLE_INPUT = MODEL.shape_for("TableInput")
DATABASE_INPUT = MODEL.shape_for("DatabaseInput")
REGION = "us-east-1"
MADE = datetime(2026, 1, 2, tzinfo=timezone.utc)
texts = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20)
keys = texts.filter(lambda key: key not in ("EXTERNAL", "transient_lastDdlTime"))
properties = st.dictionaries(keys, st.text(max_size=30), max_size=5)


def values_of(shape: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return what a member of this shape may hold, every optional member of it perhaps."""
    kind = shape.type_name
    if kind == "structure":
        inner = {k: values_of(v, depth + 1) for k, v in shape.members.items()}
        return st.fixed_dictionaries({}, optional=inner if depth < 4 else {})
    if kind == "list":
        return st.lists(values_of(shape.member, depth + 1), max_size=2)
    if kind == "map":
        return st.dictionaries(texts, values_of(shape.value, depth + 1), max_size=2)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "string": texts,
        "boolean": st.booleans(),
        "timestamp": st.just(MADE),
    }
    return simple.get(kind, st.integers(0, 100))


def read_as(path: tuple[str, ...], table: dict[str, Any]) -> TableRecord:
    return mapping.record_from(path, table, REGION)


def without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key not in names}


@given(values_of(TABLE_INPUT), properties)
def test_changing_an_entry_keeps_every_field_that_glue_takes(
    fields: dict[str, Any], wanted: dict[str, str]
) -> None:
    table = {**fields, "Name": "t", "VersionId": "7", "CreateTime": MADE, "DatabaseName": "db"}
    record = TableRecord(("db", "t"), "s3://b/t", wanted)
    changed = mapping.updated_input(TABLE_INPUT, table, record)
    own = ("Name", "TableType", "Parameters", "StorageDescriptor")
    assert without(changed, *own) == without(fields, *own)
    descriptor = fields.get("StorageDescriptor", {})
    assert changed["StorageDescriptor"] == {**descriptor, "Location": "s3://b/t"}
    assert read_as(("db", "t"), changed).properties == wanted


@given(values_of(TABLE_INPUT), properties)
def test_changing_a_lance_entry_adds_only_what_is_missing(
    fields: dict[str, Any], wanted: dict[str, str]
) -> None:
    wanted = {**wanted, "table_type": "lance"}
    record = TableRecord(("db", "t"), "s3://b/t", wanted)
    changed = mapping.updated_input(TABLE_INPUT, {**fields, "Name": "t"}, record)
    own = ("Name", "TableType", "Parameters", "StorageDescriptor", "PartitionKeys")
    assert without(changed, *own) == without(fields, *own)
    assert changed["PartitionKeys"] == fields.get("PartitionKeys", [])
    before, after = fields.get("StorageDescriptor", {}), changed["StorageDescriptor"]
    added = after.keys() - before.keys()
    assert added <= {"Columns", "InputFormat", "OutputFormat", "SerdeInfo", "Location"}
    assert without(after, "Location", "SerdeInfo", *added) == without(
        before, "Location", "SerdeInfo"
    )
    assert after["SerdeInfo"].items() >= before.get("SerdeInfo", {}).items()
    assert after["SerdeInfo"]["SerializationLibrary"]
    assert read_as(("db", "t"), changed).problems == ()


@given(properties, texts)
def test_a_new_entry_reads_as_the_record_that_it_was_made_from(
    wanted: dict[str, str], place: str
) -> None:
    record = TableRecord(("db", "t"), f"s3://b/{place}", wanted)
    made = mapping.table_input(TABLE_INPUT, record)
    read = read_as(("db", "t"), {**made, "VersionId": "0", "CreateTime": MADE})
    assert (read.location, read.properties, read.entry_type) == (
        record.location,
        wanted,
        "EXTERNAL_TABLE",
    )
    assert read.revision == "0"
    assert read.problems == ()
    assert read.identity


@given(values_of(DATABASE_INPUT), properties)
def test_changing_a_database_keeps_its_permissions_and_replaces_its_properties(
    fields: dict[str, Any], wanted: dict[str, str]
) -> None:
    record = NamespaceRecord(("db",), wanted)
    changed = mapping.database_input(DATABASE_INPUT, record, {**fields, "CreateTime": MADE})
    permissions = "CreateTableDefaultPermissions"
    assert changed.get(permissions) == fields.get(permissions)
    assert mapping.namespace_from(("db",), changed, None).properties == wanted


@pytest.mark.spec("glue.md#namespace")
def test_description_and_location_of_a_namespace_are_fields_of_the_database() -> None:
    given_properties = {"description": "all sales", "location": "s3://b/sales", "team": "x"}
    record = NamespaceRecord(("sales",), given_properties)
    made = mapping.database_input(DATABASE_INPUT, record, {})
    assert made == {
        "Name": "sales",
        "Description": "all sales",
        "LocationUri": "s3://b/sales",
        "Parameters": {"team": "x"},
    }
    assert mapping.namespace_from(("sales",), made, None).properties == given_properties


def test_what_an_answer_has_beyond_a_request_is_left_out_at_every_depth() -> None:
    view = {"IsProtected": True, "Representations": [{"Dialect": "SPARK", "IsStale": True}]}
    found = mapping.restrict_to_shape(
        TABLE_INPUT, {"Name": "v", "CatalogId": "1", "ViewDefinition": view}
    )
    assert found == {
        "Name": "v",
        "ViewDefinition": {"IsProtected": True, "Representations": [{"Dialect": "SPARK"}]},
    }


@pytest.mark.spec(
    "common.md#declaretable",
    "common.md#deregistertable",
    "common.md#describetable",
    "common.md#droptable",
    "common.md#renametable",
    "common.md#tableexists",
)
@pytest.mark.parametrize("kind", ["VIRTUAL_VIEW", "MATERIALIZED_VIEW"])
def test_a_view_is_never_lances(kind: str) -> None:
    table = {"Name": "v", "TableType": kind, "Parameters": {"table_type": "lance"}}
    assert not read_as(("db", "v"), table).is_lance


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"Parameters": None},
        {"StorageDescriptor": None},
        {"StorageDescriptor": {"Location": ""}},
    ],
)
def test_an_entry_without_most_fields_is_a_record_all_the_same(table: dict[str, Any]) -> None:
    record = read_as(("db", "t"), {"Name": "t", **table})
    assert (record.location, dict(record.properties), record.is_lance) == (None, {}, False)
    assert record.identity


HERE, ELSEWHERE = "123456789012", "111122223333"
TARGET = {"CatalogId": HERE, "DatabaseName": "There", "Name": "T"}


@pytest.mark.parametrize(
    ("target", "entry", "link_to", "link_path"),
    [
        ({}, {}, f"There.T of catalog {HERE}", ("there", "t")),
        ({"Region": REGION}, {}, f"There.T of catalog {HERE} in {REGION}", ("there", "t")),
        ({"Region": "eu-west-1"}, {}, f"There.T of catalog {HERE} in eu-west-1", None),
        ({"CatalogId": ELSEWHERE}, {}, f"There.T of catalog {ELSEWHERE}", None),
        ({"CatalogId": None}, {}, "There.T", None),
        ({"CatalogId": None}, {"CatalogId": None}, "There.T", None),
    ],
)
def test_a_link_says_what_it_is_a_link_to_and_where_if_it_is_in_the_same_catalog(
    target: dict[str, Any], entry: dict[str, Any], link_to: str, link_path: tuple[str, ...] | None
) -> None:
    table = {"Name": "l", "CatalogId": HERE, "TargetTable": {**TARGET, **target}, **entry}
    record = read_as(("here", "l"), table)
    assert (record.path, record.entry_type) == (("here", "l"), "resource link")
    assert (record.link_to, record.link_path) == (link_to, link_path)


@pytest.mark.parametrize(
    ("link_catalog", "link_path"), [(HERE, ("there", "t")), (ELSEWHERE, None), (None, None)]
)
def test_an_entry_of_a_database_linked_to_is_a_link_too(
    link_catalog: str | None, link_path: tuple[str, ...] | None
) -> None:
    target = {"CatalogId": HERE, "DatabaseName": "there"}
    link = {"Name": "here", "CatalogId": link_catalog, "TargetDatabase": target}
    table = {"Name": "t", "CatalogId": HERE, "DatabaseName": "there"}
    record = mapping.record_from(("here", "t"), table, REGION, link)
    assert (record.path, record.entry_type) == (("here", "t"), "")
    assert (record.link_to, record.link_path) == (f"there.t of catalog {HERE}", link_path)


@pytest.mark.spec("common.md#createtable", "common.md#registertable", "glue.md#declaretable")
@pytest.mark.parametrize(
    ("record", "says"),
    [
        (TableRecord(("d", "t"), "s3://b/" + "x" * 2050), "location has 2057 characters"),
        (TableRecord(("d", "t"), "s3://b/t", {"k" * 256: "v"}), "Property key 'kkk"),
        (TableRecord(("d", "t"), "s3://b/t", {"k": "v" * 512_001}), "value of property 'k'"),
        (TableRecord(("d", "t"), "s3://b/t", {"a\nb": "v"}), "control characters"),
        (
            TableRecord(("d", "t"), "s3://b/t", {"EXTERNAL": "FALSE"}),
            "'EXTERNAL' is reserved by the catalog",
        ),
    ],
)
def test_what_glue_cannot_hold_of_a_table_is_refused(record: TableRecord, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        mapping.table_input(TABLE_INPUT, record)


@pytest.mark.parametrize(
    "wanted",
    [
        {"k" * 255: "v" * 512_000},
        {"emoji \U0001f600": "\U0001f600"},
        {"a\tb": "line one\nline two"},
    ],
)
def test_what_glue_can_just_hold_is_taken(wanted: dict[str, str]) -> None:
    made = mapping.table_input(TABLE_INPUT, TableRecord(("d", "t"), "s3://b/t", wanted))
    assert made["Parameters"] == {**wanted, "EXTERNAL": "TRUE"}


@pytest.mark.spec("glue.md#createnamespace")
@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"description": "x" * 2049}, "Property description has 2049 characters"),
        ({"location": ""}, "Property location has 0 characters"),
        ({"location": "s3://b/" + "x" * 1024}, "Property location has 1031 characters"),
    ],
)
def test_what_glue_cannot_hold_of_a_database_is_refused(wanted: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        mapping.database_input(DATABASE_INPUT, NamespaceRecord(("d",), wanted), {})


def test_an_entry_has_its_owner_and_the_format_of_its_files() -> None:
    descriptor = {"InputFormat": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"}
    record = read_as(("d", "t"), {"Name": "t", "Owner": "ada", "StorageDescriptor": descriptor})
    assert (record.format, record.owner) == ("ORC", "ada")
    assert (read_as(("d", "t"), {}).format, read_as(("d", "t"), {}).owner) == ("", "")
