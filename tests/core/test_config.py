"""Where properties come from, what is refused, and that secrets stay secret."""

from __future__ import annotations

import pickle
import re
import traceback
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.config import environment, load, named_catalogs

from .memory_catalog import MemoryConfig

pytestmark = pytest.mark.quick

SECRET = "s3cr3t-value"


@pytest.fixture
def yaml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file that the environment names; the test writes it."""
    path = tmp_path / "catalogs.yaml"
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    return path


# -- where values come from ------------------------------------------------------------------------


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_URI", "from-environment")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_CLIENT_RETRIES", "7")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_STORAGE_AWS_REGION", "eu-1")
    config = load(MemoryConfig, "memory", {"uri": "from-arguments"})
    assert config.uri == "from-arguments"
    assert config.retries == 7
    assert config.storage == {"aws_region": "eu-1"}
    assert load(MemoryConfig, "memory", {}).uri == "from-environment"


def test_the_environment_of_another_catalog_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_OTHER_URI", "x")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORYX_URI", "x")
    assert environment(MemoryConfig, "memory") == {}


def test_a_name_with_odd_characters_has_a_variable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MY_PROD_1_DROP_CHECK_SHARING", "namespace")
    assert environment(MemoryConfig, "my-prod.1") == {"drop.check-sharing": "namespace"}


@pytest.mark.spec("common.md#configuration")
def test_a_variable_belongs_to_the_catalog_with_the_longest_name(
    yaml_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entry = "{impl: memory, uri: x}"
    yaml_file.write_text(f"catalogs: {{prod: {entry}, prod-storage: {entry}, prod-st: {entry}}}")
    monkeypatch.setenv("LANCE_BRIDGE_PROD_STORAGE_TOKEN", SECRET)
    monkeypatch.setenv("LANCE_BRIDGE_PROD_ROOT", "/r")
    assert environment(MemoryConfig, "prod") == {"root": "/r"}
    [record] = caplog.records
    assert "$LANCE_BRIDGE_PROD_STORAGE_TOKEN" in record.getMessage()
    assert "'prod-storage'" in record.getMessage()
    assert SECRET not in record.getMessage()
    assert environment(MemoryConfig, "prod-storage") == {"token": SECRET}
    yaml_file.write_text(f"catalogs: {{prod: {entry}}}")
    expected = {"root": "/r", "storage.token": SECRET}
    assert environment(MemoryConfig, "prod") == expected


def test_numbers_and_booleans_may_be_given_as_such_and_as_texts() -> None:
    for given, retries in (("5", 5), (5, 5), ("0", 0)):
        config = load(MemoryConfig, "memory", {"uri": "x", "client.retries": given})
        assert config.retries == retries
    for given in (True, "true", "True", "1", 1):
        assert load(MemoryConfig, "memory", {"uri": "x", "pickle.secrets": given}).pickle_secrets


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LANCE_BRIDGE_MEMORY_CLIENT_RETRY", "LANCE_BRIDGE_MEMORY_CLIENT_RETRIES"),
        ("LANCE_BRIDGE_MEMORY_TOKE", "LANCE_BRIDGE_MEMORY_TOKEN"),
        ("LANCE_BRIDGE_MEMORY_STORAGEAWS_REGION", "LANCE_BRIDGE_MEMORY_STORAGE_<OPTION>"),
        ("LANCE_BRIDGE_MEMORY_CREDENTIALOPTION", "LANCE_BRIDGE_MEMORY_CREDENTIALS_<OPTION>"),
    ],
)
def test_a_variable_of_no_property_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, meant: str
) -> None:
    monkeypatch.setenv(variable, SECRET)
    load(MemoryConfig, "memory", {"uri": "x"})
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"${variable} " in record.getMessage()
    assert f"${meant}?" in record.getMessage()
    assert SECRET not in record.getMessage()


def test_a_variable_of_a_property_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_URI", "x")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_STORAGE_AWS_REGION", "eu-1")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORYX_URL", "x")
    assert load(MemoryConfig, "memory", {}).uri == "x"
    assert caplog.records == []


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("url", SECRET, "did you mean 'uri'"),
        ("Root", SECRET, "did you mean 'root'"),
        ("client.retry", SECRET, "did you mean 'client.retries'"),
        ("zzz", SECRET, "known properties: root"),
        ("storage", SECRET, "write storage.<option>"),
        ("storage.*", SECRET, "write storage.<option>"),
        ("storage.", SECRET, "write storage.<option>"),
        ("storage. ", SECRET, "write storage.<option>"),
        ("client.retries", "many", "property 'client.retries'"),
        ("client.retries", "-1", "property 'client.retries'"),
        ("client.retries", "1.5", "property 'client.retries'"),
        ("pickle.secrets", "perhaps", "property 'pickle.secrets'"),
        ("drop.check-sharing", "never", "property 'drop.check-sharing'"),
        ("drop.check-sharing", "", "property 'drop.check-sharing'"),
        ("token", None, "must be a string"),
        ("token", [SECRET], "must be a string"),
        ("token", {"a": SECRET}, "must be a string"),
        ("token", SECRET.encode(), "must be a string"),
    ],
)
def test_a_property_that_cannot_be_is_invalid_and_named_without_its_value(
    key: str, value: object, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        load(MemoryConfig, "memory", {"uri": "x", key: value})
    assert f"'{key}'" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_missing_required_key_is_named() -> None:
    with pytest.raises(InvalidInputError, match="property 'uri' is required"):
        load(MemoryConfig, "memory", {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aws_access_key_id", f"{SECRET}\n"),
        ("aws_session_token", f"{SECRET}\x00"),
        ("aws_region", ""),
        ("aws_region", " "),
        ("aws_endpoint", "::no url::"),
        ("aws_endpoint", "store:9000"),
        ("endpoint_url", "ftp://store"),
        ("azure_storage_endpoint", "http://"),
        ("aws_endpoint", "http://store:port"),
        ("aws_endpoint", f"http://me:{SECRET}@store"),
        ("aws_endpoint", f"http://store/?sig={SECRET}"),
    ],
)
def test_an_option_that_the_object_store_would_panic_at_is_invalid(key: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'storage.{key}'") as caught:
        load(MemoryConfig, "memory", {"uri": "x", f"storage.{key}": value})
    assert SECRET not in str(caught.value)


def test_options_of_the_storage_are_kept_without_their_prefix() -> None:
    endpoints = (
        "http://127.0.0.1:9000",
        "https://s3.eu-1.example.com/",
        "http://[::1]:80/x",
        "http://minio_1",
    )
    key = '{\n"type": "service_account"\n}\n'
    wanted: list[dict[str, str]] = [
        {"a.b": "1", "C": "2"},
        {"google_service_account_key": key},
        *({"aws_endpoint": endpoint} for endpoint in endpoints),
    ]
    for options in wanted:
        given = {f"storage.{key}": value for key, value in options.items()}
        assert load(MemoryConfig, "memory", {"uri": "x", **given}).storage == options


# -- secrets ---------------------------------------------------------------------------------------


def with_secrets() -> MemoryConfig:
    properties = {"uri": "x", "token": SECRET, "storage.aws_secret_access_key": SECRET}
    return load(MemoryConfig, "memory", properties)


def test_secrets_are_in_no_text_of_a_configuration() -> None:
    config = with_secrets()
    assert config.token is not None
    assert config.token.get_secret_value() == SECRET
    for text in (repr(config), str(config), f"{config}", repr(config.__dict__["token"])):
        assert SECRET not in text


def test_secrets_are_in_no_error_of_a_configuration() -> None:
    bad = {"uri": "x", "token": SECRET, "storage.aws_secret_access_key": SECRET}
    for more in ({"client.retries": SECRET}, {"pickle.secrets": SECRET}, {SECRET[:3]: "x"}):
        with pytest.raises(InvalidInputError) as caught:
            load(MemoryConfig, "memory", {**bad, **more})
        assert SECRET not in "".join(traceback.format_exception(caught.value))


SECRET_OPTIONS = """
    aws_secret_access_key AWS_SECRET_ACCESS_KEY secret_access_key aws_session_token
    azure_storage_account_key account_key access_key azure_storage_sas_token sas_key
    azure_storage_client_secret google_service_account_key bearer_token password proxy_url
    google_service_account service_account headers default_headers headers.authorization
    connection_string azure_storage_connection_string sas bearer authorization
    aws_sse_customer_key_base64 something.nobody.knows
