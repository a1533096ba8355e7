"""Bad and missing configuration: clear errors when connecting, without a call."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Delay, HttpProxy

from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueConfig, GlueNamespace, session

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("glue.md#namespace-implementation-configuration-properties"),
]

REGION = {"region": "us-east-1"}
KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": "hush-hush"}
ROLE = {"assume_role_arn": "arn:aws:iam::123456789012:role/lance"}


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({}, "'region' is required"),
        ({"region": "us east"}, "'region'"),
        ({**REGION, "regoin": "x"}, "did you mean 'region'"),
        ({**REGION, "endpoint": "glue.local"}, "'endpoint': must begin with http"),
        ({**REGION, "endpoint": "http://"}, "'endpoint': must begin with http"),
        ({**REGION, "endpoint": "http://host:99999"}, "'endpoint': must begin with http"),
        ({**REGION, "endpoint": "http://me:secret@host"}, "'endpoint': must not contain a user"),
        ({**REGION, "endpoint": " http://host"}, "'endpoint': must not contain.* spaces"),
        ({**REGION, "endpoint": "http://h\u00f6st"}, "'endpoint': must not contain.*non-ASCII"),
        ({**REGION, **KEYS, "access_key_id": "\u043a\u043b"}, "'access_key_id': must be visible"),
        ({**REGION, **KEYS, "secret_access_key": "hush hush"}, "'secret_access_key'"),
        ({**REGION, "catalog_id": "1 2"}, "'catalog_id': must be visible"),
        ({**REGION, "drop.check-functions": "perhaps"}, "'drop.check-functions'"),
        ({**REGION, "access_key_id": "a"}, "access_key_id and secret_access_key need each other"),
        ({**REGION, "secret_access_key": "a"}, "access_key_id and secret_access_key need each"),
        ({**REGION, "session_token": "a"}, "session_token needs"),
        ({**REGION, **KEYS, "profile_name": "x"}, "exclude each other"),
        ({**REGION, "profile_name": "nobody"}, "'profile_name'.*nobody"),
        ({**REGION, "assume_role_external_id": "xx"}, "assume_role_external_id needs"),
        ({**REGION, "assume_role_timeout_sec": "900"}, "assume_role_timeout_sec needs"),
        ({**REGION, "assume_role_arn": "lance"}, "'assume_role_arn': write a role's ARN"),
        ({**REGION, **ROLE, "assume_role_timeout_sec": "60"}, "'assume_role_timeout_sec'"),
        ({**REGION, **ROLE, "assume_role_session_name": "a b"}, "'assume_role_session_name'"),
        ({**REGION, "retry_mode": "hard"}, "'retry_mode'"),
        ({**REGION, "max_retries": "many"}, "'max_retries'"),
        ({**REGION, "client.read-timeout": "0"}, "'client.read-timeout'"),
        ({**REGION, "lakeformation.vend-credentials": "true"}, "needs catalog_id"),
        ({**REGION, "client": "glue"}, "'client' must be a Glue client"),
    ],
)
def test_a_bad_configuration_is_refused_at_once_with_the_name_of_the_property(
    properties: dict[str, str], says: str
) -> None:
    begun = time.monotonic()
    with pytest.raises(InvalidInputError, match=says) as refused:
        GlueNamespace(**properties)
    assert "hush" not in str(refused.value)
    assert time.monotonic() - begun < 30


def test_the_region_of_a_profile_or_of_the_environment_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile sales]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert "eu-west-1" in GlueNamespace(profile_name="sales").namespace_id()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert "eu-north-1" in GlueNamespace().namespace_id()


def test_a_configuration_file_that_cannot_be_read_is_invalid_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile sales\nregion eu")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(InvalidInputError, match="cannot be read"):
        GlueNamespace()


@pytest.mark.parametrize("package", ["boto3", "botocore"])
def test_a_missing_package_is_unsupported_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedOperationError, match=rf"'{package}': pip install 'lance-bridge"):
        GlueNamespace(**REGION, **KEYS)


def test_secrets_are_declared_and_in_no_text() -> None:
    secrets = {each.key for each in GlueConfig.declared() if each.secret}
    assert secrets == {"secret_access_key", "session_token"}
    shown = GlueNamespace(**REGION, **KEYS, session_token="hush-too")
    assert "hush" not in f"{shown!r} {shown.namespace_id()} {shown.connection.config!r}"


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_credentials_are_looked_for_with_the_first_call_and_missed_soon_where_all_is_silent(
    monkeypatch: pytest.MonkeyPatch, server: GlueServer
) -> None:
    with HttpProxy(server.endpoint) as instance:
        instance.fail_next("*", Delay(), times=float("inf"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.endpoint)
        calls = Calls(GlueNamespace(**REGION, endpoint=server.endpoint))
        assert instance.connections == 0
        begun = time.monotonic()
        with pytest.raises(UnauthenticatedError, match="There are no credentials"):
            calls.all_namespaces([])
        assert time.monotonic() - begun < 30
        assert instance.connections > 0


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_half_a_key_pair_in_the_environment_is_unauthenticated_until_the_rest_comes(
    monkeypatch: pytest.MonkeyPatch, server: GlueServer
) -> None:
    calls = Calls(GlueNamespace(**REGION, endpoint=server.endpoint))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    with pytest.raises(UnauthenticatedError, match=r"(?i)aws_secret_access_key"):
        calls.all_namespaces([])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert calls.all_namespaces([]) is not None


def test_sessions_leave_nothing_behind_in_what_they_share() -> None:
    before = list(session._models(None).search_paths)
    for _ in range(3):
        session.Session(GlueConfig(region="us-east-1"))
    assert session._models(None).search_paths == before


def test_models_of_the_callers_own_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DATA_PATH", os.pathsep.join(["/mine", "/ours"]))
    made = session._create_session(GlueConfig(region="us-east-1"))
    assert made.get_component("data_loader").search_paths[:2] == ["/mine", "/ours"]
