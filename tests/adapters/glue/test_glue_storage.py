"""Credentials for the files of tables: the catalog's own, or Lake Formation's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import PermissionDeniedError, UnauthenticatedError
from servers.glue_server import ACCESS_KEY, REGION, ROLE, SECRET_KEY, GlueServer
from servers.http_proxy import Answer, Fault, HttpProxy

from lance_bridge.catalog import TableRecord
from lance_bridge.config import load
from lance_bridge_glue.catalog import GlueCatalog
from lance_bridge_glue.config import GlueConfig

from .conftest import BUCKET, Connect, catalog_at

pytestmark = [pytest.mark.servers, pytest.mark.spec("glue.md#credentials-for-storage")]

RECORD = TableRecord(("db", "t"), "s3://bucket/t", identity="now")
ACCOUNT = "123456789012"
LAKE = "POST /GetTemporaryGlueTableCredentials"
FOREVER = float("inf")


@pytest.fixture
def lake(server: GlueServer) -> Iterator[HttpProxy]:
    """Where Lake Formation would be: it answers what a test says, and the server knows nothing."""
    with HttpProxy(server.endpoint) as running:
        yield running


def lake_catalog(lake: HttpProxy, server: GlueServer, **properties: str) -> GlueCatalog:
    return catalog_at(
        server.endpoint,
        server,
        catalog_id=ACCOUNT,
        **{"lakeformation.vend-credentials": "true", "lakeformation.endpoint": lake.endpoint},
        **properties,
    )


def lake_answer(expires: float) -> Answer:
    return Answer.of_json(
        200,
        {
            "AccessKeyId": "ASIALAKE",
            "SecretAccessKey": "of-the-lake",
            "SessionToken": "token-of-the-lake",
            "Expiration": expires,
        },
    )


def vended(catalog: GlueCatalog, record: TableRecord = RECORD, write: bool = False) -> Any:
    return catalog.vend_credentials(record, write=write)


# -- the place of the buckets ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "environment", "expected"),
    [
        ("cn-north-1", {}, "https://s3.cn-north-1.amazonaws.com.cn"),
        ("cn-northwest-1", {}, "https://s3.cn-northwest-1.amazonaws.com.cn"),
        ("us-iso-east-1", {}, "https://s3.us-iso-east-1.c2s.ic.gov"),
        ("eusc-de-east-1", {}, "https://s3.eusc-de-east-1.amazonaws.eu"),
        (REGION, {"AWS_USE_FIPS_ENDPOINT": "true"}, f"https://s3-fips.{REGION}.amazonaws.com"),
        (
            REGION,
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            f"https://s3.dualstack.{REGION}.amazonaws.com",
        ),
        (REGION, {"AWS_ENDPOINT_URL": "http://store:9000/"}, "http://store:9000"),
        (REGION, {"AWS_ENDPOINT_URL_S3": "https://store"}, "https://store"),
        (REGION, {"AWS_ENDPOINT_URL_GLUE": "https://catalog"}, None),
        (REGION, {}, None),
        ("eu-central-1", {}, None),
        ("us-gov-west-1", {}, None),
    ],
)
@pytest.mark.parametrize("with_keys", [True, False])
def test_the_endpoint_is_given_where_lance_would_look_elsewhere(
    server: GlueServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    region: str,
    environment: dict[str, str],
    expected: str | None,
    with_keys: bool,
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY} if with_keys else {}
    options = {"endpoint": server.endpoint, "region": region, **keys}
    found = vended(GlueCatalog(load(GlueConfig, "glue", options))) or {}
    assert found.get("aws_endpoint") == expected
    assert ("allow_http" in found) == (expected == "http://store:9000")
    if expected:
        assert found["aws_region"] == region


def test_a_profile_s_endpoint_serves_storage_too(
    server: GlueServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(
        f"[profile lake]\nregion = {REGION}\nendpoint_url = http://store:9000\n"
        f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {"endpoint": server.endpoint, "profile_name": "lake"}
    found = vended(GlueCatalog(load(GlueConfig, "glue", options)))
    assert found["aws_endpoint"] == "http://store:9000"
    assert found["aws_access_key_id"] == ACCESS_KEY


def test_an_endpoint_in_the_properties_takes_precedence(server: GlueServer) -> None:
    options = {
        **{"endpoint": server.endpoint, "region": "cn-north-1"},
        **{"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY},
        "storage.aws_endpoint": "https://store",
    }
    assert "aws_endpoint" not in vended(GlueCatalog(load(GlueConfig, "glue", options)))


# -- the catalog's own ---------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "a-token"])
def test_the_keys_of_the_properties_serve_storage_too(server: GlueServer, token: str) -> None:
    assert vended(catalog_at(server.endpoint, server, session_token=token)) == {
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
        "aws_region": REGION,
        **({"aws_session_token": token} if token else {}),
    }


def test_a_role_serves_storage_too_and_says_until_when(
    server: GlueServer, proxy: HttpProxy
) -> None:
    role = {"assume_role_arn": ROLE, "assume_role_endpoint": proxy.endpoint}
    catalog = catalog_at(proxy.endpoint, server, assume_role_timeout_sec="7200", **role)
    list(catalog.list_namespaces(()))
    options = vended(catalog)
    authorization = proxy.requests[-1].headers["authorization"]
    assert f"Credential={options['aws_access_key_id']}/" in authorization
    assert options["aws_session_token"] == proxy.requests[-1].headers["x-amz-security-token"]
    left = int(options["expires_at_millis"]) / 1000 - time.time()
    assert 7100 < left <= 7200
    assert proxy.counts["AssumeRole"] == 1


def test_nothing_is_vended_without_credentials_in_the_properties(
    server: GlueServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    catalog = catalog_at(server.endpoint, server, access_key_id="", secret_access_key="")
    assert vended(catalog) is None


@pytest.mark.parametrize(
    ("locations", "is_s3"),
    [
        (["s3://b/t", "s3a://b/t", "S3N://b/t"], True),
        (["/tmp/t", "file:///tmp/t", "gs://bucket/t", "az://c/t", None], False),
    ],
)
def test_credentials_are_vended_for_every_scheme_of_s3_and_no_other(
    server: GlueServer, locations: list[str | None], is_s3: bool
) -> None:
    catalog = catalog_at(server.endpoint, server)
    for location in locations:
        found = vended(catalog, TableRecord(("db", "t"), location))
        assert (found is not None) is is_s3, location


@pytest.mark.parametrize(
    "option",
    [
        "aws_access_key_id",
        "AWS_SESSION_TOKEN",
        "skip_signature",
        "aws_role_arn",
        "aws_web_identity_token_file",
    ],
)
def test_credentials_given_for_storage_come_first(server: GlueServer, option: str) -> None:
    catalog = catalog_at(server.endpoint, server, **{f"storage.{option}": "mine"})
    assert vended(catalog) is None


@pytest.mark.parametrize(
    "option", ["azure_storage_account_key", "google_service_account", "azure_storage_region"]
)
def test_options_of_other_stores_change_nothing_for_s3(server: GlueServer, option: str) -> None:
    found = vended(catalog_at(server.endpoint, server, **{f"storage.{option}": "other"}))
    assert found is not None
    assert {"aws_access_key_id", "aws_region"} <= found.keys()


@pytest.mark.parametrize("option", ["aws_region", "region", "aws_default_region"])
def test_a_region_given_for_storage_comes_first(server: GlueServer, option: str) -> None:
    catalog = catalog_at(server.endpoint, server, **{f"storage.{option}": "eu-west-1"})
    assert "aws_region" not in vended(catalog)


def test_pylance_writes_and_reads_with_the_credentials_of_the_role(
    connect: Connect, server: GlueServer, database: str
) -> None:
    """The server accepts the role only, on S3 as on Glue."""
    calls = connect(
        assume_role_arn=ROLE,
        assume_role_endpoint=server.endpoint,
        **{"storage.aws_access_key_id": "", "storage.aws_secret_access_key": ""},
    )
    with server.known_keys_only():
        lance.write_dataset(
            pa.table({"x": [1, 2, 3]}), namespace_client=calls.client, table_id=[database, "t"]
        )
        described = calls.describe_table([database, "t"])
        assert described.storage_options is not None
        assert int(described.storage_options["expires_at_millis"]) / 1000 > time.time()
        read = lance.dataset(namespace_client=calls.client, table_id=[database, "t"])
        assert read.to_table()["x"].to_pylist() == [1, 2, 3]
        assert described.location == f"s3://{BUCKET}/lake/{database}.db/t.lance"


# -- Lake Formation's ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "permissions"), [(False, ["SELECT"]), (True, ["SELECT", "INSERT", "DELETE"])]
)
def test_lake_formation_is_asked_for_the_table_and_the_purpose(
    lake: HttpProxy, server: GlueServer, write: bool, permissions: list[str]
) -> None:
    expires = int(time.time()) + 1800
    lake.fail_next(LAKE, lake_answer(expires))
    catalog = lake_catalog(lake, server, **{"lakeformation.credentials-duration": "1800"})
    assert vended(catalog, write=write) == {
        "aws_access_key_id": "ASIALAKE",
        "aws_secret_access_key": "of-the-lake",
        "aws_session_token": "token-of-the-lake",
        "aws_region": REGION,
        "expires_at_millis": str(expires * 1000),
    }
    assert json.loads(lake.requests[0].body) == {
        "TableArn": f"arn:aws:glue:{REGION}:{ACCOUNT}:table/db/t",
        "Permissions": permissions,
        "DurationSeconds": 1800,
        "SupportedPermissionTypes": ["COLUMN_PERMISSION"],
    }


def test_for_a_table_that_is_still_to_be_made_the_catalogs_own_are_given(
    lake: HttpProxy, server: GlueServer
) -> None:
    lake.fail_next(LAKE, Answer.of_aws("EntityNotFoundException"))
    new = replace(RECORD, identity=None)
    assert vended(lake_catalog(lake, server), new, write=True)["aws_access_key_id"] == ACCESS_KEY


def test_for_an_entry_that_lake_formation_does_not_know_none_are_given(
    lake: HttpProxy, server: GlueServer
) -> None:
    lake.fail_next(LAKE, Answer.of_aws("EntityNotFoundException"))
    with pytest.raises(PermissionDeniedError, match=r"files of table 'db\.t'"):
        vended(lake_catalog(lake, server), write=True)


@pytest.mark.spec("glue.md#declaretable", "glue.md#errors-of-every-operation")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("AccessDeniedException", PermissionDeniedError),
        ("ExpiredTokenException", UnauthenticatedError),
    ],
)
def test_a_refusal_of_lake_formation_is_not_circumvented(
    lake: HttpProxy, server: GlueServer, code: str, expected: type[Exception]
) -> None:
    said = "Insufficient Lake Formation permission(s): Required Select on t"
    lake.fail_next(LAKE, Answer.of_aws(code, said), times=FOREVER)
    with pytest.raises(expected, match=r"files of table 'db\.t'"):
        vended(lake_catalog(lake, server))


@pytest.mark.parametrize("how", [Answer(200, b"{}"), Answer(200, b"<html>"), Fault.RESET])
def test_an_answer_without_credentials_is_an_error(
    lake: HttpProxy, server: GlueServer, how: Answer | Fault
) -> None:
    lake.fail_next(LAKE, how, times=FOREVER)
    with pytest.raises(Exception, match=r"files of table 'db\.t'") as caught:
        vended(lake_catalog(lake, server))
    assert caught.type.__module__ == "lance_namespace.errors"
