"""API keys, several methods at once, anonymous requests, trusted proxies, and certificates."""

from __future__ import annotations

import os
import ssl
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli.program import answer_of, run
from cryptography import x509
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, UnauthenticatedError

from lance_bridge_server.access.authentication import ApiKeyFile
from lance_bridge_server.config import SettingsSource, TlsSettings
from lance_bridge_server.run import listening
from lance_bridge_server.run.listening import tls_context
from lance_bridge_server.run.server import gateway_from_source

from .authenticated import AUDIENCE, LIST, Served, children, identity_provider, serve_settings
from .certificates import Authority, loopback, tls_client
from .gateways import dial, head

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "cli.md#keys",
        "server.md#a-trusted-proxy",
        "server.md#api-keys",
        "server.md#authentication",
        "server.md#client-certificates",
        "server.md#keys-of-the-configuration",
    ),
]

SAN = [
    x509.DNSName("ann.example.com"),
    x509.UniformResourceIdentifier("spiffe://lake/ann"),
    x509.RFC822Name("ann@example.com"),
]


# -- API keys --------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path, keys: ApiKeyFile) -> Iterator[Served]:
    keys.add("first")
    methods = [{"method": "api_keys", "file": str(keys.path)}]
    with serve_settings(tmp_path / "lake", authentication=methods) as found:
        yield found


def status(url: str, **headers: str) -> tuple[int, int | None]:
    """Return the status of an answer, and the code in it if it is an error."""
    answer = httpx.get(f"{url}{LIST}", headers={k.replace("_", "-"): v for k, v in headers.items()})
    content = answer.json()
    if answer.status_code == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
    return answer.status_code, content.get("code")


def test_the_command_makes_a_key_that_works_in_both_headers(
    served: Served, keys: ApiKeyFile
) -> None:
    made = answer_of("keys", "add", "ann", "-f", str(keys.path), "-g", "x", "-g", "y")
    assert children(served.url, **{"header.x-api-key": made["key"]}) == []
    assert children(served.url, **{"header.Authorization": f"Bearer {made['key']}"}) == []
    assert (served.last.name, set(served.last.groups)) == ("ann", {"x", "y"})
    assert served.last.method == "api_key"


def test_a_wrong_key_is_refused(served: Served, keys: ApiKeyFile) -> None:
    key, _ = keys.add("ann")
    other, _ = keys.add("bob")
    mixed = f"{key[:21]}{other[21:]}"
    for wrong in (mixed, key[:-1], f"{key}x", "lbk_", "lbk_x_y", "none"):
        assert status(served.url, x_api_key=wrong) == (401, 16), wrong
        assert status(served.url, Authorization=f"Bearer {wrong}") == (401, 16), wrong
    with pytest.raises(UnauthenticatedError, match="unknown, expired or revoked"):
        children(served.url, **{"header.x-api-key": mixed})


@pytest.mark.spec("server.md#authentication")
@pytest.mark.parametrize("headers", [{}, {"x_api_key": ""}, {"Authorization": "Basic YTpi"}])
def test_a_request_without_a_key_is_refused(served: Served, headers: dict[str, str]) -> None:
    assert status(served.url, **headers) == (401, 16)


def test_a_key_is_revoked_while_the_server_runs(served: Served, keys: ApiKeyFile) -> None:
    key, entry = keys.add("ann")
    assert status(served.url, x_api_key=key) == (200, None)
    run("keys", "revoke", entry.id, "--file", str(keys.path))
    assert status(served.url, x_api_key=key) == (401, 16)


def test_a_key_expires(served: Served, keys: ApiKeyFile) -> None:
    valid, entry = keys.add("ann", lifetime=timedelta(hours=1))
    expired, _ = keys.add("ann", lifetime=timedelta(seconds=-1))
    assert status(served.url, x_api_key=valid) == (200, None)
    assert status(served.url, x_api_key=expired) == (401, 16)
    assert entry.expires is not None
    assert entry.expires - entry.created == timedelta(hours=1)
    assert entry.model_copy(update={"expires": entry.created}).state() == "expired"


