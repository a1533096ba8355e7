"""Properties of ``impl=unity``: what is refused when connecting, and what the rest comes to."""

from __future__ import annotations

import sys

import pytest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

from lance_bridge.config import load
from lance_bridge_unity import UnityConfig, UnityNamespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#namespace-implementation-configuration-properties"),
]

HOST = "http://unity.invalid:8080"


def config(**properties: str) -> UnityConfig:
    return load(UnityConfig, "unity", {"host": HOST, **properties})


def refusal(**properties: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        UnityNamespace(**properties)
    return str(caught.value)


def test_a_host_is_required_under_either_name_and_has_a_scheme() -> None:
    assert "'host' is required" in refusal()
    assert "scheme" in refusal(endpoint="localhost:8080")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"host": "localhost:8080"}, "scheme"),
        ({"host": "unity.example.com"}, "scheme"),
        ({"host": "//unity"}, "scheme"),
        ({"host": "ftp://a"}, "host"),
        ({"host": "http://"}, "host"),
        ({"host": "http://a b"}, "host"),
        ({"host": "http://user:s3cret@a"}, "host"),
        ({"host": "http://a?x=1"}, "host"),
        ({"host": "http://a#b"}, "host"),
        ({"host": "http://a:65536"}, "host"),
        ({"host": "http://a:0"}, "host"),
        ({"host": "http://[::1"}, "host"),
        ({"endpoint": "http://other"}, "differ"),
        ({"token": "a", "auth_token": "b"}, "differ"),
        ({"client_id": "a"}, "need each other"),
        ({"client_secret": "a"}, "need each other"),
        ({"token": "a", "client_id": "b", "client_secret": "c"}, "leave one of them out"),
        ({"token": "a", "profile": "b"}, "leave one of them out"),
        ({"server": "open-source", "warehouse_id": "w"}, "Databricks"),
        ({"server": "other"}, "server"),
        ({"token": "two words"}, "ASCII"),
        ({"token": "line\nend"}, "ASCII"),
        ({"catalog": "a.b"}, "catalog"),
        ({"catalog": ""}, "catalog"),
        ({"catalog": "a" * 256}, "catalog"),
        ({"warehouse_id": "../x"}, "warehouse_id"),
        ({"api_path": "api?x"}, "api_path"),
        ({"read_timeout": "0"}, "read_timeout"),
        ({"connect_timeout": "inf"}, "connect_timeout"),
        ({"max_retries": "-1"}, "max_retries"),
        ({"credentials.vend": "maybe"}, "credentials.vend"),
        ({"hosts": "x"}, "did you mean 'host'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(properties: dict[str, str], said: str) -> None:
    message = refusal(**{"host": HOST, **properties})
    assert said in message
    assert "s3cret" not in message


def test_secrets_are_in_no_message_and_no_repr() -> None:
    assert "hush" not in refusal(host=HOST, token="hush hush")
    assert "hush" not in repr(config(token="hush-hush"))


@pytest.mark.parametrize(
    "host",
    [
        "http://unity:8080/",
        "http://unity:8080/api/2.1/unity-catalog",
        "http://unity:8080/api/2.1/unity-catalog/",
    ],
)
def test_an_address_may_carry_the_apis_path(host: str) -> None:
    assert config(host=host).address == "http://unity:8080"


def test_the_keys_of_other_implementations_work() -> None:
    found = load(
        UnityConfig,
        "unity",
        {
            "endpoint": "http://unity:8080",
            "catalog": "main",
            "auth_token": "dapi",
            "connect_timeout": "3",
            "read_timeout": "5",
            "max_retries": "1",
            "root": "/data",
            "storage.region": "eu-west-1",
        },
    )
    assert found.address == "http://unity:8080"
    assert found.bearer is not None
    assert found.bearer.get_secret_value() == "dapi"
    assert (found.connect_timeout, found.read_timeout, found.max_retries) == (3.0, 5.0, 1)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, False),
        ({"host": "https://dbc-1.cloud.databricks.com"}, True),
        ({"host": "https://adb-1.2.azuredatabricks.net"}, True),
        ({"host": "https://1.2.gcp.databricks.com"}, True),
        ({"host": "https://x.databricks.azure.cn"}, True),
        ({"host": "https://cloud.databricks.com.evil.example"}, False),
        ({"host": "https://notdatabricks.com"}, False),
        ({"warehouse_id": "w"}, True),
        ({"server": "databricks"}, True),
        ({"host": "https://dbc-1.cloud.databricks.com", "server": "open-source"}, False),
    ],
)
def test_databricks_is_recognised(properties: dict[str, str], expected: bool) -> None:
    assert config(**properties).is_databricks is expected


