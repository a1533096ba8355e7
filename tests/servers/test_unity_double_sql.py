"""The double of Databricks: statements are parsed strictly, executed exactly, and polled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import BadRequest, NotFound
from databricks.sdk.service.catalog import TableInfo
from databricks.sdk.service.sql import (
    ExecuteStatementRequestOnWaitTimeout,
    StatementResponse,
    StatementState,
    StatementStatus,
)
from hypothesis import given
from hypothesis import strategies as st

from servers.unity import DATABRICKS, WAREHOUSE_ID, UnityServer
from servers.unity.sql import CreateTable, parse

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
    return WorkspaceClient(host=server.url, token="dapi-double")


def run(client: WorkspaceClient, text: str, wait: str = "30s") -> StatementStatus:
    return status(
        client.statement_execution.execute_statement(text, WAREHOUSE_ID, wait_timeout=wait)
    )


def status(reply: StatementResponse) -> StatementStatus:
    assert reply.status is not None
    return reply.status


def succeed(client: WorkspaceClient, *texts: str) -> None:
    for text in texts:
        result = run(client, text)
        assert result.state is StatementState.SUCCEEDED, result


def only_table(client: WorkspaceClient) -> TableInfo:
    [found] = client.tables.list("c", "s")
    return found


# -- what statements do --------------------------------------------------------------------------


def test_create_makes_an_external_text_table(client: WorkspaceClient) -> None:
    succeed(client, CREATE)
    made = client.tables.get("c.s.t")
    assert made.properties == {"table_type": "lance", "k": "v"}
    assert (made.table_type, made.data_source_format) == made_as_text()
    assert made.storage_location == "s3://b/t"
    assert [column.name for column in made.columns or ()] == ["value"]


def made_as_text() -> tuple[object, object]:
    info = TableInfo.from_dict({"table_type": "EXTERNAL", "data_source_format": "TEXT"})
    return info.table_type, info.data_source_format


def test_properties_and_location_are_changed_and_the_table_stays(client: WorkspaceClient) -> None:
    succeed(client, CREATE)
    before = client.tables.get("c.s.t")
    succeed(
        client,
        "ALTER TABLE c.s.t SET TBLPROPERTIES ('k' = 'w', 'new' = '1')",
        "ALTER TABLE c.s.t UNSET TBLPROPERTIES ('table_type')",
        "ALTER TABLE c.s.t UNSET TBLPROPERTIES IF EXISTS ('nowhere')",
        "ALTER TABLE c.s.t SET LOCATION 's3://b/other'",
        "ALTER TABLE c.s.t RENAME TO c.s.U",
    )
    after = only_table(client)
    assert (after.name, after.full_name, after.table_id) == ("u", "c.s.u", before.table_id)
    assert after.properties == {"k": "w", "new": "1"}
    assert after.storage_location == "s3://b/other"
    succeed(client, "DROP TABLE c.s.u", "DROP TABLE IF EXISTS c.s.u")
    assert list(client.tables.list("c", "s")) == []


def test_create_if_not_exists_keeps_the_existing_table(client: WorkspaceClient) -> None:
    succeed(client, CREATE, CREATE.replace("TABLE", "TABLE IF NOT EXISTS", 1).replace("'v'", "'x'"))
    assert (only_table(client).properties or {})["k"] == "v"


def test_names_without_a_catalog_take_the_request_s(client: WorkspaceClient) -> None:
    text = "CREATE TABLE `T` USING TEXT LOCATION 's3://b/t'"
    reply = client.statement_execution.execute_statement(
        text, WAREHOUSE_ID, catalog="c", schema="s"
    )
    assert status(reply).state is StatementState.SUCCEEDED
    assert only_table(client).name == "t"


@pytest.mark.parametrize(
    ("text", "condition", "state"),
    [
        (CREATE, "TABLE_OR_VIEW_ALREADY_EXISTS", "42P07"),
        ("DROP TABLE c.s.nowhere", "TABLE_OR_VIEW_NOT_FOUND", "42P01"),
        ("DROP TABLE c.nowhere.t", "SCHEMA_NOT_FOUND", "42704"),
        ("DROP TABLE nowhere.s.t", "NO_SUCH_CATALOG_EXCEPTION", "42704"),
        ("ALTER TABLE c.s.t UNSET TBLPROPERTIES ('x')", "UNSET_NONEXISTENT_PROPERTIES", "42K0J"),
        (
            "ALTER TABLE c.s.t SET TBLPROPERTIES ('owner' = 'x')",
            "UNSUPPORTED_FEATURE.SET_TABLE_PROPERTY",
            "0A000",
        ),
        ("ALTER TABLE c.s.t RENAME TO c.default.t", "UNSUPPORTED_FEATURE", "0A000"),
        ("ALTER TABLE c.s.t SET LOCATION '/p'", "INVALID_PARAMETER_VALUE", "22023"),
        ("CREATE TABLE c.s.u USING LANCE LOCATION 's3://b/u'", "DATA_SOURCE_NOT_FOUND", "42K02"),
        ("CREATE TABLE c.s.u USING TEXT", "UC_DATASOURCE_NOT_SUPPORTED", "0AKUC"),
        (
            "CREATE TABLE c.s.u (id BIGINT) USING TEXT LOCATION 's3://b/u'",
            "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE",
            "0A000",
        ),
        (
            "CREATE TABLE c.s.u USING TEXT LOCATION 's3://b/u' TBLPROPERTIES ('a'='1','a'='2')",
            "DUPLICATE_KEY",
            "23505",
        ),
    ],
)
def test_a_statement_that_cannot_be_done_fails_and_changes_nothing(
    client: WorkspaceClient, text: str, condition: str, state: str
) -> None:
    succeed(client, CREATE)
    before = only_table(client)
    result = run(client, text)
    assert (result.state, result.sql_state) == (StatementState.FAILED, state)
    assert result.error is not None
    assert (result.error.message or "").startswith(f"[{condition}")
    assert only_table(client) == before


def test_the_property_table_type_is_reserved_by_later_releases(
    server: UnityServer, client: WorkspaceClient
) -> None:
    server.databricks.warehouse.reserves_table_type = True
    result = run(client, CREATE)
    assert result.error is not None
    assert "table_type is a reserved table property" in (result.error.message or "")
    succeed(client, CREATE.replace("table_type", "TABLE_TYPE"))
    assert (only_table(client).properties or {})["TABLE_TYPE"] == "lance"


def test_locations_overlap_only_where_that_is_asked_for(
    server: UnityServer, client: WorkspaceClient
) -> None:
    inner = "CREATE TABLE c.s.{} USING TEXT LOCATION 's3://b/t/inner'"
    succeed(client, CREATE, inner.format("u"))
    server.databricks.warehouse.refuses_overlaps = True
    result = run(client, inner.format("w"))
    assert result.error is not None
    assert "LOCATION_OVERLAP" in (result.error.message or "")


def test_columns_of_other_formats_keep_their_types(client: WorkspaceClient) -> None:
    text = (
        "CREATE TABLE c.s.t (`a b` BIGINT NOT NULL COMMENT 'x', v array<float>, "
        "m struct<k:string,d:decimal(10,2)>) USING PARQUET LOCATION 's3://b/t'"
    )
    succeed(client, text)
    found = {column.name: column.type_text for column in only_table(client).columns or ()}
    expected = {"v": "array<float>", "m": "struct<k:string,d:decimal(10,2)>"}
    assert found == {"a b": "bigint", **expected}


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


@given(st.text(min_size=1), st.text())
def test_any_name_and_value_can_be_quoted(name: str, value: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    literal = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    found = parse(CREATE.replace("`t`", quoted).replace("'v'", literal))
    assert isinstance(found, CreateTable)
    assert found.name == ("c", "s", name)
    assert dict(found.properties)["k"] == value


# -- submit, poll, cancel ------------------------------------------------------------------------


def test_a_slow_statement_is_polled_to_its_end(
    server: UnityServer, client: WorkspaceClient
) -> None:
    server.databricks.statements.polls = 2
    reply = client.statement_execution.execute_statement(CREATE, WAREHOUSE_ID, wait_timeout="5s")
    states = [status(reply).state]
    for _ in range(3):
        polled = client.statement_execution.get_statement(str(reply.statement_id))
        states.append(status(polled).state)
    assert [state.value for state in states if state] == [
        "PENDING", "RUNNING", "RUNNING", "SUCCEEDED",
    ]  # fmt: skip
    assert only_table(client).name == "t"
    assert server.databricks.statements.submitted == [CREATE]


def test_without_waiting_a_statement_is_pending_and_not_done(client: WorkspaceClient) -> None:
    assert run(client, CREATE, "0s").state is StatementState.PENDING
    assert list(client.tables.list("c", "s")) == []


def test_a_cancelled_statement_has_no_effect(server: UnityServer, client: WorkspaceClient) -> None:
    server.databricks.statements.polls = 5
    statements = client.statement_execution
    reply = statements.execute_statement(CREATE, WAREHOUSE_ID, wait_timeout="5s")
    statements.cancel_execution(str(reply.statement_id))
    polled = statements.get_statement(str(reply.statement_id))
    assert status(polled).state is StatementState.CANCELED
    late = statements.execute_statement(
        CREATE,
        WAREHOUSE_ID,
        wait_timeout="5s",
        on_wait_timeout=ExecuteStatementRequestOnWaitTimeout.CANCEL,
    )
    assert status(late).state is StatementState.CANCELED
    assert list(client.tables.list("c", "s")) == []


def test_a_refused_statement_fails_for_want_of_a_privilege(
    server: UnityServer, client: WorkspaceClient
) -> None:
    server.databricks.statements.refuse("CREATE TABLE*")
    result = run(client, CREATE)
    assert result.sql_state == "42501"
    assert result.error is not None
    assert "INSUFFICIENT_PERMISSIONS" in (result.error.message or "")
    server.databricks.statements.allow_all()
    succeed(client, CREATE)


@pytest.mark.parametrize("wait", ["4s", "51s", "5", "soon"])
def test_a_wait_outside_the_limits_is_refused(client: WorkspaceClient, wait: str) -> None:
    with pytest.raises(BadRequest, match="wait_timeout"):
        run(client, CREATE, wait)


def test_an_unknown_warehouse_and_an_unknown_statement_are_refused(
    client: WorkspaceClient,
) -> None:
    with pytest.raises(BadRequest, match="endpoint"):
        client.statement_execution.execute_statement(CREATE, "nowhere")
    with pytest.raises(NotFound):
        client.statement_execution.get_statement("nowhere")


def test_a_field_that_the_api_does_not_have_is_a_violation(
    server: UnityServer, client: WorkspaceClient
) -> None:
    body = {"statement": CREATE, "warehouse_id": WAREHOUSE_ID, "colour": "red", "format": "XML"}
    client.api_client.do("POST", "/api/2.0/sql/statements", body=body)
    assert len(server.take_violations()) == 2