def test_an_unreadable_file_is_a_server_that_is_unavailable(
    served: Served, keys: ApiKeyFile
) -> None:
    key, _ = keys.add("ann")
    keys.path.write_text("{")
    answer = httpx.get(f"{served.url}{LIST}", headers={"x-api-key": key})
    assert (answer.status_code, answer.json()["code"]) == (503, 17)
    assert str(keys.path) not in answer.text
    keys.path.unlink()
    assert status(served.url, x_api_key=key) == (503, 17)


@pytest.mark.spec("server.md#authentication")
def test_only_the_owner_can_read_the_file_and_it_has_no_key(keys: ApiKeyFile) -> None:
    key, entry = keys.add("ann")
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    secret = key.split("_", 2)[2]
    assert secret not in keys.path.read_text()
    assert entry.hash not in repr(entry)
    assert entry.salt not in repr(entry)
    assert keys.find(key) == entry


def test_a_change_keeps_the_owner_and_the_mode(keys: ApiKeyFile) -> None:
    _, entry = keys.add("ann")
    owner = 12345 if os.geteuid() == 0 else os.geteuid()  # only root can give files away
    os.chown(keys.path, owner, -1)
    keys.path.chmod(0o640)
    keys.revoke(entry.id)
    found = keys.path.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (owner, 0o640)
    assert keys.entries()[entry.id].revoked is not None


def test_a_change_that_fails_leaves_no_file(
    keys: ApiKeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, entry = keys.add("ann")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InvalidInputError, match="cannot be changed: No space left"):
        keys.revoke(entry.id)
    assert list(keys.path.parent.iterdir()) == [keys.path]


def test_a_file_that_others_can_write_is_refused(keys: ApiKeyFile) -> None:
    key, _ = keys.add("ann")
    for mode in (0o620, 0o602):
        keys.path.chmod(mode)
        with pytest.raises(InvalidInputError, match="can be written by others: chmod 600"):
            ApiKeyFile(keys.path).find(key)
    keys.path.chmod(0o440)
    assert ApiKeyFile(keys.path).find(key) is not None


def test_keys_that_are_added_at_the_same_time_are_all_kept(keys: ApiKeyFile) -> None:
    def add(number: int) -> str:
        return ApiKeyFile(keys.path).add(f"user{number}")[0]

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(add, range(32)))
    assert [keys.find(key) is not None for key in added] == [True] * 32


def test_the_list_has_the_state_of_each_key(keys: ApiKeyFile) -> None:
    keys.add("ann", ["x", "y"])
    keys.add("bob", lifetime=timedelta(seconds=-1))
    _, entry = keys.add("eve")
    keys.revoke(entry.id)
    rows = answer_of("keys", "list", "--file", str(keys.path))
    assert [(row["name"], row["groups"], row["state"]) for row in rows] == [
        ("ann", "x,y", "valid"),
        ("bob", "", "expired"),
        ("eve", "", "revoked"),
    ]
    assert all("hash" not in row and "salt" not in row for row in rows)


def test_names_and_identifiers_are_checked(keys: ApiKeyFile) -> None:
    for name in ("", "a b", "a\nb", "a,b", "x" * 201):
        with pytest.raises(InvalidInputError, match="is not a valid name"):
            keys.add(name)
        with pytest.raises(InvalidInputError, match="is not a valid name"):
            keys.add("ann", [name])
    assert not keys.path.exists()
    done = run("keys", "revoke", "0123", "--file", str(keys.path), code=1)
    assert "has no key with the identifier '0123'" in done.output
    done = run("keys", "add", "ann", "--expires", "soon", "--file", str(keys.path), code=2)
    assert "--expires must be a number and a unit" in done.output


# -- trusted proxies, and several methods ----------------------------------------------------------


LOCAL, OTHER = "127.0.0.0/8", "10.0.0.0/8"


def proxy(*networks: str, **options: Any) -> dict[str, Any]:
    return {"method": "proxy", "networks": list(networks), **options}


