"""A small identity provider in a process of its own: it has keys, publishes them, signs tokens.

Users sign in at it by the authorization code flow with PKCE, without being asked for a password.

Its discovery and key documents have the shapes of well-known providers: which members they have,
which of a key's members they leave out, and that Keycloak also publishes a key for encryption.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import httpx
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


class _Provider(ThreadingHTTPServer):
    shape: str
    issuer: str
    keys: list[RSAKey]
    retired: RSAKey
    requests = 0
    clients: dict[str, str | None]
    """Identifiers of clients, with their secrets."""
    codes: dict[str, dict[str, str]]
    """What a login was begun with, by its code."""
    login: dict[str, Any]
    """What the next logins are to have: ``claims``, ``answer`` and ``status``."""

    def documents(self) -> dict[str, Any]:
        base, keys = _PATHS[self.shape]
        discovery = {
            "issuer": self.issuer,
            "jwks_uri": f"http://127.0.0.1:{self.server_port}{keys}",
            "id_token_signing_alg_values_supported": ["RS256"],
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "authorization_endpoint": f"http://127.0.0.1:{self.server_port}/authorize",
            "token_endpoint": f"http://127.0.0.1:{self.server_port}/token",
            "token_endpoint_auth_methods_supported": [
                "client_secret_post" if self.shape == "entra" else "client_secret_basic"
            ],
            **_DISCOVERY[self.shape],
        }
        return {f"{base}/.well-known/openid-configuration": discovery, keys: self.jwks()}

    def authorize(self, given: dict[str, str]) -> str:
        """Return where the browser is sent after its user has signed in."""
        assert given["response_type"] == "code"
        assert given["code_challenge_method"] == "S256"
        assert given["client_id"] in self.clients
        assert "openid" in given["scope"].split()
        code = secrets.token_urlsafe()
        self.codes[code] = given
        answer = {"code": code, "state": given["state"], "iss": self.issuer}
        answer = {key: value for key, value in {**answer, **self.login["answer"]}.items() if value}
        return f"{given['redirect_uri']}?{urlencode(answer)}"

    def exchange(self, form: dict[str, str], basic: str | None) -> tuple[int, Any]:
        """Return the ID token for a code, which can be used once."""
        begun = self.codes.pop(form["code"], None)
        name, secret = form.get("client_id"), form.get("client_secret")
        if basic:
            pair = b64decode(basic.removeprefix("Basic ")).decode()
            name, secret = map(unquote, pair.split(":"))  # RFC 6749, section 2.3.1
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if begun is None or self.login["status"] != 200:
            return self.login["status"] if begun else 400, {"error": "invalid_grant"}
        if begun["client_id"] != name or self.clients[name] != secret:
            return 401, {"error": "invalid_client"}
        challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (begun["code_challenge"], begun["redirect_uri"]) != (challenge, form["redirect_uri"]):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": name, "sub": "ann", "iat": now, "exp": now + 300}
        claims = {**claims, "nonce": begun["nonce"], **self.login["claims"]}
        header = {"alg": "RS256", "kid": self.keys[-1].kid}
        return 200, {"id_token": jwt.encode(header, claims, self.keys[-1]), "token_type": "Bearer"}

    def jwks(self) -> dict[str, Any]:
        published = []
        for key in self.keys:
            members = {**key.as_dict(private=False), "kid": key.kid, "alg": "RS256", "use": "sig"}
            published.append({name: members[name] for name in _MEMBERS[self.shape]})
        if self.shape == "keycloak":
            first = published[0]
            published.append({**first, "kid": "for-encryption", "alg": "RSA-OAEP", "use": "enc"})
        # A shared secret has no place here: one that is published must not verify anything.
        published.append({"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQ"})
        return {"keys": published}


class _Handler(BaseHTTPRequestHandler):
    server: _Provider

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
        self.answer(404 if document is None else 200, document or {"error": "not_found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/token":
            form = dict(parse_qsl(body))
            self.answer(*self.server.exchange(form, self.headers["authorization"]))
            return
        given = json.loads(body)
        self.answer(200, getattr(self, f"do_{self.path.strip('/')}")(given))

    def do_sign(self, given: Any) -> Any:
        key = self.server.retired if given["retired"] else self.server.keys[-1]
        header = {"alg": "RS256", "kid": key.kid, "typ": "JWT", **given["header"]}
        header = {name: value for name, value in header.items() if value is not None}
        return {"token": jwt.encode(header, given["claims"], key, [header["alg"]])}

    def do_rotate(self, _given: Any) -> Any:
        self.server.retired = self.server.keys[-1]
        self.server.keys = [_new_key()]
        return {}

    def do_client(self, given: Any) -> Any:
        self.server.clients[given["id"]] = given["secret"]
        return {}

    def do_login(self, given: Any) -> Any:
        self.server.login = given
        return {}

    def do_requests(self, _given: Any) -> Any:
        return {"requests": self.server.requests}

    def answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: standard output has the address."""


def _new_key() -> RSAKey:
    key: RSAKey = RSAKey.generate_key(2048)
    key.ensure_kid()
    return key


def _main(shape: str) -> None:
    provider = _Provider(("127.0.0.1", 0), _Handler)
    provider.shape, provider.keys, provider.retired = shape, [_new_key()], _new_key()
    provider.issuer = f"http://127.0.0.1:{provider.server_port}{_PATHS[shape][0]}"
    provider.clients, provider.codes = {}, {}
    provider.login = {"claims": {}, "answer": {}, "status": 200}
    print(provider.issuer, flush=True)
    provider.serve_forever()


@dataclass
class IdentityProvider:
    """The provider, as a test controls it."""

    process: subprocess.Popen[str]
    issuer: str

    def _post(self, path: str, content: Any) -> Any:
        host = self.issuer.split("/")[2]
        answer = httpx.post(f"http://{host}/{path}", json=content)
        return answer.raise_for_status().json()

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
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300}
        merged = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        content = {"header": header or {}, "claims": merged, "retired": retired}
        return str(self._post("sign", content)["token"])

    def rotate(self) -> None:
        """Replace the key by a new one."""
        self._post("rotate", {})

    def add_client(self, identifier: str, secret: str | None = None) -> None:
        """Have users sign in for a client."""
        self._post("client", {"id": identifier, "secret": secret})

    def set_login(
        self, answer: dict[str, str] | None = None, status: int = 200, **claims: Any
    ) -> None:
        """Say what the next logins answer.

        Args:
            answer: Parameters for the callback; an empty one is left out.
            status: That of the token endpoint.
            claims: Those of the ID token.
        """
        self._post("login", {"claims": claims, "answer": answer or {}, "status": status})

    def requests(self) -> int:
        """Return how often its documents were fetched."""
        return int(self._post("requests", {})["requests"])

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@contextmanager
def identity_provider(shape: str) -> Iterator[IdentityProvider]:
    """Run a provider."""
    process = subprocess.Popen([sys.executable, __file__, shape], stdout=subprocess.PIPE, text=True)
    provider = None
    try:
        assert process.stdout is not None
        provider = IdentityProvider(process, process.stdout.readline().strip())
        assert provider.issuer.startswith("http://127.0.0.1:")
        yield provider
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    _main(sys.argv[1])
