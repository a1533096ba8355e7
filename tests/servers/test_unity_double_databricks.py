"""The double of Databricks: statements are parsed strictly, and tables made by SQL alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import BadRequest, NotFound, ResourceConflict
from databricks.sdk.service.catalog import DataSourceFormat, TableType
from databricks.sdk.service.sql import (
    StatementState,
    StatementStatus,
)

from servers.unity import DATABRICKS, WAREHOUSE_ID, UnityServer
from servers.unity.raw import Raw, table
from servers.unity.sql import CreateTable, parse

pytestmark = pytest.mark.quick

TOKEN = "dapi-double"
CREATE = (
    "CREATE TABLE `c`.`s`.`t` USING TEXT LOCATION 's3://b/t' "
    "TBLPROPERTIES ('table_type' = 'lance', 'k' = 'v')"
)


@pytest.fixture
def server() -> Iterator[UnityServer]:
    with UnityServer(DATABRICKS) as running:
        running.add_catalog("c")
        running.add_schema("c", "s")
        yield running


@pytest.fixture
def client(server: UnityServer) -> WorkspaceClient:
    return WorkspaceClient(host=server.url, token=TOKEN)


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
    server: UnityServer, client: WorkspaceClient
) -> None:
    refused = Raw(server.url, TOKEN).error("POST", "/tables", table())
    assert refused == (400, "INVALID_PARAMETER_VALUE")
    made = client.tables.create(
        "T", "c", "s", TableType.EXTERNAL, DataSourceFormat.DELTA, "s3://b/t", columns=[]
    )
    assert made.full_name == "c.s.t"
    client.tables.delete("c.s.t")


def test_every_listing_begins_with_an_empty_page_that_has_a_token(
    server: UnityServer, client: WorkspaceClient
) -> None:
    raw = Raw(server.url, TOKEN)
    for number in range(50):
        server.add_table("c", "s", f"t{number:02}", storage_location=f"s3://b/t{number}")
    server.forget_requests()
    first = raw.get("/tables", catalog_name="c", schema_name="s")
    assert "tables" not in first
    assert first["next_page_token"]
    server.forget_requests()
    assert len(list(client.tables.list("c", "s", omit_columns=True))) == 50
    assert server.counts["GET /tables"] == 3
    query = {"catalog_name": "c", "schema_name": "s", "page_token": "forged"}
    assert raw.error("GET", "/tables", **query) == (400, "INVALID_PARAMETER_VALUE")


def test_a_field_that_the_api_does_not_have_is_a_violation(
    server: UnityServer, client: WorkspaceClient
) -> None:
    body = {"statement": CREATE, "warehouse_id": WAREHOUSE_ID, "colour": "red", "format": "XML"}
    client.api_client.do("POST", "/api/2.0/sql/statements", body=body)
    assert len(server.take_violations()) == 2


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
