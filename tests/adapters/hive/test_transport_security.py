"""TLS, passwords, tokens and Kerberos tickets, against real metastores that demand them."""

from __future__ import annotations

import base64
import importlib.util
import ipaddress
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from joserfc import jwt
from joserfc.jwk import RSAKey
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError, UnauthenticatedError
from server.certificates import Authority
from servers.metastores import Metastores
from servers.processes import free_port
from servers.replies import ScriptedServer

from lance_bridge.config import load
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import race
from lance_bridge_hive import HiveNamespace, sockets
from lance_bridge_hive.client import ClientPool
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.sockets import DeadlineSocket
from lance_bridge_metastore import Metastore

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("hive.md#security", "common.md#secrets-that-change", "hive.md#connections"),
]

_STORE_PASSWORD = "store-password"
ADDRESS = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
ALICE = {"auth.mechanism": "plain", "auth.username": "alice"}
THREADS = 10


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

    def serve(client: socket.socket) -> None:
        client.settimeout(60)
        with context.wrap_socket(client, server_side=True) as encrypted:
            while encrypted.recv(65_536):
                continue

    with closing(ScriptedServer(serve)) as server:
        yield server.uri


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


@contextmanager
def password_metastore(metastores: Metastores) -> Iterator[str]:
    """Run a metastore where Alice has the password ``wonderland``, and yield its URI."""
    settings = {
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": "alice",
        "metastore.authentication.config.password": "wonderland",
        "metastore.execute.setugi": "false",
    }
    with closing(metastores.new("4.0", stub=False, settings=settings)) as metastore:
        yield metastore.uri


@pytest.mark.spec(
    "common.md#errors-of-every-operation",
    "docs/how-to/hive.md#what-was-run",
    "hive.md#errors-of-every-operation",
)
def test_a_password_is_checked_by_the_metastore(metastores: Metastores) -> None:
    with password_metastore(metastores) as uri:
        right = {**ALICE, "auth.password": "wonderland"}
        assert ask(uri, right, times=3) == ["default"]
        with pytest.raises(UnauthenticatedError, match="PLAIN was refused") as caught:
            ask(uri, {**ALICE, "auth.password": "hunter2"})
        assert "hunter2" not in str(caught.value)
        with pytest.raises(ServiceUnavailableError, match=r"auth\.mechanism"):
            ask(uri, {"client.timeout": "5"})


# -- HTTP ----------------------------------------------------------------------------------------


@contextmanager
def token_metastore(
    metastores: Metastores, directory: Path
) -> Iterator[tuple[str, Callable[[int], str]]]:
    """Run a metastore that checks tokens of requests.

    Yields:
        Its URI, and what makes a token that ends in so many seconds.
    """
    key = RSAKey.generate_key(2048, {"kid": "k1", "alg": "RS256", "use": "sig"})
    keys_file = directory / "jwks.json"
    keys_file.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))

    def token(seconds: int) -> str:
        claims = {"sub": "alice", "exp": int(time.time()) + seconds}
        return str(jwt.encode({"alg": "RS256", "kid": "k1"}, claims, key))

    settings = {
        "metastore.server.thrift.transport.mode": "http",
        "metastore.authentication": "JWT",
        "metastore.authentication.jwt.jwks.url": keys_file.as_uri(),
    }
    with closing(metastores.new("4.0", stub=False, settings=settings)) as metastore:
        yield metastore.uri.replace("thrift://", "http://"), token


@pytest.mark.spec(
    "common.md#errors-of-every-operation",
    "docs/how-to/hive.md#what-was-run",
    "hive.md#errors-of-every-operation",
)
def test_a_bearer_token_is_checked_by_the_metastore(metastores: Metastores, tmp_path: Path) -> None:
    with token_metastore(metastores, tmp_path) as (uri, token):
        assert ask(uri, {"http.token": token(3600)}, times=3) == ["default"]
        refusals = [{}, {"http.token": "hunter2"}, {"http.token": token(-3600)}]
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


# -- Kerberos -------------------------------------------------------------------------------------


_REQUIRED = "LANCE_BRIDGE_TEST_KERBEROS"
_REALM = "LANCE.TEST"
_SERVICE = f"hive/localhost@{_REALM}"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_SECONDS = 20


def _require_kerberos() -> None:
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if importlib.util.find_spec("gssapi") is None:
        missing.append("the Python package gssapi")
    if missing:
        reason = f"Kerberos tests need {', '.join(missing)}"
        if os.environ.get(_REQUIRED) == "1":
            pytest.fail(f"{reason}, and {_REQUIRED}=1 says that they must run")
        pytest.skip(f"{reason} (Debian: krb5-kdc krb5-admin-server krb5-user libkrb5-dev)")


