"""The properties of ``impl=hive``: what is taken, and what is refused with which words."""

from __future__ import annotations

import pickle

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.config import load
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.transport import ClientPool, Endpoint, parse_endpoints

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("hive.md#namespace-implementation-configuration-properties"),
]

THRIFT = "thrift://metastore:9083"


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