"""
PLAIN_OPTIONS = """
    aws_access_key_id access_key_id aws_region aws_endpoint allow_http azure_storage_account_name
    AWS_REGION region endpoint endpoint_url aws_virtual_hosted_style_request timeout connect_timeout
    client_max_retries google_bucket azure_tenant_id aws_sse_kms_key_id
"""


def test_keys_of_secrets_are_known() -> None:
    secret = ["token", *(f"storage.{option}" for option in SECRET_OPTIONS.split())]
    plain = ["uri", "root", *(f"storage.{option}" for option in PLAIN_OPTIONS.split())]
    assert [key for key in (*secret, *plain) if MemoryConfig.is_secret(key)] == secret


def test_each_property_is_declared_with_its_default_and_an_example() -> None:
    rows = {each.key: each for each in MemoryConfig.declared()}
    assert all(each.meaning for each in rows.values())
    assert (rows["token"].secret, rows["uri"].secret) == (True, False)
    assert (rows["uri"].required, rows["uri"].default) == (True, None)
    assert rows["uri"].default_text == "required"
    assert rows["client.retries"].type == "integer"
    assert rows["client.retries"].default == rows["client.retries"].default_text == "3"
    assert rows["drop.check-sharing"].type == "`catalog` | `entries` | `namespace`"
    shown = {key: rows[key].example for key in ("uri", "token", "root", "client.retries")}
    assert shown == {
        "uri": "",
        "token": "********",
        "root": "s3://lake/tables",
        "client.retries": "6",
    }
    assert rows["drop.check-sharing"].example == "entries"
    assert rows["pickle.secrets"].example == "true"


def test_a_configuration_does_not_change() -> None:
    config = with_secrets()
    with pytest.raises(ValueError, match="frozen"):
        config.uri = "y"
    assert pickle.loads(pickle.dumps(config)) == config


# -- the file of named catalogs --------------------------------------------------------------------


def test_named_catalogs_come_from_the_file_that_the_environment_names(yaml_file: Path) -> None:
    yaml_file.write_text(
        "catalogs:\n"
        "  prod: {impl: memory, uri: one, client.retries: 4, pickle.secrets: true}\n"
        "  7: {impl: hive}\n"
    )
    assert named_catalogs() == {
        "prod": {"impl": "memory", "uri": "one", "client.retries": "4", "pickle.secrets": "true"},
        "7": {"impl": "hive"},
    }


def test_the_usual_file_is_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert named_catalogs() == {}
    (tmp_path / ".lance-bridge.yaml").write_text("catalogs: {a: {impl: b}}")
    assert named_catalogs() == {"a": {"impl": "b"}}


def test_a_named_file_that_is_missing_is_invalid(yaml_file: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"{yaml_file}, which does not exist"):
        named_catalogs()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "must contain a mapping `catalogs:`"),
        (b"[1, 2]", "must contain a mapping `catalogs:`"),
        (b"catalogs: 3", "must contain a mapping `catalogs:`"),
        (b"token: s3cr3t-value: x", "cannot be read as YAML: ScannerError in line 1"),
        (b"a: !!python/object/apply:os.getcwd []", "cannot be read as YAML"),
        (b"\xff\xfe\x00", "cannot be read as YAML"),
        (b"catalogs: {a: {impl: x}}\ncatalogs: {b: {impl: x}}\n", r"'catalogs' is dup.* line \d"),
        (b"base: {impl: x, impl: y}\ncatalogs: {a: {impl: x}}\n", r"'impl' is dup.* line \d"),
    ],
)
def test_a_bad_file_is_invalid_and_its_content_not_shown(
    yaml_file: Path, content: bytes, problem: str
) -> None:
    yaml_file.write_bytes(content)
    with pytest.raises(InvalidInputError, match=problem) as caught:
        named_catalogs()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_key_may_replace_one_of_a_merged_mapping(yaml_file: Path) -> None:
    yaml_file.write_text(
        "deep: {er: {own: &own {<<: &base {impl: x, uri: base}, uri: own}}}\n"
        "catalogs: {a: {<<: *own, uri: mine}, b: *base, c: *own}\n"
    )
    uris = {name: properties["uri"] for name, properties in named_catalogs().items()}
    assert uris == {"a": "mine", "b": "base", "c": "own"}


def test_a_directory_in_place_of_the_file_is_invalid(yaml_file: Path) -> None:
    yaml_file.mkdir()
    with pytest.raises(InvalidInputError, match="cannot be read as YAML"):
        named_catalogs()


# -- an entry of the file --------------------------------------------------------------------------


@pytest.mark.spec("federated.md#connecting")
def test_the_names_of_other_catalogs_may_be_a_list(yaml_file: Path) -> None:
    yaml_file.write_text("catalogs:\n  all: {impl: federated, catalogs: [prod, aws]}\n")
    assert named_catalogs()["all"] == {"impl": "federated", "catalogs": "prod,aws"}


@pytest.mark.spec("federated.md#connecting")
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("3", "'a' must be a mapping with `impl:`"),
        ("{uri: x}", "'a' must be a mapping with `impl:`"),
        ("{impl: 3}", "'a' must be a mapping with `impl:`"),
        ("{impl: x, uri: [s3cr3t-value]}", "'uri' must be a string"),
        ("{impl: x, catalogs: [prod, 3]}", "'catalogs' must be a string"),
        ("{impl: x, uri: }", "'uri' must be a string"),
        ("{impl: x, uri: s3cr3t-value, 'uri': other}", "'uri' is duplicated in line 3"),
        ("{impl: x}\n  a: {impl: y}", "'a' is duplicated in line 4"),
    ],
)
def test_an_entry_that_is_wrong_harms_only_itself(
    yaml_file: Path, entry: str, problem: str
) -> None:
    yaml_file.write_text(f"catalogs:\n  good: {{impl: x}}\n  a: {entry}\n  last: {{impl: y}}\n")
    named = named_catalogs()
    assert sorted(named) == ["a", "good", "last"]
    assert named["good"] == {"impl": "x"}
    assert named.valid == {"good": {"impl": "x"}, "last": {"impl": "y"}}
    assert "a" in named
    with pytest.raises(InvalidInputError, match=re.escape(problem)) as caught:
        named["a"]
    assert str(yaml_file) in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
