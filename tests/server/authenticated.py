"""Servers that authenticate, in a thread or as the installed program, and an identity provider.

Users sign in at the provider by the authorization code flow with PKCE, without being asked for a
password. Its discovery and key documents have the shapes of well-known providers: which members
they have, which of a key's members they leave out, and that Keycloak also publishes a key for
encryption.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import subprocess
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import lance_namespace as api
import uvicorn
import yaml
from cli.program import PROGRAM, answer_of
from joserfc import jwt
from joserfc.jwk import RSAKey

import lance_bridge
from lance_bridge_server.access.authentication import (
    ApiKeyFile,
    ApiKeys,
    Authenticator,
    AuthenticatorChain,
    Principal,
)
from lance_bridge_server.access.authorizer import AllowAll
from lance_bridge_server.access.permissions import Decision
from lance_bridge_server.app import create_app
from lance_bridge_server.config import ServerSettings
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.run.listening import ServedTls, addresses_of, open_sockets
from lance_bridge_server.run.server import (
    authenticator_from_settings,
    login_from_settings,
    uvicorn_config,
)

LIST = "/v1/namespace/$/list"
"""A request that needs no table."""
SHAPES = ("keycloak", "entra", "okta", "google")
AUDIENCE = "lance"
_PATHS = {
    "keycloak": ("/realms/lake", "/realms/lake/protocol/openid-connect/certs"),
    "entra": ("/5e1f/v2.0", "/5e1f/discovery/v2.0/keys"),
    "okta": ("/oauth2/default", "/oauth2/default/v1/keys"),
    "google": ("", "/oauth2/v3/certs"),
}
"""The path of the issuer, and that of the keys."""
_MEMBERS = {
    "keycloak": ("kid", "kty", "alg", "use", "n", "e"),
    # Without the algorithm.
    "entra": ("kty", "use", "kid", "n", "e"),
    "okta": ("kty", "alg", "kid", "use", "e", "n"),
    "google": ("n", "e", "kid", "kty", "use", "alg"),
}
_DISCOVERY: dict[str, dict[str, Any]] = {
    "keycloak": {"grant_types_supported": ["authorization_code", "client_credentials"]},
    "entra": {"tenant_region_scope": "EU", "cloud_instance_name": "microsoftonline.com"},
    "okta": {"request_parameter_supported": True},
    "google": {"claims_supported": ["aud", "email", "exp", "iat", "iss", "sub"]},
}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Seen(AllowAll):
    """Allows everything, and keeps who asked."""

    def __init__(self) -> None:
        self.principals: list[Principal] = []

    def check(
        self,
        principal: Principal,
        operation: str,
        path: tuple[str, ...],
        location: str | None = None,
    ) -> Decision:
        self.principals.append(principal)
        return super().check(principal, operation, path, location)


def one_api_key(file: Path) -> tuple[Authenticator, str]:
    """Make a key by the command, in a new file; return what authenticates by it, and the key."""
    key = answer_of("keys", "add", "tester", "--file", str(file))["key"]
    return AuthenticatorChain([ApiKeys(ApiKeyFile(file))]), key


@dataclass
class Served:
    """A server in a thread of the test."""

    url: str
    seen: Seen = field(default_factory=Seen)
    tls: ServedTls | None = None

    @property
    def last(self) -> Principal:
        return self.seen.principals[-1]


@contextmanager
def serve_settings(
    directory: Path, authenticator: Authenticator | None = None, **settings: Any
) -> Iterator[Served]:
    """Serve a directory with the settings of a configuration file.

    Args:
        authenticator: Instead of the one of the settings.
    """
    listeners = [{"port": 0}]
    known = ServerSettings.model_validate(
        {"catalogs": {"files": {}}, "root": "files", "listeners": listeners, **settings}
    )
    sockets = open_sockets(known.listeners)
    served = Served(addresses_of(sockets, known.tls)[0])
    gateway = Gateway(
        lance_bridge.connect("dir", {"root": str(directory)}),
        authenticator=authenticator or authenticator_from_settings(known),
        authorizer=served.seen,
        limits=known.limits,
        databases=known.databases,
        audit=known.audit.make(),
        login=login_from_settings(known),
    )
    served.tls = ServedTls(known.tls) if known.tls else None
    server = uvicorn.Server(uvicorn_config(create_app(gateway), known, served.tls))
    thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.should_exit = True
        thread.join(30)


def write_config(directory: Path, **content: Any) -> Path:
    """Write a configuration file."""
    path = directory / "server.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@dataclass
class Program:
    """``lance-bridge serve`` in a process of its own."""

    process: subprocess.Popen[str]
    addresses: list[str]
    log: IO[str]
    """What it prints to standard error, which may be more than a pipe takes."""

    @property
    def url(self) -> str:
        return self.addresses[0]

    def stop(self) -> tuple[int, str, str]:
        """End it by SIGTERM; return the exit code, and what it printed after its addresses."""
        self.process.terminate()
        return self.end()

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return what `stop` does."""
        out, _ = self.process.communicate(timeout=150)
        return self.process.returncode, out, self.printed()

    def printed(self) -> str:
        """Return what it has printed to standard error so far."""
        self.log.seek(0)
        return self.log.read()


