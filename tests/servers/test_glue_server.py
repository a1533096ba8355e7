"""The tests' Glue keeps to what AWS documents, where plain moto does not; seen with raw boto3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from servers.glue_server import REGION, GlueServer

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    with GlueServer() as running:
        yield running


@pytest.fixture
def glue(server: GlueServer) -> Iterator[Any]:
    """A client of a server that knows nothing yet."""
    yield server.glue
    for database in server.glue.get_databases()["DatabaseList"]:
        server.glue.delete_database(Name=database["Name"])


@pytest.fixture
def db(glue: Any) -> str:
    glue.create_database(DatabaseInput={"Name": "db"})
    return "db"


def make(glue: Any, database: str, name: str, **more: Any) -> None:
    glue.create_table(DatabaseName=database, TableInput={"Name": name, **more})


def code(call: Any, **arguments: Any) -> str:
    """Return the code of the error that a call must give."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return str(caught.value.response["Error"]["Code"])


def names(answer: Any) -> list[str]:
    key = "TableList" if "TableList" in answer else "DatabaseList"
    return [entry["Name"] for entry in answer[key]]


def test_a_page_of_tables_holds_100_by_default(glue: Any, db: str) -> None:
    for number in range(101):
        make(glue, db, f"t{number:03}")
    pages = list(glue.get_paginator("get_tables").paginate(DatabaseName=db))
    assert [len(page["TableList"]) for page in pages] == [100, 1]


@pytest.mark.parametrize(
    "table",
    [
        {"Name": "t" * 256},
        {"Name": ""},
        {"Name": "a\nb"},
        {"Name": "t", "Parameters": {"k" * 256: "v"}},
        {"Name": "t", "Parameters": {"": "v"}},
        {"Name": "t", "Parameters": {"k": "v" * 512_001}},
        {"Name": "t", "Description": "d" * 2049},
        {"Name": "t", "StorageDescriptor": {"Location": "l" * 2057}},
    ],
    ids=["name", "no name", "lines", "key", "no key", "value", "description", "location"],
)
def test_what_breaks_a_limit_of_the_service_model_is_refused(
    glue: Any, db: str, table: dict[str, Any]
) -> None:
    loose = loose_client(glue)
    broken = code(loose.create_table, DatabaseName=db, TableInput=table)
    assert broken == "ValidationException"
    assert names(glue.get_tables(DatabaseName=db)) == []


def test_what_just_keeps_the_limits_is_taken(glue: Any, db: str) -> None:
    parameters = {"k" * 255: "v" * 512_000, "\U0001f600": "\n"}
    place = {"Location": "l" * 2056}
    make(glue, db, "t" * 255, Parameters=parameters, StorageDescriptor=place)
    found = glue.get_table(DatabaseName=db, Name="t" * 255)["Table"]
    assert found["Parameters"] == parameters


def loose_client(glue: Any) -> Any:
    """Return a client that leaves it to the server to check what is sent."""
    return boto3.client(
        "glue",
        endpoint_url=glue.meta.endpoint_url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(parameter_validation=False),
    )


def test_a_database_that_is_not_empty_can_be_deleted(glue: Any, db: str) -> None:
    make(glue, db, "t")
    glue.delete_database(Name=db)
    assert code(glue.get_database, Name=db) == "EntityNotFoundException"


def test_an_error_has_the_form_that_aws_gives_it(glue: Any, db: str) -> None:
    with pytest.raises(glue.exceptions.EntityNotFoundException) as caught:
        glue.get_table(DatabaseName=db, Name="missing")
    response = caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert response["Message"] == response["Error"]["Message"] == "Table missing not found."
