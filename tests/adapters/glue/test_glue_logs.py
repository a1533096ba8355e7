"""What botocore logs at DEBUG holds no credentials of ours."""

from __future__ import annotations

import logging

import pytest
from servers.glue_server import ROLE, GlueServer
from servers.http_proxy import Answer, HttpProxy

from lance_bridge.catalog import TableRecord
from lance_bridge_glue.session import redact_logs

from .building import catalog_at

pytestmark = pytest.mark.server

TOKEN = "t0ken/of+the=properties"


def test_no_secret_of_ours_is_logged_at_debug_level(
    server: GlueServer, proxy: HttpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lake = {"SecretAccessKey": "key-of-the-lake", "SessionToken": "token-of-the-lake"}
    answer = Answer.of_json(200, {"AccessKeyId": "ASIALAKE", **lake, "Expiration": 4e9})
    proxy.fail_next("POST /GetTemporaryGlueTableCredentials", answer)
    catalog = catalog_at(
        proxy.endpoint,
        server,
        session_token=TOKEN,
        catalog_id="123456789012",
        assume_role_arn=ROLE,
        assume_role_endpoint=proxy.endpoint,
        **{"lakeformation.vend-credentials": "true", "lakeformation.endpoint": proxy.endpoint},
    )
    list(catalog.list_namespaces(()))
    record = TableRecord(("db", "t"), "s3://bucket/t", identity="now")
    options = catalog.vend_credentials(record, write=False)
    assert options is not None
    assert options["aws_session_token"] == "token-of-the-lake"
    assert catalog._session is not None
    of_role, _ = catalog._session.storage_credentials()
    assert "x-amz-security-token:***" in caplog.text.lower()
    for secret in (TOKEN, of_role.token, of_role.secret_key, *lake.values()):
        assert secret not in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "x-amz-security-token:hidden\nx-amz-date:1",
        "{'X-Amz-Security-Token': b'hidden', 'Authorization'",
        "<SecretAccessKey>hidden</SecretAccessKey><SessionToken>hidden</SessionToken>",
        '{"SecretAccessKey": "hidden", "SessionToken":"hidden"}',
        '{"accessToken":"hidden", "clientSecret": "hidden"}',
        '"Token" : "hidden",',
        "GET /?X-Amz-Security-Token=hidden&X-Amz-Signature=1",
        "Action=AssumeRoleWithWebIdentity&WebIdentityToken=hidden&Version=1",
    ],
)
def test_credentials_are_known_by_the_names_before_them(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    redact_logs()
    caplog.set_level(logging.DEBUG)
    logging.getLogger("botocore.parsers").debug("Response body:\n%s", text)
    assert "hidden" not in caplog.text
    assert "***" in caplog.text


def test_other_messages_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    redact_logs()
    caplog.set_level(logging.DEBUG)
    text = "SignedHeaders=host;x-amz-security-token, NextToken=page %d"
    logging.getLogger("botocore.auth").debug(text, 2)
    assert caplog.records[-1].getMessage() == text % 2
    assert caplog.records[-1].args == (2,)
