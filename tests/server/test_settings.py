"""The configuration of a server: what is taken, and what is said about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import yaml
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError
from server.gateways import done, refused, serve_app, serve_namespace
from starlette.types import Scope

from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_server import app_from_environment
from lance_bridge_server.access.origins import LocalHosts
from lance_bridge_server.app import create_app
from lance_bridge_server.config import ServerSettings, SettingsSource
from lance_bridge_server.run.catalogs import connect_catalogs, root_namespace
from lance_bridge_server.run.command import parse_catalogs
from lance_bridge_server.run.listening import page_address
from lance_bridge_server.run.server import gateway_from_source

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#serve", "server.md#the-configuration-file", "server.md#web-pages"),
]

SECRET = "zq0HIDDENk7w9x0"
HIVE = {"impl": "hive", "uri": "thrift://metastore:9083"}
CATALOGS = {"catalogs": {"prod": HIVE}}
OIDC = {"method": "oidc", "issuer": "https://issuer", "audiences": ["lance"]}
PROXY = {"method": "proxy", "networks": ["10.0.0.0/8"]}
TLS = {"certificate": "c.pem", "key": "k.pem"}


def read(content: Any, tmp_path: Path, **options: Any) -> ServerSettings:
    path = tmp_path / "server.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return SettingsSource(path, **options).read()


def test_a_configuration_that_cannot_be_used_opens_no_audit_log(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    settings = {
        "catalogs": {"files": {"impl": "dir", "root": str(tmp_path)}},
        "audit": {"to": str(log)},
        "login": {"key_file": "/nothing"},
    }
    with pytest.raises(InvalidInputError, match="/nothing cannot be read"):
        gateway_from_source(SettingsSource(overrides=settings))
    assert not log.exists()


@pytest.mark.parametrize("text", [None, "not PEM"])
def test_a_wrong_ca_file_of_a_provider_is_named(tmp_path: Path, text: str | None) -> None:
    ca_file = tmp_path / "ca.pem"
    if text is not None:
        ca_file.write_text(text)
    settings = {
        "catalogs": {"files": {"impl": "dir", "root": str(tmp_path)}},
        "authentication": [{**OIDC, "ca_file": str(ca_file)}],
    }
    with pytest.raises(InvalidInputError, match=f"ca_file {ca_file} cannot be used: "):
        gateway_from_source(SettingsSource(overrides=settings))


def test_the_smallest_file_listens_on_this_machine_alone(tmp_path: Path) -> None:
    settings = read(CATALOGS, tmp_path)
    [listener] = settings.listeners
    assert (listener.host, listener.port, listener.is_local) == ("127.0.0.1", 2333, True)
    assert (settings.workers, settings.authentication, settings.root) == (1, [], None)


def test_a_whole_file_is_taken(tmp_path: Path) -> None:
    settings = read(
        {
            **CATALOGS,
            "root": "prod",
            "listeners": [{"host": "0.0.0.0", "port": 443}, {"host": "::1"}],
            "tls": {**TLS, "client_ca": "~/ca.pem", "client_certificates": "required"},
            "authentication": [
                {"method": "client_certificates", "name": "uri"},
                {"method": "api_keys", "file": "keys.json"},
                {**OIDC, "claims": {"hd": "example.com"}, "algorithms": ["ES256"]},
                {**PROXY, "networks": ["10.1.2.3", "fd00::/8", "unix"]},
            ],
            "allow_anonymous": True,
            "authorization": {"method": "cedar", "policies": "policies"},
            "audit": {"to": "audit.jsonl", "rotation": "external", "refuse_changes": True},
            "limits": {"body_bytes": 1000, "threads": 8},
            "databases": {"prefix": ["prod"], "separator": None, "names": {"x": ["a", "b"]}},
            "workers": 4,
            "stop_seconds": 5,
            "log": {"format": "json", "level": "debug"},
        },
        tmp_path,
    )
    assert settings.limits.body_bytes == 1000
    assert settings.limits.stall_seconds == 120
    assert settings.tls is not None
    assert settings.tls.client_ca == Path.home() / "ca.pem"
    assert [each.method for each in settings.authentication] == [
        "client_certificates", "api_keys", "oidc", "proxy",
    ]  # fmt: skip


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"listners": []}, "there is no key 'listners': did you mean 'listeners'?"),
    ({"zzz": 1}, "there is no key 'zzz': known keys are catalogs, root, listeners, tls"),
    ({"listeners": [{"prot": 1}]}, r"no key 'listeners\[0\].prot': did you mean 'port'"),
    ({"listeners": [{"port": 70_000}]}, r"'listeners\[0\].port': Input should be less than"),
    ({"listeners": [{"port": 1, "socket": "s"}]}, r"'listeners\[0\]': a listener has a host and"),
    ({"listeners": [{"socket": "s", "mode": "rw"}]}, r"'listeners\[0\].mode': String should match"),
    ({"listeners": []}, "'listeners': List should have at least 1 item"),
    ({"tls": {"key": "k"}}, "'tls.certificate' is required"),
    ({"tls": {**TLS, "client_certificates": "required"}}, "'tls': client_certificates: required"),
    ({"tls": TLS, "listeners": [{"socket": "s"}]}, "does not apply to a unix socket"),
    ({"authentication": [{}]}, r"'authentication\[0\].method' is required"),
    ({"authentication": [{"method": "x"}]}, r"'authentication\[0\].method' must be one of 'api_k"),
    ({"authentication": [{**OIDC, "isuer": "x"}]}, r"\[0\].isuer': did you mean 'issuer'"),
    ({"authentication": [{**OIDC, "issuer": "http://issuer"}]}, "must begin with https://"),
    ({"authentication": [{**OIDC, "algorithms": ["none"]}]}, r"\[0\].algorithms\[0\]': Input sho"),
    ({"authentication": [{**OIDC, "algorithms": ["HS256"]}]}, r"\[0\].algorithms\[0\]': Input sh"),
    ({"authentication": [{**OIDC, "audiences": []}]}, r"\[0\].audiences': List should have at le"),
    ({"authentication": [{**PROXY, "networks": ["10.0.0.0/33"]}]}, r"\[0\].networks\[0\]"),
    ({"authentication": [{**PROXY, "header": "a b"}]}, r"\[0\].header': String should match"),
    ({"authentication": [{"method": "client_certificates"}]}, "needs tls.client_ca"),
    ({"root": "other"}, "root: 'other' must be the one catalog, but the catalogs are prod"),
    ({"root": "prod", "catalogs": ["prod", "aws"]}, "must be the one catalog, but the catalogs a"),
    ({"cors": {"origins": []}}, "'cors.origins': List should have at least 1 item"),
    ({"cors": {"origins": "*"}}, "'cors.origins': Input should be a valid list"),
    ({"cors": {"origins": ["app.example.com"]}}, r"'cors.origins\[0\]': String should match"),
    ({"cors": {"origins": ["https://a.com/path"]}}, r"'cors.origins\[0\]': String should match"),
    ({"limits": {"threads": 0}}, "'limits.threads': Input should be greater than 0"),
    ({"limits": {"rate": "fast"}}, "'limits.rate': couldn't parse rate limit string"),
    ({"limits": {"rate": "0.5"}}, "'limits.rate': couldn't parse rate limit string"),
    ({"limits": {"rate": "1/day; 5"}}, "'limits.rate': couldn't parse rate limit string"),
    ({"limits": {"rate": "1/week"}}, "'limits.rate': no granularity matched for week"),
    ({"limits": {"concurrent_requests": 0}}, "'limits.concurrent_requests': Input should be gre"),
    (
        {"limits": {"principals": {"ann": {"foo": 1}}}},
        "'limits.principals.ann.foo': known keys are rate, concurrent_requests, body_bytes$",
    ),
    ({"databases": {"separator": ""}}, "'databases.separator': String should have at least 1"),
    ({"databases": {"prefix": "prod"}}, "'databases.prefix': "),
    ({"databases": {"names": {"x": ["a", ""]}}}, r"'databases.names.x\[1\]': String should have"),
    ({"catalogs": {}}, "'catalogs': Value should have at least 1 item"),
    ({"catalogs": {"a.b": HIVE}}, r"'catalogs.a.b': String should match"),
    ({"catalogs": {"a": "hive"}}, "'catalogs.a': Input should be a valid dictionary"),
    ({"catalogs": None}, "'catalogs': Input should be a valid dictionary"),
    ({"authorization": {"method": "cedar"}}, "'authorization': policies are for method: cedar"),
    ({"authorization": {"policies": "p"}}, "'authorization': policies are for method: cedar"),
    ({"authorization": {"options": {"a": 1}}}, "'authorization': options are for authorizers"),
    ({"audit": {"to": "a", "backups": 0}}, "'audit.backups': Input should be greater"),
    ({"workers": 2, "audit": {"to": "a"}}, "audit: several workers cannot rotate one file"),
    ({"workers": 0}, "'workers': Input should be greater than or equal to 1"),
    ({"log": {"format": "xml"}}, "'log.format': Input should be 'text' or 'json'"),
]


@pytest.mark.spec("server.md#the-audit-log")
@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[text for _, text in WRONG])
def test_what_is_wrong_is_named_by_its_path(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as raised:
        read({**CATALOGS, **wrong}, tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}/server.yaml: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("catalogs: {a: {impl: hive}}\nroot: a\nroot: b\n", "'root' is duplicated in line 3"),
        (f"password: {SECRET}: [", r"cannot be read: it is not YAML \(ScannerError\)"),
        ("- catalogs", "must contain a mapping"),
        ("", "must contain a mapping"),
        ("1: 2", "must contain a mapping"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as raised:
        read(text, tmp_path)
    assert SECRET not in str(raised.value)


def test_no_secret_of_a_catalog_is_shown(tmp_path: Path) -> None:
    secret = {**HIVE, "auth.mechanism": "plain", "auth.password": SECRET}
    settings = read({"catalogs": {"prod": secret}}, tmp_path)
    source = SettingsSource(None, catalogs={"prod": {"auth.password": SECRET}})
    assert SECRET not in repr(settings) + repr(source)
    wrong = (
        {"catalogs": {"prod": secret}, "root": "x"},
        {"catalogs": {"prod": SECRET}},
        {"catalogs": {"prod": secret}, "workers": "x"},
    )
    for content in wrong:
        with pytest.raises(InvalidInputError) as raised:
            read(content, tmp_path)
        assert SECRET not in str(raised.value)
    bad = read({"catalogs": {"prod": {**secret, "client.timeout": SECRET}}}, tmp_path)
    with pytest.raises(InvalidInputError, match="catalog 'prod': impl=hive: property") as raised:
        connect_catalogs(bad, {})
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.com", "127.0.0.1.evil"])
def test_other_machines_are_not_served_without_authentication(tmp_path: Path, host: str) -> None:
    open_to_all = {**CATALOGS, "listeners": [{"port": 1}, {"host": host}]}
    with pytest.raises(InvalidInputError, match=f"{host} can be reached from other machines"):
        read(open_to_all, tmp_path)
    for allowed in ({"allow_anonymous": True}, {"authentication": [PROXY]}):
        assert read({**open_to_all, **allowed}, tmp_path).listeners[1].host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_is_served_without_authentication(tmp_path: Path, host: str) -> None:
    assert read({**CATALOGS, "listeners": [{"host": host}]}, tmp_path).listeners[0].is_local


def test_options_go_before_the_file(tmp_path: Path) -> None:
    added = {"prod": {"uri": "thrift://other:1"}, "new": {"impl": "dir", "root": "/lake"}}
    source = {"overrides": {"workers": 2}, "catalogs": added}
    settings = read({**CATALOGS, "workers": 8}, tmp_path, **source)
    assert settings.workers == 2
    assert sorted(settings.catalogs) == ["new", "prod"]
    catalogs = connect_catalogs(settings, added)
    assert "other:1" in catalogs["prod"].namespace_id()


def test_properties_come_from_options_then_the_environment_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read(CATALOGS, tmp_path)
    assert "metastore:9083" in connect_catalogs(settings, {})["prod"].namespace_id()
    monkeypatch.setenv("LANCE_BRIDGE_PROD_URI", "thrift://environment:1")
    assert "environment:1" in connect_catalogs(settings, {})["prod"].namespace_id()
    given = {"prod": {"uri": "thrift://option:1"}}
    assert "option:1" in connect_catalogs(settings, given)["prod"].namespace_id()


@pytest.mark.spec("server.md#equal-reads")
@pytest.mark.parametrize(
    ("entry", "variable", "expected"),
    [({}, None, 5), ({"client.pool-size": 7}, None, 7), ({}, "9", 9)],
)
def test_a_catalog_has_a_connection_for_each_call_unless_its_entry_says_otherwise(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: dict[str, int],
    variable: str | None,
    expected: int,
) -> None:
    if variable is not None:
        monkeypatch.setenv("LANCE_BRIDGE_PROD_CLIENT_POOL_SIZE", variable)
    catalogs = {"prod": {"impl": "hive", "uri": "thrift://metastore:9083", **entry}}
    settings = read({"catalogs": catalogs, "limits": {"threads": 10}}, tmp_path)
    namespace: Any = connect_catalogs(settings, {})["prod"]
    assert namespace.connection.config.pool_size == expected


def test_catalogs_of_the_users_own_file_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "catalogs.yaml"
    own.write_text(yaml.safe_dump(CATALOGS))
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(own))
    settings = read({"catalogs": ["prod"]}, tmp_path)
    [catalog] = connect_catalogs(settings, {}).values()
    assert isinstance(catalog, HiveNamespace)
    changed = read({"catalogs": {"prod": {"uri": "thrift://changed:1"}}}, tmp_path)
    assert "changed:1" in connect_catalogs(changed, {})["prod"].namespace_id()
    with pytest.raises(
        InvalidInputError, match=r"catalog 'x': it has no impl, and .*catalogs\.yaml"
    ):
        connect_catalogs(read({"catalogs": ["x"]}, tmp_path), {})
    with pytest.raises(InvalidInputError, match="catalog 'other': there is no such"):
        connect_catalogs(settings, {"other": {"uri": "x"}})


def test_catalogs_are_children_of_the_root_unless_one_is_the_root(tmp_path: Path) -> None:
    files = {"impl": "dir", "root": str(tmp_path / "lake")}
    settings = read({"catalogs": {"files": files, "more": files}}, tmp_path)
    root = root_namespace(settings, connect_catalogs(settings, {}))
    assert isinstance(root, FederatedNamespace)
    assert root.catalogs == ["files", "more"]
    alone = read({"catalogs": {"files": files}}, tmp_path)
    federated = root_namespace(alone, connect_catalogs(alone, {}))
    assert isinstance(federated, FederatedNamespace)
    with pytest.raises(NamespaceNotFoundError):
        federated.child("other")
    named = read({"catalogs": {"files": files}, "root": "files"}, tmp_path)
    catalogs = connect_catalogs(named, {})
    assert root_namespace(named, catalogs) is catalogs["files"]


@pytest.mark.spec("server.md#databases", "server.md#keys-of-the-configuration")
def test_databases_of_lancedb_are_paths(tmp_path: Path) -> None:
    assert read(CATALOGS, tmp_path).databases("prod.sales") == ["prod", "sales"]
    rules = {"prefix": ["prod"], "separator": None, "names": {"x": ["a", "b"]}}
    databases = read({**CATALOGS, "databases": rules}, tmp_path).databases
    assert databases("my.db") == ["prod", "my.db"]
    assert databases("x") == ["a", "b"]


@pytest.mark.spec("server.md#other-asgi-servers")
def test_the_environment_names_the_file_for_other_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match="LANCE_BRIDGE_SERVER_CONFIG must name"):
        app_from_environment()
    read(CATALOGS, tmp_path)
    monkeypatch.setenv("LANCE_BRIDGE_SERVER_CONFIG", str(tmp_path / "server.yaml"))
    with serve_app(app_from_environment()) as url:
        assert httpx.get(f"{url}/v1/namespace/$/list").json()["namespaces"] == ["prod"]


def test_catalogs_are_given_as_options() -> None:
    options = ["prod=hive:uri=thrift://h:9083?x=1", "own", "files=dir"]
    properties = ["files.root=/a=b", "prod.storage.aws_region=eu"]
    assert parse_catalogs(options, properties) == {
        "prod": {"impl": "hive", "uri": "thrift://h:9083?x=1", "storage.aws_region": "eu"},
        "own": {},
        "files": {"impl": "dir", "root": "/a=b"},
    }


# -- other origins ---------------------------------------------------------------------------------


LIST = "/v1/namespace/$/list"


PAGE = "https://app.example.com"


PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "GET",
    "access-control-request-headers": "x-api-key",
}


def of_cors(answer: httpx.Response) -> dict[str, str]:
    return {key: text for key, text in answer.headers.items() if key.startswith("access-control")}


def test_browsers_are_allowed_nothing_by_default(http: httpx.Client) -> None:
    answer = http.get(LIST, headers={"origin": PAGE})
    done(answer)
    preflight = http.request("OPTIONS", LIST, headers=PREFLIGHT)
    refused(preflight, 405, 13)
    assert of_cors(answer) == of_cors(preflight) == {}


def test_configured_origins_are_allowed(namespace: Any) -> None:
    content = {"catalogs": {"c": {}}, "cors": {"origins": [PAGE]}}
    settings = ServerSettings.model_validate(content)
    with (
        serve_namespace(namespace, cors=settings.cors) as url,
        httpx.Client(base_url=url) as client,
    ):
        preflight = client.request("OPTIONS", LIST, headers=PREFLIGHT)
        assert preflight.status_code == 200
        assert of_cors(preflight)["access-control-allow-origin"] == PAGE
        done(client.post("/v1/namespace/new/create", json={}, headers={"origin": PAGE}))
        answer = client.get(LIST, headers={"origin": PAGE})
        assert of_cors(answer)["access-control-allow-origin"] == PAGE
        assert "x-request-id" in of_cors(answer)["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in of_cors(answer)
        other = {**PREFLIGHT, "origin": "https://evil.example.com"}
        assert client.request("OPTIONS", LIST, headers=other).status_code == 400
        found = of_cors(client.get(LIST, headers={"origin": "https://evil.example.com"}))
        assert "access-control-allow-origin" not in found


# -- names of the server ---------------------------------------------------------------------------


KEYS = {"authentication": [{"method": "proxy", "networks": ["127.0.0.1"], "header": "host"}]}


@contextmanager
def served(directory: Path, **settings: Any) -> Iterator[str]:
    """Serve a directory; yield the address."""
    catalogs = {"lake": {"impl": "dir", "root": str(directory)}}
    gateway = gateway_from_source(SettingsSource(overrides={"catalogs": catalogs, **settings}))
    with serve_app(create_app(gateway)) as url:
        yield url


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("lake")) as url:
        yield url


def answer(url: str, host: str, path: str = LIST) -> httpx.Response:
    """Return the answer of a server for a host."""
    port = url.rpartition(":")[2]
    headers = {"host": host.replace("PORT", port), "origin": f"http://{host}"}
    return httpx.get(f"{url}{path}", headers=headers, timeout=30)


@pytest.mark.parametrize("host", ["evil.example:PORT", "evil.example", "localhost.evil.example"])
@pytest.mark.parametrize("path", [LIST, "/ui", "/metrics"])
def test_a_page_whose_name_resolves_to_this_machine_is_refused(
    url: str, host: str, path: str
) -> None:
    assert "Host" in refused(answer(url, host, path), 403, 15)


@pytest.mark.parametrize(
    "host", ["localhost:PORT", "LOCALHOST", "127.0.0.1:PORT", "127.0.0.1", "[::1]:PORT", "[::1]"]
)
def test_this_machine_is_answered(url: str, host: str) -> None:
    done(answer(url, host))


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("lake.example.com:8443", {"login": {"address": "https://lake.example.com:8443"}}),
        ("lake.example.com", {"allow_anonymous": True}),
        ("lake.example.com", KEYS),
    ],
    ids=["the address in browsers", "for other machines", "with authentication"],
)
def test_servers_with_other_names_answer_for_them(
    tmp_path: Path, host: str, settings: dict[str, Any]
) -> None:
    with served(tmp_path, **settings) as url:
        done(answer(url, host))


@pytest.mark.parametrize("client", [None, ("", 0)])
def test_requests_by_a_unix_socket_may_have_any_host(client: Any) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, *_: object) -> None:
        seen.append(scope)

    scope = {"type": "http", "client": client, "headers": [(b"host", b"lake")]}
    hosts = LocalHosts(app, (), lambda *_: pytest.fail("it is refused"))
    unused: Any = None
    anyio.run(hosts.__call__, scope, unused, unused)
    assert seen == [scope]


@pytest.mark.parametrize(
    ("addresses", "configured", "expected"),
    [
        (["http://127.0.0.1:2333"], None, "http://127.0.0.1:2333/ui"),
        (["unix:/run/s", "https://[::1]:2333"], None, "https://[::1]:2333/ui"),
        (["http://0.0.0.0:80"], None, "http://localhost:80/ui"),
        (["http://[::]:80"], None, "http://localhost:80/ui"),
        (["http://0.0.0.0:80"], "https://lake.example.com", "https://lake.example.com/ui"),
        (["unix:/run/s"], None, ""),
    ],
)
def test_the_page_has_an_address_that_browsers_reach(
    addresses: list[str], configured: str | None, expected: str
) -> None:
    assert page_address(addresses, configured) == expected