@contextmanager
def serve(
    *arguments: str, addresses: int = 1, program: Sequence[str] = (PROGRAM,)
) -> Iterator[Program]:
    """Run the program, and wait until it listens."""
    with TemporaryFile("a+") as log:  # each of its processes appends
        process = subprocess.Popen(
            [*program, "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        served = Program(process, [], log)
        try:
            assert process.stdout is not None
            served.addresses += [process.stdout.readline().strip() for _ in range(addresses)]
            assert all(served.addresses), served.end()
            yield served
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its worker processes too
            process.communicate()


def connect(url: str, **properties: str) -> Any:
    """Connect as pylance's own client does."""
    return lance_bridge.connect("rest", {"uri": url, **properties})


def children(url: str, **properties: str) -> Sequence[str]:
    """Return the namespaces in the root, as pylance's own client gets them."""
    request = api.ListNamespacesRequest(id=[])
    found: Sequence[str] = connect(url, **properties).list_namespaces(request).namespaces
    return found


class IdentityProvider(ThreadingHTTPServer):
    """The provider. Its ``stop`` closes its port, as an outage would.

    Args:
        shape: One of `SHAPES`.
    """

    daemon_threads = True

    def __init__(self, shape: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.shape = shape
        self._address = f"http://127.0.0.1:{self.server_port}"
        self.issuer = f"{self._address}{_PATHS[shape][0]}"
        self.requests = 0
        """How often its documents were fetched."""
        self._key, self._retired = _new_key(), _new_key()
        self._clients: dict[str, str | None] = {}
        """Identifiers of clients, with their secrets."""
        self._codes: dict[str, dict[str, str]] = {}
        """What a login was begun with, by its code."""
        self.set_login()

    # -- what a test has it do ---------------------------------------------------------------------

    def token(
        self,
        header: dict[str, Any] | None = None,
        *,
        retired: bool = False,
        **claims: Any,
    ) -> str:
        """Return a signed token. A claim or a member of the header that is None is left out.

        Args:
            retired: Sign with the key that the provider publishes no more, or never has.
        """
        key = self._retired if retired else self._key
        signed = _given({"alg": "RS256", "kid": key.kid, "typ": "JWT", **(header or {})})
        return jwt.encode(
            signed, _given({**self._claims(AUDIENCE), **claims}), key, [signed["alg"]]
        )

    def _claims(self, audience: str | None) -> dict[str, Any]:
        now = int(time.time())
        return {"iss": self.issuer, "aud": audience, "sub": "ann", "iat": now, "exp": now + 300}

    def rotate(self) -> None:
        """Replace the key by a new one."""
        self._key, self._retired = _new_key(), self._key

    def add_client(self, identifier: str, secret: str | None = None) -> None:
        """Have users sign in for a client."""
        self._clients[identifier] = secret

    def set_login(
        self, answer: dict[str, str] | None = None, status: int = 200, **claims: Any
    ) -> None:
        """Say what the next logins answer.

        Args:
            answer: Parameters for the callback; an empty one is left out.
            status: That of the token endpoint.
            claims: Those of the ID token.
        """
        self._answer, self._status, self._login_claims = answer or {}, status, claims

    def stop(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()

    # -- what it answers ---------------------------------------------------------------------------

    def documents(self) -> dict[str, Any]:
        base, keys = _PATHS[self.shape]
        discovery = {
            "issuer": self.issuer,
            "jwks_uri": f"{self._address}{keys}",
            "id_token_signing_alg_values_supported": ["RS256"],
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "authorization_endpoint": f"{self._address}/authorize",
            "token_endpoint": f"{self._address}/token",
            "token_endpoint_auth_methods_supported": [
                "client_secret_post" if self.shape == "entra" else "client_secret_basic"
            ],
            **_DISCOVERY[self.shape],
        }
        return {f"{base}/.well-known/openid-configuration": discovery, keys: self._jwks()}

    def authorize(self, given: dict[str, str]) -> str:
        """Return where the browser is sent after its user has signed in."""
        assert given["response_type"] == "code"
        assert given["code_challenge_method"] == "S256"
        assert given["client_id"] in self._clients
        assert "openid" in given["scope"].split()
        code = secrets.token_urlsafe()
        self._codes[code] = given
        answer = {"code": code, "state": given["state"], "iss": self.issuer, **self._answer}
        sent = {key: value for key, value in answer.items() if value}
        return f"{given['redirect_uri']}?{urlencode(sent)}"

    def exchange(self, form: dict[str, str], basic: str | None) -> tuple[int, Any]:
        """Return the ID token for a code, which can be used once."""
        begun = self._codes.pop(form["code"], None)
        name, secret = form.get("client_id"), form.get("client_secret")
        if basic:
            pair = b64decode(basic.removeprefix("Basic ")).decode()
            name, secret = map(unquote, pair.split(":"))  # RFC 6749, section 2.3.1
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if begun is None or self._status != 200:
            return self._status if begun else 400, {"error": "invalid_grant"}
        if begun["client_id"] != name or self._clients[name] != secret:
            return 401, {"error": "invalid_client"}
        challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (begun["code_challenge"], begun["redirect_uri"]) != (challenge, form["redirect_uri"]):
            return 400, {"error": "invalid_grant"}
        claims = {**self._claims(name), "nonce": begun["nonce"], **self._login_claims}
        header = {"alg": "RS256", "kid": self._key.kid}
        return 200, {"id_token": jwt.encode(header, claims, self._key), "token_type": "Bearer"}

    def _jwks(self) -> dict[str, Any]:
        key = self._key
        members = {**key.as_dict(private=False), "kid": key.kid, "alg": "RS256", "use": "sig"}
        published = [{name: members[name] for name in _MEMBERS[self.shape]}]
        if self.shape == "keycloak":
            first = published[0]
            published.append({**first, "kid": "for-encryption", "alg": "RSA-OAEP", "use": "enc"})
        # A shared secret has no place here: one that is published must not verify anything.
        published.append({"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQ"})
        return {"keys": published}


def _new_key() -> RSAKey:
    key: RSAKey = RSAKey.generate_key(2048)
    key.ensure_kid()
    return key


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


class _Handler(BaseHTTPRequestHandler):
    server: IdentityProvider

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.path.startswith("/authorize?"):
            self.send_response(303)
            target = self.server.authorize(dict(parse_qsl(urlsplit(self.path).query)))
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        document = self.server.documents().get(self.path)
        self._answer(404 if document is None else 200, document or {"error": "not_found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self._answer(*self.server.exchange(dict(parse_qsl(body)), self.headers["authorization"]))

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def identity_provider(shape: str) -> Iterator[IdentityProvider]:
    """Run a provider in a thread."""
    provider = IdentityProvider(shape)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    try:
        yield provider
    finally:
        provider.stop()
