"""Sessions of AssumeRole end, and keys are checked, when a test says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from servers.glue_server import ACCESS_KEY, ACCOUNT, REGION, ROLE, GlueServer

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    with GlueServer() as running:
        yield running


def error_of(call: Callable[[], object]) -> str:
    """Return the code of the error that a call gives, or ``""``."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def client_of(server: GlueServer, service: str, session: dict[str, Any]) -> Any:
    return boto3.client(
        service,
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=session["AccessKeyId"],
        aws_secret_access_key=session["SecretAccessKey"],
        aws_session_token=session["SessionToken"],
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def assume(server: GlueServer, **more: Any) -> dict[str, Any]:
    answer = server.sts.assume_role(RoleArn=ROLE, RoleSessionName="test", **more)
    credentials: dict[str, Any] = answer["Credentials"]
    return credentials


def test_a_session_lasts_as_long_as_a_test_says(server: GlueServer) -> None:
    with server.short_sessions(1.0):
        session = assume(server, DurationSeconds=3600)
        assert session["Expiration"].timestamp() < time.time() + 10
        glue = client_of(server, "glue", session)
        assert glue.get_databases()["DatabaseList"] == []
        deadline = time.monotonic() + 10
        while (refusal := error_of(glue.get_databases)) == "" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert refusal == "ExpiredTokenException"


@pytest.mark.parametrize(
    ("service", "operation", "expected"),
    [
        ("glue", "get_databases", "ExpiredTokenException"),
        ("s3", "list_buckets", "ExpiredToken"),
        ("sts", "get_caller_identity", "ExpiredToken"),
    ],
)
def test_ended_sessions_are_refused_in_each_services_words(
    server: GlueServer, service: str, operation: str, expected: str
) -> None:
    client = client_of(server, service, assume(server))
    with server.known_keys_only():
        getattr(client, operation)()
        server.end_sessions()
        assert error_of(getattr(client, operation)) == expected
        client_of(server, "glue", assume(server)).get_databases()


def test_unknown_keys_are_refused_only_while_keys_are_looked_at(server: GlueServer) -> None:
    stranger = client_of(
        server, "glue", {"AccessKeyId": "x", "SecretAccessKey": "x", "SessionToken": "x"}
    )
    with server.known_keys_only():
        assert error_of(stranger.get_databases) == "UnrecognizedClientException"
        server.glue.get_databases()
    assert stranger.get_databases()["DatabaseList"] == []


def test_lake_formation_gives_credentials_for_an_existing_table(server: GlueServer) -> None:
    server.glue.create_database(DatabaseInput={"Name": "db"})
    server.glue.create_table(DatabaseName="db", TableInput={"Name": "t"})
    lake_formation = boto3.client(
        "lakeformation",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key="any",
    )

    def vend(name: str) -> dict[str, Any]:
        arn = f"arn:aws:glue:{REGION}:{ACCOUNT}:table/db/{name}"
        answer: dict[str, Any] = lake_formation.get_temporary_glue_table_credentials(
            TableArn=arn, Permissions=["SELECT"], DurationSeconds=900
        )
        return answer

    with server.known_keys_only():
        vended = vend("t")
        assert 890 < vended["Expiration"].timestamp() - time.time() <= 900
        client_of(server, "s3", vended).list_buckets()
        assert error_of(lambda: vend("missing")) == "EntityNotFoundException"
        server.end_sessions()
        assert error_of(client_of(server, "s3", vended).list_buckets) == "ExpiredToken"
