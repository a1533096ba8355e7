"""TLS, passwords and tokens, against real metastores that demand them."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError, UnauthenticatedError
from server.certificates import Authority
from servers.metastores import Metastores

from lance_bridge.config import load
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.transport import ClientPool
from lance_bridge_metastore import Metastore

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#security")]

_STORE_PASSWORD = "store-password"
ADDRESS = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def ask(uri: str, properties: Mapping[str, str], *, times: int = 1) -> list[str]:
    """Connect, ask for the databases, and return the last answer."""
    given = {"uri": uri, "client.retry-timeout": "0", **properties}
    with closing(ClientPool(load(HiveConfig, "hive", given))) as pool:
        for _ in range(times):
            answer: list[str] = pool.call(
                lambda c: c.hms.get_all_databases(), name="get_all_databases", repeatable=True
            )
    return answer


# -- TLS -----------------------------------------------------------------------------------------


def key_store(authority: Authority) -> Path:
    """Return a PKCS 12 file with the certificate of a metastore."""
    certificate, key = (each.read_bytes() for each in authority.issue("metastore", names=ADDRESS))
    store = authority.path.with_name("metastore.p12")
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"metastore",
            serialization.load_pem_private_key(key, None),  # type: ignore[arg-type]  # it is EC
            x509.load_pem_x509_certificate(certificate),
            [x509.load_pem_x509_certificate(authority.path.read_bytes())],
            serialization.BestAvailableEncryption(_STORE_PASSWORD.encode()),
        )
    )
    return store


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module", params=[pytest.param("2.3", marks=pytest.mark.slow), "4.0"])
def encrypted(
    authority: Authority, metastores: Metastores, request: pytest.FixtureRequest
) -> Iterator[Metastore]:
    prefix = "hive.metastore" if request.param == "2.3" else "metastore"
    settings = {
        f"{prefix}.use.SSL": "true",
        f"{prefix}.keystore.path": str(key_store(authority)),
        f"{prefix}.keystore.password": _STORE_PASSWORD,
    }
    with closing(metastores.new(request.param, stub=False, settings=settings)) as metastore:
        yield metastore


def test_tls_is_spoken_and_checked(encrypted: Metastore, authority: Authority) -> None:
    tls = {"tls.enabled": "true", "tls.ca-file": str(authority.path)}
    assert ask(encrypted.uri, tls, times=5) == ["default"]

    stranger = Authority(authority.path.parent, "stranger")
    with pytest.raises(ServiceUnavailableError, match="certificate is not trusted"):
        ask(encrypted.uri, {**tls, "tls.ca-file": str(stranger.path)})
    with pytest.raises(ServiceUnavailableError, match="certificate is not trusted"):
        ask(encrypted.uri, {"tls.enabled": "true"})
    other_name = encrypted.uri.replace("127.0.0.1", "localhost")
    with pytest.raises(ServiceUnavailableError, match="Hostname mismatch"):
        ask(other_name, tls)
    assert ask(other_name, {"tls.enabled": "true", "tls.verify": "false"}) == ["default"]
    with pytest.raises(ServiceUnavailableError, match=r"tls\.enabled"):
        ask(encrypted.uri, {"client.timeout": "5"})


def test_an_idle_encrypted_connection_is_found_dead_after_a_restart(
    encrypted: Metastore, authority: Authority
) -> None:
    tls = {"tls.enabled": "true", "tls.ca-file": str(authority.path)}
    config = load(HiveConfig, "hive", {"uri": encrypted.uri, "client.retry-timeout": "0", **tls})
    with closing(ClientPool(config)) as pool:
        for _ in range(3):
            opened = pool.call(lambda c: c, name="look", repeatable=True)
            pool.call(lambda c: c.hms.get_all_databases(), name="x", repeatable=False)
        assert pool.call(lambda c: c, name="look", repeatable=True) is opened
        encrypted.restart()
        pool.call(lambda c: c.hms.get_all_databases(), name="x", repeatable=False)
        assert pool.call(lambda c: c, name="look", repeatable=True) is not opened


def test_tls_to_a_metastore_without_it_says_so(metastores: Metastores) -> None:
    with pytest.raises(ServiceUnavailableError, match=r"tls\.enabled"):
        ask(metastores.get("2.3").uri, {"tls.enabled": "true", "client.connect-timeout": "5"})


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def choosy(authority: Authority, request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that asks for the client's certificate, and then has nothing to say; its URI."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", names=ADDRESS))
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = request.param

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(60)
                with context.wrap_socket(client, server_side=True) as encrypted:
                    while encrypted.recv(65_536):
                        continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        yield f"thrift://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    server.join(10)


def test_a_client_certificate_is_sent_and_required(choosy: str, authority: Authority) -> None:
    cert_file, key_file = authority.issue("client")
    tls = {"tls.enabled": "true", "tls.ca-file": str(authority.path), "client.timeout": "1"}
    # With TLS 1.3 the server may be gone before its alert is read.
    with pytest.raises((UnauthenticatedError, ServiceUnavailableError), match=r"tls\.cert-file"):
        ask(choosy, tls)
    with pytest.raises(ServiceUnavailableError, match="no complete reply within 1 s"):
        ask(choosy, {**tls, "tls.cert-file": str(cert_file), "tls.key-file": str(key_file)})


def test_an_encrypted_key_is_refused_and_not_asked_for_on_the_terminal(
    authority: Authority,
) -> None:
    cert_file, key_file = authority.issue("client", password="hunter2")
    with pytest.raises(InvalidInputError, match=r"tls\.key-file.*unencrypted"):
        ask(
            "thrift://127.0.0.1:1",
            {
                "tls.enabled": "true",
                "tls.cert-file": str(cert_file),
                "tls.key-file": str(key_file),
            },
        )


# -- SASL PLAIN ----------------------------------------------------------------------------------


@pytest.mark.spec(
    "common.md#errors-of-every-operation",
    "docs/how-to/hive.md#what-was-run",
    "hive.md#errors-of-every-operation",
)
def test_a_password_is_checked_by_the_metastore(metastores: Metastores) -> None:
    settings = {
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": "alice",
        "metastore.authentication.config.password": "wonderland",
        "metastore.execute.setugi": "false",
    }
    plain = {"auth.mechanism": "plain", "auth.username": "alice"}
    with closing(metastores.new("4.0", stub=False, settings=settings)) as metastore:
        right = {**plain, "auth.password": "wonderland"}
        assert ask(metastore.uri, right, times=3) == ["default"]
        with pytest.raises(UnauthenticatedError, match="PLAIN was refused") as caught:
            ask(metastore.uri, {**plain, "auth.password": "hunter2"})
        assert "hunter2" not in str(caught.value)
        with pytest.raises(ServiceUnavailableError, match=r"auth\.mechanism"):
            ask(metastore.uri, {"client.timeout": "5"})


# -- HTTP ----------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenIssuer:
    """Signs tokens, and publishes the key that checks them as a file."""

    def __init__(self, directory: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.keys_file = directory / "jwks.json"
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": "k1",
            "alg": "RS256",
            "use": "sig",
            "n": _text(numbers.n.to_bytes(256, "big")),
            "e": _text(numbers.e.to_bytes(3, "big")),
        }
        self.keys_file.write_text(json.dumps({"keys": [key]}))

    def token(self, **claims: Any) -> str:
        head = {"alg": "RS256", "kid": "k1", "typ": "JWT"}
        body = {"sub": "alice", "exp": int(time.time()) + 3600, **claims}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, body))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"


@pytest.mark.spec(
    "common.md#errors-of-every-operation",
    "docs/how-to/hive.md#what-was-run",
    "hive.md#errors-of-every-operation",
)
def test_a_bearer_token_is_checked_by_the_metastore(metastores: Metastores, tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    settings = {
        "metastore.server.thrift.transport.mode": "http",
        "metastore.authentication": "JWT",
        "metastore.authentication.jwt.jwks.url": issuer.keys_file.as_uri(),
    }
    with closing(metastores.new("4.0", stub=False, settings=settings)) as metastore:
        uri = metastore.uri.replace("thrift://", "http://")
        assert ask(uri, {"http.token": issuer.token()}, times=3) == ["default"]
        stale = issuer.token(exp=int(time.time()) - 3600)
        refusals: list[dict[str, str]] = [{}, {"http.token": "hunter2"}, {"http.token": stale}]
        for refused in refusals:
            with pytest.raises(UnauthenticatedError, match=r"401.*check http\.token") as caught:
                ask(uri, refused)
            assert refused.get("http.token", "hunter2") not in str(caught.value)


def test_http_without_a_token_names_the_user(metastores: Metastores) -> None:
    settings = {"metastore.server.thrift.transport.mode": "http"}
    with closing(metastores.new("4.1", stub=False, settings=settings)) as metastore:
        uri = metastore.uri.replace("thrift://", "http://")
        assert ask(uri, {}, times=3) == ["default"]
        assert ask(uri, {"ugi": "alice"}) == ["default"]
        with pytest.raises(ServiceUnavailableError, match="check the path in uri"):
            ask(f"{uri}/elsewhere", {})
        with pytest.raises(ServiceUnavailableError, match="speaks HTTP, not Thrift"):
            ask(metastore.uri, {})