def test_a_host_of_the_environment_counts_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", "dbc-1.cloud.databricks.com")
    found = load(UnityConfig, "unity", {})
    assert found.address == "https://dbc-1.cloud.databricks.com"
    assert found.is_databricks
    assert config().address == HOST


@pytest.mark.parametrize("host", ["https://user:s3cret@a.cloud.databricks.com", "a?o=s3cret"])
def test_a_host_of_the_environment_is_checked_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", host)
    with pytest.raises(InvalidInputError, match=r"\$DATABRICKS_HOST must be https") as caught:
        load(UnityConfig, "unity", {})
    assert "s3cret" not in str(caught.value)
    assert config().address == HOST


def test_a_profile_stands_for_a_host() -> None:
    found = load(UnityConfig, "unity", {"profile": "work"})
    assert found.address is None
    assert found.is_databricks


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("aws_region", True),
        ("aws_endpoint", True),
        ("allow_http", True),
        ("aws_sse_kms_key_id", True),
        ("timeout", True),
        ("aws_access_key_id", False),
        ("aws_secret_access_key", False),
        ("aws_session_token", False),
        ("aws_skip_signature", False),
        ("azure_storage_account_key", False),
        ("azure_storage_sas_token", False),
        ("google_service_account", False),
        ("azure_use_azure_cli", False),
        ("azure_use_emulator", False),
        ("azure_object_id", False),
        ("azure_storage_tenant_id", False),
        ("AWS_ROLE_ARN", False),
        ("aws_web_identity_token_file", False),
        ("oss_access_key_secret", False),
        ("google_application_credentials", False),
        ("token", False),
    ],
)
def test_auto_vends_unless_an_option_has_credentials(option: str, expected: bool) -> None:
    storage = {f"storage.{option}": "http://x"}
    assert config(**storage).vends is expected
    assert config(**storage, **{"credentials.vend": "true"}).vends
    assert not config(**storage, **{"credentials.vend": "false"}).vends


def test_capabilities_follow_the_server() -> None:
    open_source, databricks = config().capabilities, config(server="databricks").capabilities
    with_sql = config(warehouse_id="w").capabilities
    assert (open_source.folds_case, databricks.folds_case) == (False, True)
    assert "no call that changes a table" in open_source.no_alter
    assert open_source.no_rename == ""
    assert "warehouse_id" in databricks.no_alter
    assert "warehouse_id" in databricks.no_rename
    assert (with_sql.no_alter, with_sql.no_rename) == ("", "")
    assert open_source.no_rename_across
    assert with_sql.no_rename_across
    assert open_source.atomic_restrict
    assert databricks.atomic_restrict


@pytest.mark.parametrize("name", ["a-b", "@x", "-", "A", "1", "a" * 255])
def test_the_open_source_server_takes_these_names(name: str) -> None:
    rule = config().capabilities.table_rule
    assert rule.pattern.fullmatch(name)
    assert len(name) <= rule.max_length


def test_connecting_sends_no_request() -> None:
    namespace = UnityNamespace(host=HOST, catalog="main")
    assert namespace.namespace_id() == f"unity({HOST}, catalog=main)"


@pytest.mark.spec("clients.md#several-principals-in-one-process")
def test_the_identity_says_as_whom_the_catalog_vends_and_shows_no_token() -> None:
    one, other = (UnityNamespace(host=HOST, token=f"dapi-{name}") for name in ("anna", "bob"))
    assert one.namespace_id() == UnityNamespace(host=HOST, auth_token="dapi-anna").namespace_id()
    assert one.namespace_id() != other.namespace_id()
    assert one.describe_connection() == other.describe_connection()
    assert "dapi" not in one.namespace_id()


@pytest.mark.parametrize("package", ["requests", "databricks"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UnsupportedOperationError, match=r"pip install 'lance-bridge\[unity\]'"):
        UnityNamespace(host=HOST)
