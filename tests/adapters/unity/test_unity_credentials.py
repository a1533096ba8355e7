"""Credentials that the catalog vends: asked for as configured, refused in plain words."""

from __future__ import annotations

import logging

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    PermissionDeniedError,
    UnsupportedOperationError,
)
from servers.http_proxy import Answer, Fault, HttpProxy
from servers.unity import Bucket, UnityServer

from lance_bridge.catalog import TableRecord

from .building import ID, Connect

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#errors-of-every-operation", "unity.md#vended-credentials"),
]

PATHS = "POST /api/2.1/unity-catalog/temporary-path-credentials"
KEYS = Bucket("AKIA-hush", "secret-hush", "session-hush")


def record(location: str = "s3://bucket/t") -> TableRecord:
    return TableRecord(("c", "s", "t"), location, {"table_type": "lance", ID: "1"})


def test_a_local_location_has_no_credentials(connect: Connect) -> None:
    assert connect().vend_credentials(record("file:///data/t"), write=False) is None


def test_no_credentials_are_vended_to_a_caller_with_credentials(
    proxy: HttpProxy, connect: Connect
) -> None:
    own = connect(**{"storage.aws_access_key_id": "a", "storage.aws_secret_access_key": "b"})
    assert own.vend_credentials(record(), write=False) is None
    assert connect(**{"credentials.vend": "false"}).vend_credentials(record(), write=False) is None
    assert not proxy.requests


def test_an_unknown_bucket_is_logged_or_an_error(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert connect().vend_credentials(record(), write=False) is None
    assert "S3 bucket configuration not found" in caplog.text
    with pytest.raises(InvalidInputError, match="S3 bucket configuration not found"):
        connect(**{"credentials.vend": "true"}).vend_credentials(record(), write=False)


def test_a_server_without_the_call_is_logged_or_an_error(
    proxy: HttpProxy, connect: Connect
) -> None:
    proxy.fail_next(PATHS, Answer(404, b"404 Not Found"), times=2)
    assert connect().vend_credentials(record(), write=False) is None
    with pytest.raises(UnsupportedOperationError):
        connect(**{"credentials.vend": "true"}).vend_credentials(record(), write=False)


@pytest.mark.spec("unity.md#describetable")
@pytest.mark.parametrize("vend", ["auto", "true"])
@pytest.mark.parametrize(
    ("identity", "right"), [("id-1", "EXTERNAL USE SCHEMA"), (None, "EXTERNAL USE LOCATION")]
)
def test_a_refusal_names_the_privilege_that_is_missing(
    server: UnityServer, connect: Connect, vend: str, identity: str | None, right: str
) -> None:
    server.refuse("POST /temporary-*")
    catalog = connect(**{"credentials.vend": vend})
    wanted = TableRecord(("c", "s", "t"), "s3://bucket/t", {}, identity=identity)
    with pytest.raises(PermissionDeniedError, match=right):
        catalog.vend_credentials(wanted, write=False)


def test_asking_for_credentials_is_repeated_where_the_answer_is_lost(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    server.add_bucket("s3://bucket", KEYS)
    proxy.fail_next(PATHS, Fault.LOSE_REPLY, times=2)
    assert connect().vend_credentials(record(), write=False)
    assert proxy.counts[PATHS] == 3


def test_vended_secrets_are_in_no_log(
    server: UnityServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_bucket("s3://bucket", KEYS)
    with caplog.at_level(logging.DEBUG):
        assert connect().vend_credentials(record(), write=False)
    assert "hush" not in caplog.text
