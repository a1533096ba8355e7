"""The double of the open-source server does what was measured on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound
from databricks.sdk.service.catalog import DataSourceFormat, TableType

from servers.unity import (
    OPEN_SOURCE_0_3,
    OPEN_SOURCE_0_4,
    OPEN_SOURCE_0_6,
    UnityServer,
)
from servers.unity.raw import Raw, column, table

OPEN_SOURCE = [OPEN_SOURCE_0_3, OPEN_SOURCE_0_4, OPEN_SOURCE_0_6]
LOCATIONS = [
    ("s3://b/x/", "s3://b/x"),
    ("s3://b//x//y", "s3://b/x/y"),
    ("gs://b/x", "gs://b/x"),
    ("abfss://f@a.dfs.core.windows.net/x", "abfss://f@a.dfs.core.windows.net/x"),
    ("abfs://f@a/x", "abfs://f@a/x"),
    ("file:///p/x/", "file:///p/x"),
    ("file:/p/x", "file:///p/x"),
    ("/p//x/", "file:///p/x"),
]


@pytest.fixture(params=OPEN_SOURCE, ids=lambda dialect: dialect.name)
def server(request: pytest.FixtureRequest) -> Iterator[UnityServer]:
    with UnityServer(request.param) as running:
        yield running


def sdk_of(server: UnityServer) -> WorkspaceClient:
    return WorkspaceClient(host=server.url, token="not-used")


# -- errors --------------------------------------------------------------------------------------


MISSING = {
    "/catalogs/nowhere": "CATALOG_NOT_FOUND",
    "/schemas/nowhere.s": "CATALOG_NOT_FOUND",
    "/schemas/c.nowhere": "SCHEMA_NOT_FOUND",
    "/tables/nowhere.s.t": "CATALOG_NOT_FOUND",
    "/tables/c.nowhere.t": "SCHEMA_NOT_FOUND",
    "/tables/c.s.nowhere": "TABLE_NOT_FOUND",
}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_the_outermost_missing_level_is_named_by_new_servers_only(
    server: UnityServer, method: str
) -> None:
    raw, is_new = Raw.with_schema(server.url), server.dialect is OPEN_SOURCE_0_6
    found = {path: raw.error(method, path) for path in MISSING}
    assert found == {p: (404, c if is_new else "NOT_FOUND") for p, c in MISSING.items()}


def test_a_duplicate_is_a_conflict_in_0_3_and_a_bad_request_after(server: UnityServer) -> None:
    raw = Raw.with_schema(server.url)
    raw.post("/tables", table())
    requests_by_level: dict[str, tuple[str, dict[str, Any]]] = {
        "CATALOG": ("/catalogs", {"name": "c"}),
        "SCHEMA": ("/schemas", {"name": "s", "catalog_name": "c"}),
        "TABLE": ("/tables", table()),
    }
    for level, (path, body) in requests_by_level.items():
        old, later = (409, "ALREADY_EXISTS"), (400, f"{level}_ALREADY_EXISTS")
        expected = old if server.dialect is OPEN_SOURCE_0_3 else later
        assert raw.error("POST", path, body) == expected


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "ä", "a$b", "x" * 256])
def test_a_bad_name_is_an_invalid_argument(new: UnityServer, name: str) -> None:
    raw = Raw.with_schema(new.url)
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/catalogs", {"name": name}),
        ("/schemas", {"name": name, "catalog_name": "c"}),
        ("/tables", table(name)),
    ]
    for path, body in bodies:
        assert raw.error("POST", path, body) == (400, "INVALID_ARGUMENT")


def test_names_differ_in_case_and_hold_255_characters(new: UnityServer) -> None:
    raw = Raw.with_schema(new.url)
    names = ["T", "a-b", "a@b", "t", "x" * 255]
    for name in names:
        raw.post("/tables", table(name))
    listed = raw.get("/tables", catalog_name="c", schema_name="s")["tables"]
    assert [row["name"] for row in listed] == sorted(names)


def test_what_is_not_empty_cannot_be_deleted(server: UnityServer) -> None:
    raw = Raw.with_schema(server.url)
    raw.post("/tables", table())
    assert raw.error("DELETE", "/schemas/c.s") == (400, "FAILED_PRECONDITION")
    assert raw.error("DELETE", "/catalogs/c") == (400, "FAILED_PRECONDITION")
    server.api.others.add("volumes", "c", "other", "v")
    raw.post("/schemas", {"name": "other", "catalog_name": "c"})
    assert raw.error("DELETE", "/schemas/c.other") == (400, "FAILED_PRECONDITION")


def test_deletes_answer_with_plain_text_that_the_sdk_cannot_read(server: UnityServer) -> None:
    Raw.with_schema(server.url).post("/tables", table())
    client = sdk_of(server)
    with pytest.raises(requests.exceptions.JSONDecodeError):
        client.tables.delete("c.s.t")
    for path in ("/schemas/c.s", "/catalogs/c"):
        client.api_client.do("DELETE", f"/api/2.1/unity-catalog{path}", raw=True)
        with pytest.raises(NotFound):
            client.api_client.do("DELETE", f"/api/2.1/unity-catalog{path}", raw=True)


@pytest.mark.parametrize("path", ["/tables/c.s.t/exists", "/table-summaries", "/a/b/c"])
def test_an_unknown_route_is_a_404_in_plain_text(server: UnityServer, path: str) -> None:
    reply = Raw(server.url).send("GET", path)
    assert reply.status_code == 404
    assert reply.headers["content-type"].startswith("text/plain")
    assert "error_code" not in reply.text


@pytest.mark.parametrize("method", ["PATCH", "PUT", "POST"])
def test_no_method_updates_a_table(server: UnityServer, method: str) -> None:
    raw = Raw.with_schema(server.url)
    raw.post("/tables", table())
    assert raw.send(method, "/tables/c.s.t", {"properties": {}}).status_code == 405


# -- tables --------------------------------------------------------------------------------------


def test_a_lance_table_comes_back_as_it_was_made(server: UnityServer) -> None:
    Raw.with_schema(server.url)
    client = sdk_of(server)
    made = client.tables.create(
        "t", "c", "s", TableType.EXTERNAL, DataSourceFormat.TEXT, "s3://b/t",
        columns=[], properties={"table_type": "lance", "k": "v"},
    )  # fmt: skip
    assert client.tables.get("c.s.t") == made
    assert list(client.tables.list("c", "s")) == [made]
    assert made.properties == {"table_type": "lance", "k": "v"}
    assert made.table_id


def test_the_format_lance_is_refused_and_breaks_the_published_api(new: UnityServer) -> None:
    body = table(data_source_format="LANCE")
    assert Raw.with_schema(new.url).error("POST", "/tables", body) == (400, "INVALID_ARGUMENT")
    assert "data_source_format" in new.take_violations()[0]


@pytest.mark.parametrize(("given", "kept"), LOCATIONS)
def test_locations_are_normalised(new: UnityServer, given: str, kept: str) -> None:
    assert (
        Raw.with_schema(new.url).post("/tables", table(storage_location=given))["storage_location"]
        == kept
    )


@pytest.mark.parametrize(
    "change",
    [
        {"storage_location": None},
        {"columns": None},
        {"properties": {"k": None}},
        {"properties": {"k": "v" * 256}},
        {"properties": {"k" * 256: "v"}},
        {"comment": "c" * 65_536},
        {"storage_location": "s3://b/" + "x" * 2_048},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_the_server_did_not_foresee_is_a_500(
    server: UnityServer, change: dict[str, Any]
) -> None:
    raw = Raw.with_schema(server.url)
    assert raw.error("POST", "/tables", table(**change)) == (500, "INTERNAL")
    assert raw.error("GET", "/tables/c.s.t")[0] == 404
    server.take_violations()


def test_the_longest_properties_and_comment_are_kept(new: UnityServer) -> None:
    properties = {"k" * 255: "v" * 255}
    made = Raw.with_schema(new.url).post(
        "/tables", table(properties=properties, comment="c" * 65_535)
    )
    assert made["properties"] == properties


@pytest.mark.parametrize(
    "wrong",
    [
        {"type_json": '{"type":"long"}'},
        {"type_json": '"long"'},
        {"type_json": "long"},
        {"type_json": '{"name":"x","type":"long","nullable":true,"metadata":{}}'},
        {"type_json": '{"name":"id","type":"long","nullable":false,"metadata":{}}'},
    ],
    ids=["bare type", "a string", "no JSON", "another name", "another nullable"],
)
def test_type_json_must_be_a_whole_field_from_0_5_on(
    server: UnityServer, wrong: dict[str, Any]
) -> None:
    raw = Raw.with_schema(server.url)
    body = table(columns=[column(**wrong)])
    if server.dialect is OPEN_SOURCE_0_6:
        assert raw.error("POST", "/tables", body) == (400, "INVALID_ARGUMENT")
    else:
        assert raw.post("/tables", body)["columns"][0]["type_json"] == wrong["type_json"]
    assert raw.post("/tables", table("whole", columns=[column()]))["columns"][0]["name"] == "id"


# -- managed storage -----------------------------------------------------------------------------


def test_a_storage_root_has_a_directory_where_external_tables_are_refused(new: UnityServer) -> None:
    raw = Raw.with_schema(new.url)
    made = raw.post("/schemas", {"name": "m", "catalog_name": "c", "storage_root": "s3://b/r/"})
    managed = f"s3://b/r/__unitystorage/schemas/{made['schema_id']}"
    assert (made["storage_root"], made["storage_location"]) == ("s3://b/r", managed)
    for refused in (f"{managed}/t", "s3://b/__unitystorage", "s3://b/r"):
        body = table(schema_name="m", storage_location=refused)
        assert raw.error("POST", "/tables", body) == (400, "INVALID_ARGUMENT")
    assert raw.post("/tables", table(schema_name="m", storage_location="s3://b/r/t"))
    catalog = raw.post("/catalogs", {"name": "d", "storage_root": "file:///r"})
    assert catalog["storage_location"] == f"file:///r/__unitystorage/catalogs/{catalog['id']}"


# -- rename --------------------------------------------------------------------------------------

RENAME = "/delta/v1/catalogs/c/schemas/s/tables/t/rename"


def test_a_rename_keeps_id_location_and_properties(new: UnityServer) -> None:
    raw = Raw.with_schema(new.url)
    before = raw.post("/tables", table())
    assert raw.send("POST", RENAME, {"new-name": "u"}).status_code == 204
    after = raw.get("/tables/c.s.u")
    assert {**before, "name": "u", "updated_at": 0} == {**after, "updated_at": 0}
    assert raw.error("GET", "/tables/c.s.t")[0] == 404


def test_a_refused_rename_answers_in_the_shape_for_delta_clients(new: UnityServer) -> None:
    raw = Raw.with_schema(new.url)
    raw.post("/tables", table())
    raw.post("/tables", table("taken"))
    expected = {"taken": (409, "AlreadyExistsException"), "a b": (400, "InvalidParameter")}
    for name, (status, kind) in expected.items():
        reply = raw.send("POST", RENAME, {"new-name": name})
        assert reply.status_code == status
        assert reply.json()["error"]["type"].startswith(kind)
    reply = raw.send("POST", RENAME.replace("/t/", "/nowhere/"), {"new-name": "v"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (404, "NoSuchTableException")


# -- namespaces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/catalogs/c", "/schemas/c.s"])
def test_an_update_replaces_all_properties_and_an_empty_one_none(
    server: UnityServer, path: str
) -> None:
    raw = Raw.with_schema(server.url)
    raw.send("PATCH", path, {"properties": {"a": "1", "b": "2"}})
    raw.send("PATCH", path, {"properties": {"b": "3"}})
    assert raw.get(path)["properties"] == {"b": "3"}
    nothings: list[dict[str, Any]] = [{}, {"properties": {}}]
    for nothing in nothings:
        assert raw.send("PATCH", path, nothing).status_code == 200
        assert raw.get(path)["properties"] == {"b": "3"}
