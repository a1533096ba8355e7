"""A small identity provider: it has keys, publishes them, signs tokens.

Users sign in at it by the authorization code flow with PKCE, without being asked for a password.

Its discovery and key documents have the shapes of well-known providers: which members they have,
which of a key's members they leave out, and that Keycloak also publishes a key for encryption.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

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
