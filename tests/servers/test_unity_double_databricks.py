"""The double of Databricks does what its documentation says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound, PermissionDenied, ResourceConflict
from databricks.sdk.service.catalog import (
    DataSourceFormat,
    PathOperation,
    TableOperation,
    TableType,
)

from servers.unity import DATABRICKS, OPEN_SOURCE_0_6, Bucket, UnityServer
from servers.unity.raw import Raw, table

TOKEN = "dapi-double"


@pytest.fixture
def server() -> Iterator[UnityServer]:
    with UnityServer(DATABRICKS) as running:
        yield running


@pytest.fixture
def raw(server: UnityServer) -> Raw:
    made = Raw(server.url, TOKEN)
    made.create_schema()
    return made


@pytest.fixture
def client(server: UnityServer, raw: Raw) -> WorkspaceClient:
    assert raw.get("/schemas/c.s")
    return WorkspaceClient(host=server.url, token=TOKEN)


# -- names and objects ---------------------------------------------------------------------------


def test_names_are_kept_in_lower_case_and_found_in_any(client: WorkspaceClient) -> None:
    made = client.schemas.create("Sales", "C")
    assert (made.name, made.full_name) == ("sales", "c.sales")
    assert client.schemas.get("C.SALES").name == "sales"
    with pytest.raises(ResourceConflict) as refused:
        client.schemas.create("SALES", "c")
    assert refused.value.error_code == "SCHEMA_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/catalogs/nowhere", "CATALOG_DOES_NOT_EXIST"),
        ("/schemas/c.nowhere", "SCHEMA_DOES_NOT_EXIST"),
        ("/tables/c.s.nowhere", "TABLE_DOES_NOT_EXIST"),
    ],
)
def test_a_missing_object_says_which(raw: Raw, path: str, code: str) -> None:
    assert raw.error("GET", path) == (404, code)


def test_a_new_catalog_has_schemas_of_which_one_stays(client: WorkspaceClient) -> None:
    names = [schema.name for schema in client.schemas.list("c")]
    assert names == ["default", "information_schema", "s"]
    for name in ("default", "s"):
        client.schemas.delete(f"c.{name}")
    client.catalogs.delete("c")
    with pytest.raises(NotFound):
        client.catalogs.get("c")


def test_only_external_delta_tables_are_made_by_the_tables_api(
    raw: Raw, client: WorkspaceClient
) -> None:
    refused = raw.error("POST", "/tables", table())
    assert refused == (400, "INVALID_PARAMETER_VALUE")
    made = client.tables.create(
        "T", "c", "s", TableType.EXTERNAL, DataSourceFormat.DELTA, "s3://b/t", columns=[]
    )
    assert made.full_name == "c.s.t"
    client.tables.delete("c.s.t")


def test_every_listing_begins_with_an_empty_page_that_has_a_token(
    server: UnityServer, raw: Raw, client: WorkspaceClient
) -> None:
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


# -- credentials for storage ---------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [OPEN_SOURCE_0_6, DATABRICKS], ids=lambda d: d.name)
def test_a_configured_bucket_gives_a_new_session_each_time(dialect: Any) -> None:
    with UnityServer(dialect) as server:
        raw = Raw(server.url, TOKEN)
        made = given_table(server, "s3://bucket/t")
        server.add_bucket("s3://bucket", Bucket("key", "secret", "token", lifetime=60.0))
        body = {"table_id": made, "operation": "READ"}
        replies = [raw.post("/temporary-table-credentials", body) for _ in range(2)]
        keys = [reply["aws_temp_credentials"] for reply in replies]
        assert [key["session_token"] for key in keys] == ["token-1", "token-2"]
        assert keys[0]["access_key_id"] == "key"
        path = {"url": "s3://bucket/new", "operation": "PATH_CREATE_TABLE"}
        assert raw.post("/temporary-path-credentials", path)["expiration_time"]
        assert replies[0]["expiration_time"] > 1_700_000_000_000


def given_table(server: UnityServer, location: str) -> str:
    server.add_catalog("c")
    server.add_schema("c", "s")
    return server.add_table("c", "s", "t", storage_location=location).id


def test_open_source_a_file_gives_nulls_and_an_unknown_bucket_a_failed_precondition() -> None:
    with UnityServer(OPEN_SOURCE_0_6) as server:
        raw = Raw(server.url)
        made = given_table(server, "file:///t")
        body = {"table_id": made, "operation": "READ_WRITE"}
        reply = raw.post("/temporary-table-credentials", body)
        assert {key for key, value in reply.items() if value is not None} == {"url"}
        path = {"url": "s3://unknown/x", "operation": "PATH_READ"}
        refused = raw.error("POST", "/temporary-path-credentials", path)
        assert refused == (400, "FAILED_PRECONDITION")


def test_the_open_source_server_lacks_the_path_that_the_sdk_posts_to() -> None:
    with UnityServer(OPEN_SOURCE_0_6) as server:
        made = given_table(server, "file:///t")
        client = WorkspaceClient(host=server.url, token="not-used")
        with pytest.raises(NotFound):
            client.temporary_table_credentials.generate_temporary_table_credentials(
                operation=TableOperation.READ, table_id=made
            )


def test_open_source_a_static_session_has_no_end() -> None:
    with UnityServer(OPEN_SOURCE_0_6) as server:
        server.add_bucket("s3://bucket", Bucket("key", "secret", "fixed", lifetime=None))
        path = {"url": "s3://bucket/x", "operation": "PATH_READ"}
        reply = Raw(server.url).post("/temporary-path-credentials", path)
        assert reply["aws_temp_credentials"]["session_token"] == "fixed"
        assert reply["expiration_time"] is None


def test_the_sdk_gets_credentials_for_tables_and_paths(
    server: UnityServer, client: WorkspaceClient
) -> None:
    server.add_bucket("s3://bucket", Bucket("key", "secret"))
    made = server.add_table("c", "s", "t", storage_location="s3://bucket/t").id
    of_table = client.temporary_table_credentials.generate_temporary_table_credentials(
        operation=TableOperation.READ, table_id=made
    )
    of_path = client.temporary_path_credentials.generate_temporary_path_credentials(
        "s3://bucket/x", PathOperation.PATH_CREATE_TABLE
    )
    for reply in (of_table, of_path):
        assert reply.aws_temp_credentials is not None
        assert reply.aws_temp_credentials.access_key_id == "key"
    server.credentials.external_access = False
    with pytest.raises(PermissionDenied):
        client.temporary_table_credentials.generate_temporary_table_credentials(
            operation=TableOperation.READ, table_id=made
        )


# -- who may call --------------------------------------------------------------------------------


def machine(server: UnityServer, secret: str = "double-secret") -> WorkspaceClient:
    return WorkspaceClient(host=server.url, client_id="double-client", client_secret=secret)


def test_a_client_logs_in_once_for_many_calls(server: UnityServer) -> None:
    client = machine(server)
    for _ in range(3):
        assert list(client.catalogs.list()) == []
    assert server.databricks.authority.issued == 1
    assert server.counts["POST /oidc/v1/token"] == 1


def test_a_token_that_ended_is_replaced(server: UnityServer) -> None:
    server.databricks.authority.lifetime = 1.0
    client = machine(server)
    for _ in range(3):
        # To the SDK a token is at its end some seconds early, so each call takes a new one.
        assert list(client.catalogs.list()) == []
    assert server.databricks.authority.issued >= 3


def test_a_wrong_secret_gets_no_token(server: UnityServer) -> None:
    with pytest.raises(ValueError, match="invalid_client"):
        list(machine(server, "wrong").catalogs.list())
    reply = requests.post(f"{server.url}/oidc/v1/token", {"grant_type": "password"}, timeout=5)
    assert (reply.status_code, reply.json()["error"]) == (400, "unsupported_grant_type")


def test_no_token_and_a_wrong_one_have_different_errors(server: UnityServer) -> None:
    assert Raw(server.url).error("GET", "/catalogs") == (401, "UNAUTHENTICATED")
    assert Raw(server.url, "wrong").error("GET", "/catalogs") == (403, "403")
