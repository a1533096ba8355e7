"""Properties of ``impl=hive``, and delegation tokens: what is taken, and what is refused."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.config import load
from lance_bridge_hive import mapping
from lance_bridge_hive.client import ClientPool
from lance_bridge_hive.config import Endpoint, HiveConfig, parse_endpoints
from lance_bridge_hive.tokens import DelegationToken, parse_token, read_token

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "hive.md#namespace-implementation-configuration-properties", "hive.md#delegation-tokens"
    ),
]

THRIFT = "thrift://metastore:9083"
# Written by `org.apache.hadoop.security.Credentials` of Hadoop 3.5.0: the token of a metastore, one
# of HiveServer2, one of HDFS, and a secret key. The identifier of the first has 206 bytes, so that
# its size takes two.
WRITABLE = (
    "SERUUwADAm5uBGhkZnMDcHczFUhERlNfREVMRUdBVElPTl9UT0tFTg0xMC4wLjAuMTo4MDIwA2hzMgVvdGhlcgNwdzIV"
    "SElWRV9ERUxFR0FUSU9OX1RPS0VOFmhpdmVzZXJ2ZXIyQ2xpZW50VG9rZW4daGl2ZS5zZXJ2ZXIyLmRlbGVnYXRpb24u"
    "dG9rZW6PzmFsaWNlLWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpB3Bhc3Mtw6kVSElWRV9ERUxFR0FUSU9OX1RPS0VOAAEDa2V5BXZhbHVl"
)
PROTOBUF = (
    "SERUUwGjAwo3CgJubhIxCgRoZGZzEgNwdzMaFUhERlNfREVMRUdBVElPTl9UT0tFTiINMTAuMC4wLjE6ODAyMApCCgNo"
    "czISOwoFb3RoZXISA3B3MhoVSElWRV9ERUxFR0FUSU9OX1RPS0VOIhZoaXZlc2VydmVyMkNsaWVudFRva2VuCpUCCh1o"
    "aXZlLnNlcnZlcjIuZGVsZWdhdGlvbi50b2tlbhLzAQrOAWFsaWNlLWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpEgdwYXNzLcOpGhVISVZFX0RFTEVHQVRJT05fVE9LRU4iABIM"
    "CgNrZXkaBXZhbHVl"
)
URL_STRING = (
    "j85hbGljZS1paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aQdwYXNzLcOpFUhJVkVfREVMRUdBVElPTl9UT0tFTgA"
)
FILES = {"writable": base64.b64decode(WRITABLE), "protobuf": base64.b64decode(PROTOBUF)}
IDENTIFIER = b"alice-" + b"i" * 200
PASSWORD = "pass-é".encode()
KIND = "HIVE_DELEGATION_TOKEN"


def configured(**properties: str) -> HiveConfig:
    return load(HiveConfig, "hive", {"uri": THRIFT, **properties})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thrift://a", [Endpoint("thrift", "a", 9083)]),
        ("thrift://a:1/", [Endpoint("thrift", "a", 1)]),
        ("thrift://[::1]:2", [Endpoint("thrift", "::1", 2)]),
        ("THRIFT://Host:3", [Endpoint("thrift", "host", 3)]),
        (
            "thrift://a:1, thrift://b:2,thrift://a:1",
            [Endpoint("thrift", "a", 1), Endpoint("thrift", "b", 2)],
        ),
        ("http://a:1", [Endpoint("http", "a", 1, "/metastore")]),
        ("https://a:1/hms/v2", [Endpoint("https", "a", 1, "/hms/v2")]),
    ],
)
def test_uris_are_taken_apart(text: str, expected: list[Endpoint]) -> None:
    assert list(parse_endpoints(text)) == expected


def test_an_endpoint_is_written_as_a_uri() -> None:
    for uri in ("thrift://[::1]:9083", "http://a:1/metastore", "thrift://a:9083"):
        assert str(parse_endpoints(uri)[0]) == uri


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty URI"),
        ("thrift://a,,thrift://b", "empty URI"),
        ("metastore:9083", "write thrift://metastore:9083"),
        ("ftp://a", "unknown scheme 'ftp'"),
        ("thrift://", "names no host"),
        ("thrift://a:0", "no valid port"),
        ("thrift://a:99999", "malformed"),
        ("thrift://a:x", "malformed"),
        ("thrift://[::1", "malformed"),
        ("thrift://a b", "names no host"),
        ("thrift://a/path", "must not have a path"),
        ("http://a?x=1", "must not have a query"),
        ("thrift://a,http://b", "cannot be mixed"),
        ("thrift://h:9083?token=hunter2", "must not have a query"),
        ("http://h/metastore?token=hunter2", "must not have a query"),
        ("http://h/metastore?a=b,token=hunter2", "must not have a query"),
        ("thrift://h:9083#hunter2", "must not have a query or fragment"),
        ("h:9083?token=hunter2", "must not have a query"),
        ("ftp://h?token=hunter2", "must not have a query"),
        ("thrift://h:x?token=hunter2", "must not have a query"),
        ("thrift://a,http://h/?token=hunter2", "must not have a query"),
        ("thrift://user:hunter2@h:9083", "auth.username and auth.password"),
        ("http://user:hunter2@h/metastore", "http.token"),
        ("thrift://user:hunter2,hunter2@h:9083", "auth.username and auth.password"),
        ("thrift://user:hunter2%40h:9083", "malformed"),
        ("thrift://h:hunter2", "malformed"),
    ],
)
def test_a_malformed_uri_is_refused_with_what_to_write_and_its_secrets_are_not_repeated(
    text: str, says: str
) -> None:
    with pytest.raises(InvalidInputError, match="property 'uri'") as caught:
        configured(uri=text)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_uri_is_required() -> None:
    with pytest.raises(InvalidInputError, match="property 'uri' is required"):
        load(HiveConfig, "hive", {})


TOKEN = {"auth.mechanism": "delegation-token"}


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"auth.mechanism": "plain"}, "needs auth.username and auth.password"),
        ({"auth.username": "u"}, "need auth.mechanism=plain"),
        ({"auth.password": "p"}, "need auth.mechanism=plain"),
        ({"auth.kerberos.host": "h"}, "needs auth.mechanism=kerberos"),
        ({"auth.mechanism": "kerberos", "client.framed": "true"}, "client.framed cannot"),
        ({"auth.mechanism": "kerberos", "ugi": "me"}, "ugi has no effect"),
        (TOKEN, "needs auth.token, auth.token-file, or $HADOOP_TOKEN_FILE_LOCATION"),
        ({"auth.token-file": "f"}, "auth.token-file needs auth.mechanism=delegation-token"),
        ({"auth.token-service": "s"}, "auth.token-service needs auth.mechanism"),
        ({**TOKEN, "auth.token": "hunter2"}, "auth.token: it is not a delegation token"),
        ({**TOKEN, "auth.token": "AAAAAA", "auth.token-file": "f"}, "cannot be combined with"),
        ({**TOKEN, "auth.token-file": "f", "ugi": "me"}, "ugi has no effect"),
        ({**TOKEN, "auth.token-file": "f", "auth.kerberos.host": "h"}, "needs auth.mechanism=ker"),
        ({"tls.ca-file": "ca"}, "tls.ca-file needs tls.enabled=true"),
        ({"tls.verify": "false"}, "tls.verify needs tls.enabled=true"),
        ({"tls.enabled": "true", "tls.key-file": "k"}, "tls.key-file needs tls.cert-file"),
        ({"http.token": "t"}, "http.token needs an http(s):// uri"),
        ({"uri": "http://a", "http.token": "hunter2\r\nX: 1"}, "http.token"),
        ({"uri": "http://a", "auth.mechanism": "kerberos"}, "use http.token"),
        ({"uri": "http://a", "client.framed": "true"}, "client.framed cannot"),
        ({"uri": "http://a", "tls.enabled": "true"}, "write https://"),
        ({"ugi": ""}, "property 'ugi': write user, or user:group1,group2"),
        ({"ugi": "me:"}, "property 'ugi': write user"),
        ({"ugi": "me\r\nX-Other: 1"}, "property 'ugi': write user"),
        ({"client.pool-size": "0"}, "property 'client.pool-size'"),
        ({"client.timeout": "0"}, "property 'client.timeout'"),
        ({"client.timeout": "nan"}, "property 'client.timeout'"),
        ({"client.retry-timeout": "-1"}, "property 'client.retry-timeout'"),
        ({"client.poolsize": "3"}, "did you mean 'client.pool-size'?"),
        ({"auth.mechanism": "ldap"}, "property 'auth.mechanism'"),
    ],
)
def test_properties_that_contradict_are_refused_by_name(
    properties: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        configured(**properties)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_environment_names_the_file_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", "/container/tokens")
    assert configured(**TOKEN).token_file == "/container/tokens"
    assert configured(**TOKEN, **{"auth.token-file": "/own"}).token_file == "/own"


def test_the_user_and_groups_are_taken_apart() -> None:
    assert configured(ugi="me").user == ("me", [])
    assert configured(ugi="me:a, b").user == ("me", ["a", "b"])
    assert configured().user is None


def test_secrets_do_not_show() -> None:
    config = configured(
        **{"auth.mechanism": "plain", "auth.username": "u", "auth.password": "hunter2"}
    )
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(ClientPool(config))
    secrets = {each.key for each in HiveConfig.declared() if each.secret}
    assert {"auth.password", "auth.token", "http.token"} <= secrets


def test_a_pool_is_not_pickled_with_its_connections() -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(ClientPool(configured()))


@pytest.mark.parametrize("key", ["tls.ca-file", "tls.cert-file"])
def test_a_tls_file_that_is_missing_or_no_pem_is_named(
    key: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("tls")
    wrong = directory / "wrong.pem"
    wrong.write_text("no certificate")
    for path in (wrong, directory / "missing.pem"):
        with pytest.raises(InvalidInputError, match=key.replace(".", r"\.")):
            ClientPool(configured(**{"tls.enabled": "true", key: str(path)}))


# -- delegation tokens, in strings and in files of Hadoop's own classes ----------------------------


@pytest.fixture(params=FILES)
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "tokens"
    path.write_bytes(FILES[request.param])
    return path


def test_the_token_of_the_metastore_is_found_in_both_versions_of_the_file(file: Path) -> None:
    assert read_token(file, "") == DelegationToken(IDENTIFIER, PASSWORD, KIND, "")


def test_a_service_selects_among_several_tokens(file: Path) -> None:
    found = read_token(file, "hiveserver2ClientToken")
    assert (found.identifier, found.password) == (b"other", b"pw2")
    with pytest.raises(ValueError, match="for '', 'hiveserver2ClientToken': set"):
        read_token(file, "10.0.0.1:8020")


def test_a_string_is_the_same_token() -> None:
    found = parse_token(URL_STRING)
    assert found == DelegationToken(IDENTIFIER, PASSWORD, KIND, "")
    assert parse_token(f" {URL_STRING}==\n") == found
    assert base64.b64decode(found.sasl_username) == IDENTIFIER
    assert base64.b64decode(found.sasl_password) == PASSWORD


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_file_that_ends_too_early_is_refused_and_nothing_of_it_shown(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "tokens"
    found: list[DelegationToken] = []
    refused: list[str] = []
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            found.append(read_token(path, ""))
        except ValueError as error:
            refused.append(str(error))
    # Only what comes after the tokens, in version 0, may be missing.
    assert {(each.identifier, each.password) for each in found} <= {(IDENTIFIER, PASSWORD)}
    assert len(found) < 20
    assert "alice" not in "".join(refused)
    assert "pass-" not in "".join(refused)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "ends too early"),
        (b"HDTX\0\0", "does not begin with HDTS"),
        (b"HDTS\x02", "version 2 is unknown"),
        (b"HDTS\0\0\0", "has no token of the kind HIVE_DELEGATION_TOKEN"),
        (b"HDTS\x01\0", "has no token of the kind HIVE_DELEGATION_TOKEN"),
        (b"HDTS\0\x87", "a count is negative"),
        (b"HDTS\0\x8c\x7f\xff\xff\xff", "ends too early"),
        (b"HDTS\x01" + b"\xff" * 12, "a number is too long"),
        (b"HDTS\x01\x02\x0b\0", "a field has an unknown type"),
    ],
)
def test_a_file_without_a_token_is_refused(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_token(path, "")


@pytest.mark.parametrize("text", ["", "hush", "hush!", URL_STRING[:40], "é"])
def test_a_string_that_is_no_token_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="not a delegation token") as caught:
        parse_token(text)
    assert "hush" not in str(caught.value)


def test_a_repr_shows_neither_user_nor_password(file: Path) -> None:
    shown = repr(read_token(file, ""))
    assert "alice" not in shown
    assert "pass-" not in shown


@pytest.mark.parametrize("owner", ["ada", None])
def test_an_entry_has_its_owner_and_the_format_of_its_files(owner: str | None) -> None:
    files = hive.StorageDescriptor(
        inputFormat="org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
    )
    table = hive.Table(tableName="t", dbName="d", owner=owner, tableType="EXTERNAL_TABLE", sd=files)
    record = mapping.record_from(("d",), table)
    assert (record.format, record.owner) == ("Parquet", owner or "")