class Kdc:
    """A key distribution centre of one test, with one service and one user."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keytab = directory / "hive.keytab"
        self.tickets = directory / "tickets"
        self._port = free_port()
        self.config = directory / "krb5.conf"
        self.environment = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.tickets}",
        }
        self._write_configuration()
        self._run("kdb5_util", "create", "-s", "-r", _REALM, "-P", "master")
        self._admin(f"addprinc -randkey {_SERVICE}")
        self._admin(f"ktadd -k {self.keytab} {_SERVICE}")
        self._admin("addprinc -pw secret alice")
        self._process = subprocess.Popen(["krb5kdc", "-n"], env=self.environment)

    def log_in(self) -> None:
        """Get a ticket for alice; waits for the centre to answer."""
        deadline = time.monotonic() + _SECONDS
        while True:
            done = subprocess.run(
                ["kinit", "alice"],
                env=self.environment,
                input="secret\n",
                text=True,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.1)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(_SECONDS)

    def _write_configuration(self) -> None:
        self.config.write_text(
            f"""[libdefaults]
default_realm = {_REALM}
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{_REALM} = {{
  kdc = 127.0.0.1:{self._port}
}}
"""
        )
        (self.directory / "kdc.conf").write_text(
            f"""[kdcdefaults]
kdc_listen = 127.0.0.1:{self._port}
kdc_tcp_listen = 127.0.0.1:{self._port}
[realms]
{_REALM} = {{
  database_name = {self.directory}/principal
  key_stash_file = {self.directory}/stash
  acl_file = {self.directory}/acl
}}
"""
        )

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", _REALM, "-q", query)

    def _run(self, *command: str) -> None:
        subprocess.run(
            command, env=self.environment, check=True, capture_output=True, timeout=_SECONDS
        )


@pytest.fixture
def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kdc]:
    _require_kerberos()
    centre = Kdc(tmp_path)
    try:
        monkeypatch.setenv("KRB5_CONFIG", str(centre.config))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{centre.tickets}")
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={centre.config}")
        yield centre
    finally:
        centre.close()


@pytest.fixture(
    params=[
        pytest.param("authentication", marks=pytest.mark.slow),
        pytest.param("integrity", marks=pytest.mark.slow),
        "privacy",
    ]
)
def kerberized(kdc: Kdc, request: pytest.FixtureRequest) -> Iterator[Metastore]:
    """A metastore that takes tickets, for each thing that SASL can do to messages."""
    with kerberized_metastore(kdc, request.param) as running:
        yield running


@pytest.fixture
def giving_tokens(kdc: Kdc) -> Iterator[Metastore]:
    """A metastore that takes tickets and delegation tokens."""
    with kerberized_metastore(kdc, "authentication,privacy") as running:
        yield running


@contextmanager
def kerberized_metastore(kdc: Kdc, protection: str) -> Iterator[Metastore]:
    """Run a metastore that takes tickets.

    Args:
        protection: What SASL does to messages, as Hadoop names it; any of several.
    """
    site = kdc.directory / "site"
    site.mkdir()
    (site / "core-site.xml").write_text(
        "<configuration>"
        "<property><name>hadoop.security.authentication</name><value>kerberos</value></property>"
        f"<property><name>hadoop.rpc.protection</name><value>{protection}</value></property>"
        "</configuration>"
    )
    settings = {
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": _SERVICE,
        "hive.metastore.kerberos.keytab.file": str(kdc.keytab),
    }
    with Metastore("2.3", settings=settings, extra_classpath=[site]) as running:
        yield running


@pytest.mark.spec(
    "common.md#errors-of-every-operation",
    "docs/how-to/hive.md#what-was-run",
    "hive.md#errors-of-every-operation",
)
def test_a_ticket_opens_the_metastore_and_no_ticket_does_not(
    kdc: Kdc, kerberized: Metastore, request: pytest.FixtureRequest
) -> None:
    given = {"auth.mechanism": "kerberos", "auth.kerberos.host": "localhost"}
    with pytest.raises(UnauthenticatedError, match="GSSAPI failed in the client"):
        ask(kerberized.uri, given)
    kdc.log_in()
    assert ask(kerberized.uri, given, times=3) == ["default"]
    with pytest.raises(UnauthenticatedError, match="not found in Kerberos database"):
        ask(kerberized.uri, {**given, "auth.kerberos.service-name": "nobody"})
    require_protected_messages(kerberized.uri, request.node.callspec.params["kerberized"])


def require_protected_messages(uri: str, protection: str) -> None:
    """Require that long messages arrive both ways, signed or encrypted as it says."""
    value = "x" * 1_000_000
    sent: list[bytes] = []

    class Recording(DeadlineSocket):
        def write(self, data: bytes) -> None:
            sent.append(data)
            super().write(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sockets, "DeadlineSocket", Recording)
        assert with_ticket(uri, lambda c: c.hms.partition_name_to_vals(f"a={value}")) == [value]
    assert (value.encode() in sent[-1]) is (protection != "privacy")
    is_wrap_token = sent[-1][4:6] == b"\x05\x04"  # RFC 4121, section 4.2.6.2
    assert is_wrap_token is (protection != "authentication")


@pytest.mark.spec("hive.md#delegation-tokens", "docs/how-to/hive.md#what-was-run")
@pytest.mark.parametrize("form", ["string", "file", "variable"])
def test_a_delegation_token_opens_the_metastore_without_a_ticket(
    kdc: Kdc, giving_tokens: Metastore, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    kdc.log_in()
    token = delegation_token(giving_tokens.uri)
    kdc.tickets.unlink()
    file = kdc.directory / "hadoop.token"
    given = {"auth.mechanism": "delegation-token"}
    if form == "string":
        given["auth.token"] = token
    elif form == "file":
        given["auth.token-file"] = str(file)
    else:
        monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(file))
    file.write_bytes(token_file(token))
    assert ask(giving_tokens.uri, given, times=3) == ["default"]
    with pytest.raises(UnauthenticatedError, match="GSSAPI failed in the client"):
        ask(giving_tokens.uri, {"auth.mechanism": "kerberos", "auth.kerberos.host": "localhost"})


@pytest.mark.spec("hive.md#delegation-tokens", "common.md#secrets-that-change")
def test_a_cancelled_token_is_unauthenticated_and_the_next_one_in_the_file_is_used(
    kdc: Kdc, giving_tokens: Metastore
) -> None:
    kdc.log_in()
    old, new = delegation_token(giving_tokens.uri), delegation_token(giving_tokens.uri)
    with_ticket(giving_tokens.uri, lambda c: c.hms.cancel_delegation_token(old))
    file = kdc.directory / "hadoop.token"
    given = {"auth.mechanism": "delegation-token", "auth.token-file": str(file)}
    file.write_bytes(token_file(old))
    config = load(
        HiveConfig, "hive", {"uri": giving_tokens.uri, "client.retry-timeout": "0", **given}
    )
    with closing(ClientPool(config)) as pool:
        with pytest.raises(
            UnauthenticatedError, match=r"DIGEST-MD5 was refused.*expired"
        ) as caught:
            call(pool, lambda c: c.hms.get_all_databases())
        assert old not in str(caught.value)
        file.unlink()
        with pytest.raises(UnauthenticatedError, match=r"no delegation token.*No such file"):
            call(pool, lambda c: c.hms.get_all_databases())
        file.write_bytes(token_file(new))
        assert call(pool, lambda c: c.hms.get_all_databases()) == ["default"]
    secrets = kdc.directory / "secrets.yaml"
    secrets.write_text(f"auth.token: {old}\n")
    named = {"auth.mechanism": "delegation-token", "secrets.file": str(secrets)}
    config = load(HiveConfig, "hive", {"uri": giving_tokens.uri, **named})
    secrets.write_text(f"auth.token: {new}\n")
    with closing(ClientPool(config)) as pool:
        assert call(pool, lambda c: c.hms.get_all_databases()) == ["default"]


@pytest.mark.spec("hive.md#delegation-tokens")
def test_a_metastore_that_requires_privacy_says_that_it_takes_no_tokens(kdc: Kdc) -> None:
    kdc.log_in()
    with kerberized_metastore(kdc, "privacy") as metastore:
        token = delegation_token(metastore.uri)
        given = {"auth.mechanism": "delegation-token", "auth.token": token}
        with pytest.raises(UnauthenticatedError, match=r"requires .*hadoop\.rpc\.protection"):
            ask(metastore.uri, given)


def call(pool: ClientPool, operation: Callable[[Any], Any]) -> Any:
    return pool.call(operation, name="a call", repeatable=True)


def with_ticket(uri: str, operation: Callable[[Any], Any]) -> Any:
    """Make a call with the Kerberos ticket of the process."""
    given = {"uri": uri, "auth.mechanism": "kerberos", "auth.kerberos.host": "localhost"}
    with closing(ClientPool(load(HiveConfig, "hive", given))) as pool:
        return call(pool, operation)


def delegation_token(uri: str) -> str:
    """Return a new delegation token of the user who has the ticket."""
    token: str = with_ticket(uri, lambda c: c.hms.get_delegation_token("alice", "alice"))
    return token


def token_file(token: str) -> bytes:
    """Return a file of Hadoop's tokens, in version 0, with one token."""
    content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    alias = b"hive.metastore"
    return b"HDTS\0\1" + bytes([len(alias)]) + alias + content + b"\0"