def ask(served: Served, *headers: tuple[str, str]) -> tuple[int, str]:
    """Return the status, and the name of the principal or the text of the error."""
    answer = httpx.get(f"{served.url}{LIST}", headers=list(headers))
    if answer.status_code != 200:
        assert answer.json()["code"] == 16
        return answer.status_code, answer.json()["error"]
    return 200, served.last.name


def test_a_proxy_names_the_user_and_the_groups(tmp_path: Path) -> None:
    method = proxy(LOCAL, groups_header="x-forwarded-groups")
    with serve_settings(tmp_path, authentication=[method]) as served:
        user, groups = ("X-Forwarded-User", "ann"), ("X-Forwarded-Groups", "x, y,,")
        assert ask(served, user, groups) == (200, "ann")
        assert served.last.groups == {"x", "y"}
        assert served.last.method == "proxy"
        assert ask(served)[0] == 401
        assert "several times" in ask(served, user, ("x-forwarded-user", "root"))[1]
        assert "several times" in ask(served, user, groups, groups)[1]
        for wrong in ("", "a" * 300, "a\tb"):
            assert ask(served, ("x-forwarded-user", wrong))[0] == 401


@pytest.mark.spec("server.md#keys-of-the-configuration")
def test_the_header_means_nothing_from_other_addresses(tmp_path: Path) -> None:
    with serve_settings(tmp_path, authentication=[proxy(OTHER, "unix")]) as served:
        user = ("x-forwarded-user", "ann")
        assert ask(served, user)[0] == 401
        # What a client says of its own address does not make it a proxy.
        for header in ("x-forwarded-for", "x-real-ip", "forwarded"):
            assert ask(served, user, (header, "10.0.0.1"))[0] == 401
    settings: dict[str, Any] = {"authentication": [proxy(OTHER)], "allow_anonymous": True}
    with serve_settings(tmp_path, **settings) as served:
        assert ask(served, user) == (200, "anonymous")


@pytest.mark.spec("server.md#requests")
def test_trailers_are_no_headers(tmp_path: Path) -> None:
    """A proxy that removes a client's own headers may pass on its trailers."""
    method = proxy(LOCAL, groups_header="x-forwarded-groups")
    trailers = b"X-Forwarded-User: root\r\nX-Forwarded-Groups: admins\r\n"

    def send(served: Served, *headers: str) -> bytes:
        chunked = ("Transfer-Encoding: chunked", "Connection: close", *headers)
        with dial(served.url) as connection:
            connection.sendall(head(LIST, *chunked, method="GET") + b"0\r\n" + trailers + b"\r\n")
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))[:12]

    with serve_settings(tmp_path, authentication=[method]) as served:
        assert send(served) == b"HTTP/1.1 401"
        assert send(served, "X-Forwarded-User: ann") == b"HTTP/1.1 200"
        assert (served.last.name, served.last.groups) == ("ann", frozenset())


def test_a_header_of_another_name_is_configured_and_none_names_groups(tmp_path: Path) -> None:
    method = proxy(LOCAL, header="remote-user")
    with serve_settings(tmp_path, authentication=[method]) as served:
        groups = ("x-forwarded-groups", "admins")
        assert ask(served, ("remote-user", "ann"), groups) == (200, "ann")
        assert served.last.groups == frozenset()
        assert ask(served, ("x-forwarded-user", "ann"))[0] == 401


def test_a_proxy_reaches_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listeners = [{"socket": str(path), "mode": "0660"}]
    with serve_settings(tmp_path, authentication=[proxy("unix")], listeners=listeners) as served:
        assert served.url == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o660
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, headers={"x-forwarded-user": "ann"}) as client:
            assert client.get(f"http://local{LIST}").status_code == 200
        assert served.last.name == "ann"


