"""TLS, and principals by the certificates of clients."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from lance_namespace.errors import LanceNamespaceError
from server.http_requests import dial

from lance_bridge_server.configuration.settings import TlsSettings
from lance_bridge_server.configuration.source import SettingsSource
from lance_bridge_server.process import listening
from lance_bridge_server.process.factory import gateway_from_source
from lance_bridge_server.process.listeners import tls_context

from .authenticated import LIST, Served, children, serving_settings
from .certificates import Authority, loopback, tls_client

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("server.md#client-certificates", "server.md#keys-of-the-configuration"),
]

SAN = [
    x509.DNSName("ann.example.com"),
    x509.UniformResourceIdentifier("spiffe://lake/ann"),
    x509.RFC822Name("ann@example.com"),
]


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
def served(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    method = {"method": "client_certificates", "groups": "organizational_unit"}
    directory = tmp_path_factory.mktemp("lake")
    with serving_settings(directory, tls=setup.tls, authentication=[method]) as found:
        yield found


def ask(setup: Setup, served: Served, pair: tuple[Path, Path] | None) -> httpx.Response:
    """Send one request. The connection is closed: a server that stops would wait for it."""
    with tls_client(setup.authority, pair) as client:
        return client.get(f"{served.url}{LIST}")


def test_pylance_is_known_by_its_certificate(setup: Setup, served: Served) -> None:
    certificate, key = setup.authority.issue("ann", units=["x", "y"])
    properties = {
        "tls.cert_file": str(certificate),
        "tls.key_file": str(key),
        "tls.ssl_ca_cert": str(setup.authority.path),
    }
    assert served.url.startswith("https://127.0.0.1:")
    assert children(served.url, **properties) == []
    assert (served.last.name, set(served.last.groups)) == ("ann", {"x", "y"})
    assert served.last.method == "certificate"


def test_each_connection_has_its_own_certificate(setup: Setup, served: Served) -> None:
    ann, bob = (tls_client(setup.authority, setup.authority.issue(name)) for name in ("ann", "bob"))
    with ann, bob:
        for client, name in ((ann, "ann"), (bob, "bob"), (ann, "ann"), (bob, "bob")):
            assert client.get(f"{served.url}{LIST}").status_code == 200
            assert served.last.name == name
    answer = ask(setup, served, None)
    assert (answer.status_code, answer.json()["code"]) == (401, 16)


def test_certificates_of_other_authorities_and_expired_ones_are_refused(
    setup: Setup, served: Served
) -> None:
    before = len(served.seen.principals)
    stranger = Authority(setup.directory, "stranger").issue("ann")
    expired = setup.authority.issue("ann", expires=timedelta(days=-1))
    for pair in (stranger, expired):
        with pytest.raises(httpx.TransportError):
            ask(setup, served, pair)
    assert len(served.seen.principals) == before


@pytest.mark.parametrize(
    ("field", "name"),
    [("dns", "ann.example.com"), ("uri", "spiffe://lake/ann"), ("email", "ann@example.com")],
)
def test_the_name_is_taken_from_the_configured_field(
    setup: Setup, tmp_path: Path, field: str, name: str
) -> None:
    method = {"method": "client_certificates", "name": field}
    with serving_settings(tmp_path, tls=setup.tls, authentication=[method]) as served:
        pair = setup.authority.issue("ann", names=SAN, units=["x"])
        assert ask(setup, served, pair).status_code == 200
        assert (served.last.name, set(served.last.groups)) == (name, set())
        answer = ask(setup, served, setup.authority.issue("ann"))
        assert (answer.status_code, answer.json()["code"]) == (401, 16)
        assert f"has no {field}" in answer.json()["error"]


def test_tls_can_require_a_certificate(setup: Setup, tmp_path: Path) -> None:
    tls = {**setup.tls, "client_certificates": "required"}
    with serving_settings(tmp_path, tls=tls, allow_anonymous=True) as served:
        pair = setup.authority.issue("ann")
        assert ask(setup, served, pair).status_code == 200
        with pytest.raises(httpx.TransportError):
            ask(setup, served, None)


def test_old_versions_of_tls_are_refused(setup: Setup, served: Served) -> None:
    context = ssl.create_default_context(cafile=setup.authority.path)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{served.url}{LIST}", verify=context)


@pytest.mark.spec("server.md#request-limits")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_that_does_not_end_is_given_up(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(listening, "REQUEST_SECONDS", 0.5)
    with (
        serving_settings(tmp_path, tls=setup.tls) as served,
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
    with serving_settings(tmp_path, tls=setup.tls) as served, dial(served.url) as plain:
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

    def is_known(served: Served, pair: tuple[Path, Path]) -> bool:
        try:
            return ask(setup, served, pair).status_code == 200
        except httpx.TransportError:
            return False

    first = install(setup.authority)
    method = {"method": "client_certificates"}
    with serving_settings(tmp_path, tls=tls, authentication=[method]) as found:
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