# -- passwords and tokens from a file, read again when a metastore refuses the old ones ------------


class Secured:
    """A metastore that checks secrets, and a file with those of its clients."""

    def __init__(
        self, uri: str, key: str, new_secret: Callable[[], str], file: Path, **properties: str
    ) -> None:
        self.uri = uri
        self.file = file
        self._key = key
        self._new_secret = new_secret
        self._properties = {"client.retry-timeout": "5", "secrets.file": str(file), **properties}

    def write_wrong(self, text: str = "hush-hush") -> None:
        """Write a secret that the metastore refuses."""
        self.file.write_text(f"{self._key}: {text}\n")

    def write_right(self) -> None:
        """Write one that it accepts."""
        self.file.write_text(f"{self._key}: {self._new_secret()}\n")

    def connect(self) -> Calls:
        """Return a client; no call is made."""
        return Calls(HiveNamespace(uri=self.uri, **self._properties))


@pytest.fixture(scope="module")
def with_password(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    file = tmp_path_factory.mktemp("password") / "secrets.yaml"
    with password_metastore(metastores) as uri:
        yield Secured(uri, "auth.password", lambda: "wonderland", file, **ALICE)


@pytest.fixture(scope="module")
def with_token(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("token")
    with token_metastore(metastores, directory) as (uri, token):
        yield Secured(uri, "http.token", lambda: token(3600), directory / "secrets.yaml")


@pytest.fixture(params=["password", "token"])
def secured(request: pytest.FixtureRequest) -> Secured:
    found: Secured = request.getfixturevalue(f"with_{request.param}")
    found.write_wrong()
    return found


@pytest.fixture
def ended(secured: Secured) -> Iterator[Calls]:
    """A client whose secret is refused."""
    with closing(secured.connect()) as calls:
        yield calls


def names(calls: Calls) -> list[str]:
    return list(calls.all_namespaces([]))


def test_a_new_secret_in_the_file_is_used(ended: Calls, secured: Secured) -> None:
    secured.write_right()
    assert [names(ended) for _ in range(3)] == [["default"]] * 3


def test_ten_threads_read_the_file_once(
    ended: Calls, secured: Secured, reads_of: Callable[..., list[Path]]
) -> None:
    opened = reads_of(secured.file)
    secured.write_right()
    assert race(lambda _: names(ended), THREADS) == [["default"]] * THREADS
    assert opened == [secured.file]


def test_a_change_is_made_with_the_new_secret(
    ended: Calls, secured: Secured, tmp_path: Path
) -> None:
    secured.write_right()
    ended.create_namespace(["sales"], properties={"database.location-uri": f"file:{tmp_path}/db"})
    assert "sales" in names(ended)
    ended.drop_namespace(["sales"])


def test_a_file_with_the_same_secret_is_named(ended: Calls) -> None:
    for _ in range(2):
        with pytest.raises(
            UnauthenticatedError, match=r"secrets\.file, and are the same"
        ) as caught:
            names(ended)
        assert "hush" not in str(caught.value)


def test_a_file_with_another_wrong_secret_is_tried_once_and_the_next_one_is_used(
    ended: Calls, secured: Secured
) -> None:
    secured.write_wrong("hush-again")
    with pytest.raises(UnauthenticatedError, match="the new ones are refused, too") as caught:
        names(ended)
    assert "hush" not in str(caught.value)
    secured.write_right()
    assert names(ended) == ["default"]


def test_a_file_that_is_gone_is_named_and_read_when_it_is_back(
    ended: Calls, secured: Secured
) -> None:
    secured.file.unlink()
    with pytest.raises(UnauthenticatedError, match=r"could not be read again.*No such file"):
        names(ended)
    secured.write_right()
    assert names(ended) == ["default"]


def test_open_connections_go_on_with_no_old_token(with_token: Secured) -> None:
    """Over HTTP, each request has the token that its connection was opened with."""
    with_token.write_right()
    with closing(with_token.connect()) as calls:
        assert names(calls) == ["default"]
        assert isinstance(calls.client, HiveNamespace)
        renewal = calls.client.connection.config.renewal
        with_token.write_wrong()
        assert renewal.renew(renewal.config).changed
        with pytest.raises(UnauthenticatedError):
            names(calls)
        with_token.write_right()
        assert names(calls) == ["default"]