def test_all_methods_at_once(tmp_path: Path, keys: ApiKeyFile) -> None:
    key, _ = keys.add("of-the-key")
    authority = Authority(tmp_path)
    certificate, private = authority.issue("server", names=loopback())
    tls = {"certificate": certificate, "key": private, "client_ca": authority.path}
    with identity_provider("okta") as provider:
        methods = [
            {"method": "client_certificates"},
            {"method": "api_keys", "file": str(keys.path)},
            {"method": "oidc", "issuer": provider.issuer, "audiences": [AUDIENCE]},
            proxy(LOCAL),
        ]
        bearer = {"authorization": f"Bearer {provider.token(sub='of-the-token')}"}
        with serve_settings(tmp_path / "lake", tls=tls, authentication=methods) as served:
            pair = authority.issue("of-the-certificate")
            cases: list[tuple[dict[str, str], Any, str]] = [
                ({}, pair, "of-the-certificate"),
                ({"x-api-key": key}, None, "of-the-key"),
                (bearer, None, "of-the-token"),
                ({"x-forwarded-user": "of-the-proxy"}, None, "of-the-proxy"),
                ({"x-api-key": key, **bearer}, pair, "of-the-certificate"),
                ({"x-api-key": key, **bearer}, None, "of-the-key"),
                ({"x-api-key": key, "authorization": f"Bearer {key}"}, None, "of-the-key"),
                ({**bearer, "x-forwarded-user": "x"}, None, "of-the-token"),
            ]
            for headers, cert, name in cases:
                with tls_client(authority, cert) as client:
                    answer = client.get(f"{served.url}{LIST}", headers=headers)
                assert (answer.status_code, served.last.name) == (200, name)
            wrong = [
                ({"x-api-key": key[:-1]}, pair),
                ({"x-api-key": "none"}, pair),
                ({"x-api-key": key, "authorization": "Bearer x"}, None),
                ({"x-api-key": key, "authorization": f"{bearer['authorization']}x"}, None),
                ({**bearer, "x-forwarded-user": ""}, None),
            ]
            for headers, cert in wrong:
                with tls_client(authority, cert) as client:
                    answer = client.get(f"{served.url}{LIST}", headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (401, 16), headers


def test_a_wrong_credential_is_refused_where_none_is_needed(
    tmp_path: Path, keys: ApiKeyFile
) -> None:
    key, _ = keys.add("ann")
    methods = [{"method": "api_keys", "file": str(keys.path)}]
    settings: dict[str, Any] = {"authentication": methods, "allow_anonymous": True}
    with serve_settings(tmp_path / "lake", **settings) as served:
        assert ask(served) == (200, "anonymous")
        assert ask(served, ("x-api-key", key)) == (200, "ann")
        for wrong in (key[:-1], "none", "a.b.c"):
            assert ask(served, ("x-api-key", wrong))[0] == 401
            assert ask(served, ("authorization", f"Bearer {wrong}"))[0] == 401


def test_a_server_that_reads_no_keys_takes_the_one_that_lancedb_must_send(tmp_path: Path) -> None:
    with serve_settings(tmp_path) as served:
        assert ask(served, ("x-api-key", "none")) == (200, "anonymous")
    with serve_settings(tmp_path, authentication=[proxy(LOCAL)]) as served:
        headers = ("x-api-key", "none"), ("x-forwarded-user", "ann")
        assert ask(served, *headers) == (200, "ann")
        assert ask(served, headers[0])[0] == 401


# -- TLS and certificates of clients ---------------------------------------------------------------


@dataclass
class Setup:
    authority: Authority
    tls: dict[str, Any]
    directory: Path


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    directory = tmp_path_factory.mktemp("pki")
    authority = Authority(directory)
    certificate, key = authority.issue("server", names=loopback())
    tls = {"certificate": certificate, "key": key, "client_ca": authority.path}
    return Setup(authority, tls, directory)


@pytest.fixture(scope="module")
def served_over_tls(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    method = {"method": "client_certificates", "groups": "organizational_unit"}
    directory = tmp_path_factory.mktemp("lake")
    with serve_settings(directory, tls=setup.tls, authentication=[method]) as found:
        yield found


def ask_over_tls(
    setup: Setup, served_over_tls: Served, pair: tuple[Path, Path] | None
) -> httpx.Response:
    """Send one request. The connection is closed: a server that stops would wait for it."""
    with tls_client(setup.authority, pair) as client:
        return client.get(f"{served_over_tls.url}{LIST}")


def test_pylance_is_known_by_its_certificate(setup: Setup, served_over_tls: Served) -> None:
    certificate, key = setup.authority.issue("ann", units=["x", "y"])
    properties = {
        "tls.cert_file": str(certificate),
        "tls.key_file": str(key),
        "tls.ssl_ca_cert": str(setup.authority.path),
    }
    assert served_over_tls.url.startswith("https://127.0.0.1:")
    assert children(served_over_tls.url, **properties) == []
    assert (served_over_tls.last.name, set(served_over_tls.last.groups)) == ("ann", {"x", "y"})
    assert served_over_tls.last.method == "certificate"


def test_each_connection_has_its_own_certificate(setup: Setup, served_over_tls: Served) -> None:
    ann, bob = (tls_client(setup.authority, setup.authority.issue(name)) for name in ("ann", "bob"))
    with ann, bob:
        for client, name in ((ann, "ann"), (bob, "bob"), (ann, "ann"), (bob, "bob")):
            assert client.get(f"{served_over_tls.url}{LIST}").status_code == 200
            assert served_over_tls.last.name == name
    answer = ask_over_tls(setup, served_over_tls, None)
    assert (answer.status_code, answer.json()["code"]) == (401, 16)


def test_certificates_of_other_authorities_and_expired_ones_are_refused(
    setup: Setup, served_over_tls: Served
) -> None:
    before = len(served_over_tls.seen.principals)
    stranger = Authority(setup.directory, "stranger").issue("ann")
    expired = setup.authority.issue("ann", expires=timedelta(days=-1))
    for pair in (stranger, expired):
        with pytest.raises(httpx.TransportError):
            ask_over_tls(setup, served_over_tls, pair)
    assert len(served_over_tls.seen.principals) == before


@pytest.mark.parametrize(
    ("field", "name"),
    [("dns", "ann.example.com"), ("uri", "spiffe://lake/ann"), ("email", "ann@example.com")],
)
def test_the_name_is_taken_from_the_configured_field(
    setup: Setup, tmp_path: Path, field: str, name: str
) -> None:
    method = {"method": "client_certificates", "name": field}
    with serve_settings(tmp_path, tls=setup.tls, authentication=[method]) as served:
        pair = setup.authority.issue("ann", names=SAN, units=["x"])
        assert ask_over_tls(setup, served, pair).status_code == 200
        assert (served.last.name, set(served.last.groups)) == (name, set())
        answer = ask_over_tls(setup, served, setup.authority.issue("ann"))
        assert (answer.status_code, answer.json()["code"]) == (401, 16)
        assert f"has no {field}" in answer.json()["error"]


def test_tls_can_require_a_certificate(setup: Setup, tmp_path: Path) -> None:
    tls = {**setup.tls, "client_certificates": "required"}
    with serve_settings(tmp_path, tls=tls, allow_anonymous=True) as served:
        pair = setup.authority.issue("ann")
        assert ask_over_tls(setup, served, pair).status_code == 200
        with pytest.raises(httpx.TransportError):
            ask_over_tls(setup, served, None)


def test_old_versions_of_tls_are_refused(setup: Setup, served_over_tls: Served) -> None:
    context = ssl.create_default_context(cafile=setup.authority.path)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{served_over_tls.url}{LIST}", verify=context)


@pytest.mark.spec("server.md#request-limits")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_that_does_not_end_is_given_up(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(listening, "REQUEST_SECONDS", 0.5)
    with (
        serve_settings(tmp_path, tls=setup.tls) as served,
        dial(served.url) as connection,
    ):
        connection.sendall(sent)
        assert connection.recv(1) == b""


@pytest.mark.spec("server.md#request-limits")
def test_a_handshake_takes_from_the_time_for_a_request(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 3.0
    monkeypatch.setattr(listening, "CHECK_SECONDS", 0.05)
    context = ssl.create_default_context(cafile=setup.authority.path)
    with serve_settings(tmp_path, tls=setup.tls) as served, dial(served.url) as plain:
        time.sleep(seconds)  # the client begins its handshake late
        monkeypatch.setattr(listening, "REQUEST_SECONDS", seconds)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            started = time.monotonic()
            assert connection.recv(12) == b"HTTP/1.1 408"
    assert time.monotonic() - started < seconds


def test_a_password_is_read_from_its_file(setup: Setup, tmp_path: Path) -> None:
    certificate, key = setup.authority.issue("server", names=loopback(), password="open-sesame")
    file = tmp_path / "password"
    file.write_text("open-sesame\n")
    given: dict[str, Any] = {"certificate": certificate, "key": key}
    assert tls_context(TlsSettings(**given, key_password_file=file)) is not None
    file.write_text("other\n")
    for wrong in ({"key_password_file": file}, {}):
        with pytest.raises(LanceNamespaceError, match=r"tls\.certificate and tls\.key cannot") as e:
            tls_context(TlsSettings.model_validate({**given, **wrong}))
        assert "open-sesame" not in str(e.value)


@pytest.mark.parametrize("key", ["certificate", "key", "client_ca", "key_password_file"])
def test_a_file_that_cannot_be_read_is_named_by_its_key(setup: Setup, key: str) -> None:
    settings = TlsSettings.model_validate({**setup.tls, key: "/nothing.pem"})
    with pytest.raises(LanceNamespaceError, match=rf"tls\.(.* )?.*{key}.* cannot be used: No such"):
        tls_context(settings)


def test_a_key_of_another_certificate_is_refused(setup: Setup) -> None:
    _, other = setup.authority.issue("other")
    settings = TlsSettings.model_validate({**setup.tls, "key": other})
    with pytest.raises(LanceNamespaceError, match="KEY_VALUES_MISMATCH"):
        tls_context(settings)


@pytest.mark.spec("server.md#stop-and-reload")
def test_renewed_files_are_used_from_the_next_connection_on(setup: Setup, tmp_path: Path) -> None:
    others = Authority(tmp_path, "others")
    ann, bob = setup.authority.issue("ann"), others.issue("bob")
    tls = {key: tmp_path / f"server.{key}" for key in ("certificate", "key", "client_ca")}

    def install(authority: Authority) -> str:
        pair = setup.authority.issue("server", names=loopback())
        for file, content in zip(tls.values(), (*pair, authority.path), strict=True):
            file.write_bytes(content.read_bytes())
        return pair[0].read_text()

    def is_known(served_over_tls: Served, pair: tuple[Path, Path]) -> bool:
        try:
            return ask_over_tls(setup, served_over_tls, pair).status_code == 200
        except httpx.TransportError:
            return False

    first = install(setup.authority)
    method = {"method": "client_certificates"}
    with serve_settings(tmp_path, tls=tls, authentication=[method]) as found:
        host, _, port = found.url.removeprefix("https://").partition(":")
        files = {"impl": "dir", "root": str(tmp_path)}
        source = SettingsSource(overrides={"catalogs": {"files": files}, "tls": tls})
        assert ssl.get_server_certificate((host, int(port))) == first
        assert (is_known(found, ann), is_known(found, bob)) == (True, False)
        second = install(others)
        gateway_from_source(source, found.tls).close()
        assert ssl.get_server_certificate((host, int(port))) == second
        assert (is_known(found, ann), is_known(found, bob)) == (False, True)
        tls["key"].write_bytes(ann[1].read_bytes())
        with pytest.raises(LanceNamespaceError, match=r"tls\.certificate and tls\.key cannot be"):
            gateway_from_source(source, found.tls)
        assert ssl.get_server_certificate((host, int(port))) == second
        assert is_known(found, bob)
