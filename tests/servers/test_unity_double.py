"""The doubles of Unity Catalog do what was measured on it, or documented, and hold to its API."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import BadRequest, NotFound, ResourceConflict
from databricks.sdk.service.catalog import DataSourceFormat, TableType
from databricks.sdk.service.sql import StatementState, StatementStatus

from servers.unity import (
    DATABRICKS,
    OPEN_SOURCE_0_3,
    OPEN_SOURCE_0_4,
    OPEN_SOURCE_0_6,
    WAREHOUSE_ID,
    Bucket,
    Dialect,
    UnityServer,
)
from servers.unity.server import Raw, UnityProcess, column, table
from servers.unity.sql import CreateTable, parse

pytestmark = pytest.mark.quick

OPEN_SOURCE = [OPEN_SOURCE_0_3, OPEN_SOURCE_0_4, OPEN_SOURCE_0_6]
SEES, READS, NOTHING = (True, 200), (False, 200), (False, 403)


@pytest.fixture(params=OPEN_SOURCE, ids=lambda dialect: dialect.name)
def server(request: pytest.FixtureRequest) -> Iterator[UnityServer]:
    with UnityServer(request.param) as running:
        yield running


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


def test_deletes_answer_with_plain_text_that_the_sdk_cannot_read(server: UnityServer) -> None:
    Raw.with_schema(server.url).post("/tables", table())
    client = WorkspaceClient(host=server.url, token="not-used")
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


# -- tables --------------------------------------------------------------------------------------


def test_the_format_lance_is_refused_and_breaks_the_published_api(new: UnityServer) -> None:
    body = table(data_source_format="LANCE")
    assert Raw.with_schema(new.url).error("POST", "/tables", body) == (400, "INVALID_ARGUMENT")
    assert "data_source_format" in new.take_violations()[0]


LOCATIONS = [
    ("s3://b/x/", "s3://b/x"),
    ("s3://b//x//y", "s3://b/x/y"),
    ("gs://b/x", "gs://b/x"),
    ("abfss://f@a.dfs.core.windows.net/x", "abfss://f@a.dfs.core.windows.net/x"),
    ("abfs://f@a/x", "abfs://f@a/x"),
    ("file:///p/x/", "file:///p/x"),
    ("file:/p/x", "file:///p/x"),
    ("/p//x/", "file:///p/x"),
    ("/p/öl/100%/a;b#c?d", "file:///p/%C3%B6l/100%25/a;b%23c%3Fd"),
    ("file:///p/öl/%C3%B6l", "file:///p/öl/%C3%B6l"),
]


@pytest.mark.parametrize(("given", "kept"), LOCATIONS)
def test_locations_are_normalised(new: UnityServer, given: str, kept: str) -> None:
    assert (
        Raw.with_schema(new.url).post("/tables", table(storage_location=given))["storage_location"]
        == kept
    )


@pytest.mark.parametrize("given", ["/p/{}", "file:///p/{}", "s3://b/{}"])
def test_what_no_uri_can_hold_is_refused_in_plain_paths_too(new: UnityServer, given: str) -> None:
    raw = Raw.with_schema(new.url)
    for letter in ' []{}"<>\\^`|':
        body = table(storage_location=given.format(letter))
        assert raw.error("POST", "/tables", body) == (400, "INVALID_ARGUMENT"), letter


@pytest.mark.parametrize(
    "change",
    [
        {"storage_location": None},
        {"table_type": None},
        {"properties": {"k": "😀" * 128}},
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


RENAME = "/delta/v1/catalogs/c/schemas/s/tables/t/rename"


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


BAD_REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/schemas", None),
    ("GET", "/tables?catalog_name=c", None),
    ("GET", "/catalogs?max_results=many", None),
    ("POST", "/tables", table(properties=[])),
    ("POST", "/tables", table(data_source_format="LANCE")),
    ("POST", "/tables", []),
    ("POST", "/temporary-table-credentials", {"table_id": "x", "operation": "READ"}),
    ("POST", "/temporary-table-credentials", {"table_id": "x", "operation": "WRITE"}),
]


def test_a_request_that_cannot_be_parsed_is_a_500_in_0_4_and_a_bad_request_in_others(
    server: UnityServer,
) -> None:
    raw = Raw.with_schema(server.url)
    old = server.dialect is OPEN_SOURCE_0_4
    expected = (500, "INTERNAL") if old else (400, "INVALID_ARGUMENT")
    assert [raw.error(*each) for each in BAD_REQUESTS] == [expected] * len(BAD_REQUESTS)
    server.take_violations()


def test_credentials_name_the_operation_and_a_place_that_the_server_can_have(
    new: UnityServer,
) -> None:
    raw = Raw.with_schema(new.url)
    tables, paths = "/temporary-table-credentials", "/temporary-path-credentials"
    made = raw.post("/tables", table(storage_location="/p/x"))["table_id"]
    for path, body, expected in (
        (tables, {"table_id": made}, (500, "INTERNAL")),
        (tables, {"operation": "READ"}, (500, "INTERNAL")),
        (paths, {"url": "s3a://b/x", "operation": "PATH_READ"}, (400, "INVALID_ARGUMENT")),
        (paths, {"url": "s3://b/x", "operation": "PATH_READ"}, (400, "FAILED_PRECONDITION")),
    ):
        assert raw.error("POST", path, body) == expected, body
    assert raw.post(tables, {"table_id": made, "operation": "READ"})["aws_temp_credentials"] is None
    new.take_violations()


# -- the published API ----------------------------------------------------------------------------


def end_of_a_server_after(method: str, path: str, body: object, **query: str) -> None:
    with UnityServer() as server:
        Raw.with_schema(server.url).send(method, path, body, **query)


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "problem"),
    [
        ("POST", "/catalogs", {"name": "x", "colour": "red"}, {}, "colour"),
        ("POST", "/catalogs", {"name": 5}, {}, "name"),
        ("POST", "/tables", table(columns=None), {}, "columns"),
        ("POST", "/tables", table(columns=[{"title": "x"}]), {}, "columns.title"),
        ("GET", "/schemas", None, {}, "catalog_name"),
        ("GET", "/catalogs", None, {"limit": "5"}, "limit"),
    ],
)
def test_a_request_against_the_published_api_fails_the_test_that_sent_it(
    method: str, path: str, body: object, query: dict[str, str], problem: str
) -> None:
    with pytest.raises(AssertionError, match=problem):
        end_of_a_server_after(method, path, body, **query)


def test_a_reply_against_the_published_api_is_a_defect_of_the_double() -> None:
    with UnityServer() as server:
        raw = Raw.with_schema(server.url)
        server.state.catalogs.page(None, 1)[0].change(created_at="yesterday")
        assert "created_at" in raw.send("GET", "/catalogs/c").json()["message"]
        assert server.defects
        with pytest.raises(AssertionError, match="created_at"):
            server.require_clean()
        server.defects.clear()


@pytest.mark.parametrize("dialect", [pytest.param(OPEN_SOURCE_0_4, marks=pytest.mark.servers)])
def test_the_double_runs_in_a_process_of_its_own_whose_exit_code_shows_bad_requests(
    dialect: Dialect,
) -> None:
    with UnityProcess(dialect, ["made"]) as running:
        raw = Raw(running.url)
        assert [row["name"] for row in raw.get("/catalogs")["catalogs"]] == ["made"]
        assert raw.error("GET", "/catalogs/nowhere") == (404, "NOT_FOUND")
        raw.send("POST", "/catalogs", {"name": "x", "colour": "red"})
        assert running.stop() == 1


def test_a_request_that_is_cut_off_never_came(new: UnityServer) -> None:
    address = urlsplit(new.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 10) as cut:
        cut.sendall(b"POST /api/2.1/unity-catalog/catalogs HTTP/1.1\r\ncontent-length: 99\r\n\r\n{")
        cut.shutdown(socket.SHUT_WR)
        assert cut.recv(100) == b""
    assert not new.requests
    assert not new.take_violations()


# -- Databricks: statements are parsed strictly, and tables made by SQL alone ---------------------


TOKEN = "dapi-double"
CREATE = (
    "CREATE TABLE `c`.`s`.`t` USING TEXT LOCATION 's3://b/t' "
    "TBLPROPERTIES ('table_type' = 'lance', 'k' = 'v')"
)


@pytest.fixture
def workspace() -> Iterator[UnityServer]:
    with UnityServer(DATABRICKS) as running:
        running.add_catalog("c")
        running.add_schema("c", "s")
        yield running


@pytest.fixture
def client(workspace: UnityServer) -> WorkspaceClient:
    return WorkspaceClient(host=workspace.url, token=TOKEN)


def run(client: WorkspaceClient, text: str) -> StatementStatus:
    reply = client.statement_execution.execute_statement(text, WAREHOUSE_ID, wait_timeout="30s")
    assert reply.status is not None
    return reply.status


# -- the parser ----------------------------------------------------------------------------------


WRONG = [
    "",
    "SELECT 1",
    "CREATE TABLE",
    "CREATE TABLE t",
    CREATE + ";",
    CREATE + " -- note",
    CREATE + "; DROP TABLE c.s.t",
    CREATE.replace("'v'", "v"),
    CREATE.replace("'v'", ":v"),
    CREATE.replace("'v'", "'a''b'"),
    CREATE.replace("'v'", "'a"),
    CREATE.replace("`t`", "`t"),
    CREATE.replace("`t`", "``"),
    CREATE.replace("`t`", "t-u"),
    CREATE.replace("`t`", "t u"),
    CREATE.replace("LOCATION", "PLACE"),
    CREATE.replace("'s3://b/t'", "s3://b/t"),
    CREATE.replace("'s3://b/t'", "'s3://b/t' LOCATION 's3://b/u'"),
    "ALTER TABLE c.s.t SET TBLPROPERTIES ()",
    "ALTER TABLE c.s.t SET TBLPROPERTIES ('a')",
    "ALTER TABLE c.s.t UNSET TBLPROPERTIES 'a'",
    "ALTER TABLE c.s.t ADD COLUMNS (a INT)",
    "ALTER TABLE c.s.t RENAME c.s.u",
    "DROP TABLE c.s.t PURGE",
    "DROP SCHEMA c.s",
]


def test_anything_else_is_a_syntax_error(client: WorkspaceClient) -> None:
    for text in WRONG:
        result = run(client, text)
        assert (result.state, result.sql_state) == (StatementState.FAILED, "42601"), text
        assert result.error is not None
        assert (result.error.message or "").startswith("[PARSE_SYNTAX_ERROR]")
        assert list(client.tables.list("c", "s")) == []


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'it\'s'", "it's"),
        ('"a"', "a"),
        ('"it\'s"', "it's"),
        (r"'a\\b'", "a\\b"),
        (r"'\n\t\r\0\b\Z'", "\n\t\r\0\b\x1a"),
        (r"'\u00e4\U0001F600\101'", "ä😀A"),
        (r"'\%\_\q'", r"\%\_q"),
        ("'`'", "`"),
        ("'a\nb'", "a\nb"),
    ],
)
def test_literals_are_read_as_spark_reads_them(literal: str, value: str) -> None:
    found = parse(CREATE.replace("'v'", literal))
    assert isinstance(found, CreateTable)
    assert dict(found.properties)["k"] == value


# -- beside SQL ----------------------------------------------------------------------------------


def test_only_external_delta_tables_are_made_by_the_tables_api(
    workspace: UnityServer, client: WorkspaceClient
) -> None:
    refused = Raw(workspace.url, TOKEN).error("POST", "/tables", table())
    assert refused == (400, "INVALID_PARAMETER_VALUE")
    made = client.tables.create(
        "T", "c", "s", TableType.EXTERNAL, DataSourceFormat.DELTA, "s3://b/t", columns=[]
    )
    assert made.full_name == "c.s.t"
    client.tables.delete("c.s.t")


def test_every_listing_begins_with_an_empty_page_that_has_a_token(
    workspace: UnityServer, client: WorkspaceClient
) -> None:
    raw = Raw(workspace.url, TOKEN)
    for number in range(50):
        workspace.add_table("c", "s", f"t{number:02}", storage_location=f"s3://b/t{number}")
    workspace.forget_requests()
    first = raw.get("/tables", catalog_name="c", schema_name="s")
    assert "tables" not in first
    assert first["next_page_token"]
    workspace.forget_requests()
    assert len(list(client.tables.list("c", "s", omit_columns=True))) == 50
    assert workspace.counts["GET /tables"] == 3
    query = {"catalog_name": "c", "schema_name": "s", "page_token": "forged"}
    assert raw.error("GET", "/tables", **query) == (400, "INVALID_PARAMETER_VALUE")


def test_a_field_that_the_api_does_not_have_is_a_violation(
    workspace: UnityServer, client: WorkspaceClient
) -> None:
    body = {"statement": CREATE, "warehouse_id": WAREHOUSE_ID, "colour": "red", "format": "XML"}
    client.api_client.do("POST", "/api/2.0/sql/statements", body=body)
    assert len(workspace.take_violations()) == 2


def test_names_are_kept_in_lower_case_and_found_in_any(client: WorkspaceClient) -> None:
    made = client.schemas.create("Sales", "C")
    assert (made.name, made.full_name) == ("sales", "c.sales")
    assert client.schemas.get("C.SALES").name == "sales"
    with pytest.raises(ResourceConflict) as refused:
        client.schemas.create("SALES", "c")
    assert refused.value.error_code == "SCHEMA_ALREADY_EXISTS"


def test_a_new_catalog_has_schemas_of_which_one_stays(client: WorkspaceClient) -> None:
    client.catalogs.create("new")
    names = [schema.name for schema in client.schemas.list("new")]
    assert names == ["default", "information_schema"]
    client.schemas.delete("new.default")
    client.catalogs.delete("new")
    with pytest.raises(NotFound):
        client.catalogs.get("new")


@pytest.mark.parametrize("wait", ["4s", "51s", "5", "soon"])
def test_a_wait_outside_the_limits_is_refused(client: WorkspaceClient, wait: str) -> None:
    with pytest.raises(BadRequest, match="wait_timeout"):
        client.statement_execution.execute_statement(CREATE, WAREHOUSE_ID, wait_timeout=wait)


# -- rights of users -------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Iterator[UnityServer]:
    with UnityServer() as running:
        raw = Raw.with_schema(running.url)
        raw.post("/tables", table())
        raw.close()
        yield running


@pytest.fixture
def mia(guarded: UnityServer) -> Iterator[Raw]:
    raw = Raw(guarded.url, guarded.grants.add_user("mia"))
    yield raw
    raw.close()


def seen(raw: Raw, schema: str = "s") -> list[tuple[bool, int]]:
    """Whether a catalog, a schema and a table are listed, and what a read by name answers."""
    answers = []
    for collection, name, parent in (
        ("catalogs", "c", {}),
        ("schemas", f"c.{schema}", {"catalog_name": "c"}),
        ("tables", f"c.{schema}.t", {"catalog_name": "c", "schema_name": schema}),
    ):
        listed = [row["name"] for row in raw.get(f"/{collection}", **parent)[collection]]
        status = raw.send("GET", f"/{collection}/{name}").status_code
        answers.append((name.rpartition(".")[2] in listed, status))
    return answers


def test_rights_show_catalog_schema_and_table_one_after_the_other(
    guarded: UnityServer, mia: Raw
) -> None:
    assert seen(mia) == [NOTHING, NOTHING, NOTHING]
    for name, right, expected in (
        ("c", "USE CATALOG", [SEES, NOTHING, NOTHING]),
        ("c.s", "CREATE TABLE", [SEES, NOTHING, NOTHING]),
        ("c.s.t", "SELECT", [SEES, NOTHING, NOTHING]),
        ("c.s", "USE SCHEMA", [SEES, SEES, SEES]),
    ):
        guarded.grants.grant("mia", name, right)
        assert seen(mia) == expected, right
    assert mia.send("POST", "/tables", table("n")).status_code == 200


def test_a_schema_of_her_own_is_in_no_list_until_its_use_is_granted(
    guarded: UnityServer, mia: Raw
) -> None:
    guarded.grants.grant("mia", "c", "USE CATALOG", "CREATE SCHEMA")
    mia.post("/schemas", {"name": "o", "catalog_name": "c"})
    mia.post("/tables", table(schema_name="o"))
    assert seen(mia, "o") == [SEES, READS, SEES]
    guarded.grants.grant("mia", "c.o", "USE SCHEMA")
    assert seen(mia, "o") == [SEES, SEES, SEES]
    assert mia.send("DELETE", "/tables/c.o.t").status_code == 200


def test_a_catalog_of_her_own_shows_all_that_is_in_it(mia: Raw) -> None:
    mia.post("/catalogs", {"name": "m"})
    mia.post("/schemas", {"name": "s", "catalog_name": "m"})
    mia.post("/tables", table(catalog_name="m"))
    assert [row["name"] for row in mia.get("/catalogs")["catalogs"]] == ["m"]
    assert [row["name"] for row in mia.get("/schemas", catalog_name="m")["schemas"]] == ["s"]
    assert mia.send("GET", "/tables/m.s.t").status_code == 200


def test_what_is_not_hers_is_refused_and_what_does_not_exist_is_not_found(
    guarded: UnityServer, mia: Raw
) -> None:
    guarded.grants.grant("mia", "c", "USE CATALOG")
    for method, path, body in (
        ("DELETE", "/tables/c.s.t", None),
        ("DELETE", "/schemas/c.s", None),
        ("POST", "/schemas", {"name": "o", "catalog_name": "c"}),
        ("POST", "/tables", table("n")),
    ):
        assert mia.error(method, path, body) == (403, "PERMISSION_DENIED"), path
    assert mia.error("GET", "/tables/c.s.missing") == (404, "TABLE_NOT_FOUND")
    assert mia.error("GET", "/tables/c.missing.t") == (404, "SCHEMA_NOT_FOUND")


USE, CREATE_S = "USE CATALOG", "CREATE SCHEMA"
USE_S, CREATE_T = "USE SCHEMA", "CREATE TABLE"
OWNER = "OWNER"
# What the server 0.4.1 and 0.7.0 answered to who has these rights on the catalog, the schema and
# the table: "x" is 403, or left out of the list of schemas. The letters are the calls of `answers`.
MEASURED = [
    (("", f"{USE_S},{CREATE_T}", OWNER), "xxxxxxxxxxxx"),
    ((USE, "", "SELECT"), "xxxxxxxxxxxx"),
    ((USE, USE_S, "SELECT"), "...xxx.xxxxx"),
    ((USE, USE_S, "MODIFY"), "...xxxxxxxxx"),
    ((USE, f"{USE_S},{CREATE_T}", ""), ".x.x.xxxxxxx"),
    ((USE, f"{USE_S},{CREATE_T}", OWNER), "...x.x...xx."),
    ((USE, OWNER, ""), "x..x.xxxxx.."),
    ((USE, f"{OWNER},{USE_S}", ""), "...x.xxxxx.."),
    ((f"{USE},{CREATE_S}", USE_S, OWNER), "....xx...xx."),
    ((f"{USE},{USE_S},SELECT", "", ""), "...xxx.xxxxx"),
    ((f"{USE},{USE_S},SELECT", CREATE_T, "MODIFY"), "...x.x...xxx"),
    ((OWNER, "", ""), "..x.xxxxxx.."),
    ((OWNER, OWNER, ""), ".....xxxxx.."),
    ((OWNER, OWNER, OWNER), ".....x...x.."),
]


def answers(raw: Raw, table_id: str) -> str:
    """Return ``.`` for each call that the rights allow, and ``x`` for the others."""
    schemas = raw.get("/schemas", catalog_name="c")["schemas"]
    by_table, by_path = "/temporary-table-credentials", "/temporary-path-credentials"
    calls: list[tuple[str, str, object]] = [
        ("GET", "/tables/c.s.t", None),
        ("PATCH", "/schemas/c.s", {"comment": "x"}),
        ("POST", "/schemas", {"name": "n", "catalog_name": "c"}),
        ("POST", "/tables", table("n")),
        ("POST", "/tables", table("m", storage_location="s3://bucket/t/m")),
        ("POST", by_table, {"table_id": table_id, "operation": "READ"}),
        ("POST", by_table, {"table_id": table_id, "operation": "READ_WRITE"}),
        ("POST", by_path, {"url": "s3://bucket/t/data", "operation": "PATH_READ_WRITE"}),
        ("POST", by_path, {"url": "s3://bucket/new", "operation": "PATH_CREATE_TABLE"}),
        ("DELETE", "/schemas/c.s", None),
        ("DELETE", "/tables/c.s.t", None),
    ]
    allowed = [bool(schemas)]
    allowed += [raw.send(*each).status_code != 403 for each in calls]
    return "".join("." if each else "x" for each in allowed)


@pytest.mark.parametrize(("rights", "expected"), MEASURED)
def test_rights_allow_what_they_were_seen_to_allow(
    guarded: UnityServer, mia: Raw, rights: tuple[str, str, str], expected: str
) -> None:
    guarded.grants.refuses_overlaps = True
    for name, given in zip(("c", "c.s", "c.s.t"), rights, strict=True):
        guarded.grants.grant("mia", name, *given.split(","))
        if OWNER in given:
            guarded.grants.give("mia", name)
    assert answers(mia, str(guarded.table("c", "s", "t")["table_id"])) == expected


def test_the_administrator_reads_all_and_drops_no_table_of_somebody_else(
    guarded: UnityServer, mia: Raw
) -> None:
    mia.post("/catalogs", {"name": "m"})
    mia.post("/schemas", {"name": "s", "catalog_name": "m"})
    made = mia.post("/tables", table(catalog_name="m", storage_location="s3://bucket/m"))
    admin = Raw(guarded.url)
    assert [row["name"] for row in admin.get("/schemas", catalog_name="m")["schemas"]] == ["s"]
    assert admin.send("GET", "/tables/m.s.t").status_code == 200
    wanted = {"table_id": made["table_id"], "operation": "READ"}
    for method, path, body in (
        ("PATCH", "/catalogs/m", {"comment": "x"}),
        ("POST", "/tables", table("n", catalog_name="m")),
        ("POST", "/temporary-table-credentials", wanted),
        ("DELETE", "/tables/m.s.t", None),
    ):
        assert admin.error(method, path, body) == (403, "PERMISSION_DENIED"), path
    guarded.grants.grant(None, "m", USE, USE_S, CREATE_T)
    assert admin.send("POST", "/tables", table("n", catalog_name="m")).status_code == 200


def test_nobody_has_a_storage_root_without_an_external_location(
    guarded: UnityServer, mia: Raw
) -> None:
    body = {"name": "r", "catalog_name": "c", "storage_root": "s3://bucket/root"}
    for raw in (Raw(guarded.url), mia):
        guarded.grants.grant("mia", "c", USE, CREATE_S)
        assert raw.error("POST", "/schemas", body) == (403, "PERMISSION_DENIED")


def test_a_right_that_is_taken_back_allows_nothing(guarded: UnityServer, mia: Raw) -> None:
    guarded.grants.grant("mia", "c", USE, USE_S, "SELECT")
    assert seen(mia) == [SEES, SEES, SEES]
    guarded.grants.revoke("mia", "c", "SELECT")
    assert seen(mia) == [SEES, SEES, NOTHING]


# -- credentials ---------------------------------------------------------------------------------


def vended(raw: Raw, table_id: str, operation: str) -> int:
    body = {"table_id": table_id, "operation": operation}
    return raw.send("POST", "/temporary-table-credentials", body).status_code


def vended_for(raw: Raw, url: str) -> int:
    body = {"url": url, "operation": "PATH_CREATE_TABLE"}
    return raw.send("POST", "/temporary-path-credentials", body).status_code


def test_credentials_of_a_table_are_for_its_owner_and_for_who_may_read_or_change_it(
    guarded: UnityServer, mia: Raw
) -> None:
    guarded.add_bucket("s3://bucket", Bucket("key", "secret"))
    for name, rights in (("c", ["USE CATALOG"]), ("c.s", ["USE SCHEMA", "CREATE TABLE"])):
        guarded.grants.grant("mia", name, *rights)
    own = mia.post("/tables", table("own"))["table_id"]
    other = guarded.table("c", "s", "t")["table_id"]
    operations = ("READ", "READ_WRITE")
    assert [vended(mia, own, each) for each in operations] == [200, 200]
    assert [vended(mia, other, each) for each in operations] == [403, 403]
    guarded.grants.grant("mia", "c.s.t", "SELECT")
    assert [vended(mia, other, each) for each in operations] == [200, 403]
    guarded.grants.grant("mia", "c.s.t", "MODIFY")
    assert [vended(mia, other, each) for each in operations] == [200, 200]
    admin = Raw(guarded.url)
    assert [vended(admin, each, "READ") for each in (other, own)] == [200, 403]
    admin.close()


def test_credentials_of_a_path_take_a_right_on_its_external_location(
    guarded: UnityServer, mia: Raw
) -> None:
    url = "file:///lake/new"
    assert vended_for(mia, url) == 403
    guarded.grants.grant_location("mia", "file:///lake", "READ FILES", "WRITE FILES")
    assert vended_for(mia, url) == 403
    guarded.grants.grant_location("mia", "file:///lake", "CREATE EXTERNAL TABLE")
    assert [vended_for(mia, each) for each in (url, "file:///lake2/new")] == [200, 403]


def test_a_table_in_an_external_location_takes_a_right_on_it(
    guarded: UnityServer, mia: Raw
) -> None:
    for name, rights in (("c", ["USE CATALOG"]), ("c.s", ["USE SCHEMA", "CREATE TABLE"])):
        guarded.grants.grant("mia", name, *rights)
    guarded.grants.grant_location("bob", "file:///lake", "CREATE EXTERNAL TABLE")
    inside = table("inside", storage_location="file:///lake/inside")
    assert mia.send("POST", "/tables", inside).status_code == 403
    assert mia.send("POST", "/tables", table("outside")).status_code == 200
    guarded.grants.grant_location("mia", "file:///lake", "CREATE EXTERNAL TABLE")
    assert mia.send("POST", "/tables", inside).status_code == 200
