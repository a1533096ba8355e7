"""The identity of a signed-in user, as a session stores it, without API keys and tokens."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwe import JWERegistry
from joserfc.jwk import OctKey
from joserfc.util import urlsafe_b64encode
from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError

from lance_bridge.errors import invalid

from .authentication import ApiKeys, Principal
from .oidc import OidcTokens, ProviderKeys, is_protected

# -- sessions --------------------------------------------------------------------------------------


_LOGIN_CLAIMS = {"iat", "nbf", "exp", "auth_time", "nonce", "jti", "sid", "at_hash", "c_hash"}
"""Claims about a login or a token rather than about the user."""


@dataclass(frozen=True)
class Identity:
    """The result of signing in."""

    method: str
    """``api_key`` or ``oidc``."""
    source: str
    """The identifier of the API key, or the issuer."""
    principal: Principal

    def to_json(self) -> dict[str, Any]:
        """Return the content of a session. The principal of an API key is read at each request."""
        kept: dict[str, Any] = {"method": self.method, "source": self.source}
        if self.method == "api_key":
            return kept
        texts = {
            name: value
            for name, value in self.principal.claims.items()
            if isinstance(value, str) and name not in _LOGIN_CLAIMS
        }
        groups = sorted(self.principal.groups)
        return {**kept, "name": self.principal.name, "groups": groups, "claims": texts}


def principal_of_provider(kept: Mapping[str, Any]) -> Principal:
    """Return the principal of a session that was started at an identity provider."""
    return Principal(kept["name"], frozenset(kept["groups"]), "oidc", kept["claims"])


KEY_BYTES = 32
_HEADER = {"alg": "dir", "enc": "A256GCM"}


class Seal:
    """Encrypts content with AES-256-GCM, as a JSON Web Token that expires.

    Args:
        keys: Keys of 32 bytes. The first one encrypts; all of them decrypt.
    """

    def __init__(self, keys: Sequence[bytes], clock: Callable[[], float] = time.time) -> None:
        self._keys = [OctKey.import_key(each) for each in keys]
        self._clock = clock
        self._registry = JWERegistry(algorithms=list(_HEADER.values()))

    def close(self, purpose: str, content: Mapping[str, Any], seconds: float) -> str:
        """Encrypt content. `open` accepts the result for the same purpose, for some seconds."""
        now = self.now()
        claims = {**content, "aud": purpose, "iat": now, "exp": now + int(seconds)}
        return jwt.encode(_HEADER, claims, self._keys[0], registry=self._registry)

    def open(self, purpose: str, text: str | None) -> dict[str, Any] | None:
        """Decrypt the result of `close`. Return None if it is invalid or has expired."""
        if not text:
            return None
        found = (self._claims(text, key) for key in self._keys)
        claims = next((each for each in found if each is not None), None)
        if claims is None or claims.get("aud") != purpose or claims["exp"] <= self.now():
            return None
        return claims

    def now(self) -> int:
        """Return the time, in seconds since 1970."""
        return int(self._clock())

    def _claims(self, text: str, key: OctKey) -> dict[str, Any] | None:
        try:
            return jwt.decode(text, key, registry=self._registry).claims
        except (JoseError, ValueError, TypeError):
            return None


def read_keys(file: Path) -> list[bytes]:
    """Return the keys in a file, which contains one in Base64 in each line.

    Raises:
        InvalidInputError: (13) it cannot be read, or a line is not a key.
    """
    try:
        lines = [each.strip() for each in file.read_text("ascii").splitlines() if each.strip()]
        keys = [base64.b64decode(each, validate=True) for each in lines]
    except OSError as error:
        raise invalid(f"{file} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, binascii.Error):
        keys = []
    if not keys or any(len(each) != KEY_BYTES for each in keys):
        raise invalid(f"{file} must have {KEY_BYTES} random bytes in Base64 in each line")
    return keys


_PURPOSE = "session"
_RENEWALS = 10
"""A session in use is renewed after this fraction (1/n) of its idle time."""


@dataclass(frozen=True)
class Session:
    """A session that has not ended."""

    id: str
    principal: Principal
    ends: int
    """The latest end of the session, in seconds since 1970."""
    renewed: str | None
    """The new value of its cookie; None if it does not change."""


@dataclass(frozen=True)
class Sessions:
    """Starts sessions, and finds them in cookies.

    Args:
        seal: Encrypts the cookies.
        api_keys: Check at each request whether the key of a session is still valid.
        issuers: The issuers of the identity providers at which users can sign in.
        seconds: How long a session lasts.
        idle_seconds: How long a session lasts without a request.
    """

    seal: Seal
    api_keys: Sequence[ApiKeys]
    issuers: Sequence[str]
    seconds: int
    idle_seconds: int

    def begin(self, identity: Identity) -> str:
        """Return the cookie's value for a new session."""
        ends = self.seal.now() + self.seconds
        return self._close({"id": secrets.token_urlsafe(16), "ends": ends, **identity.to_json()})

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None if it ended, or its API key or issuer is not valid.

        Raises:
            ServiceUnavailableError: (17) the file of API keys cannot be read.
        """
        kept = self.seal.open(_PURPOSE, cookie)
        if kept is None:
            return None
        principal = self._principal(kept)
        if principal is None:
            return None
        is_due = self.seal.now() - kept["iat"] > self.idle_seconds / _RENEWALS
        return Session(kept["id"], principal, kept["ends"], self._close(kept) if is_due else None)

    def _principal(self, kept: dict[str, Any]) -> Principal | None:
        if kept["method"] == "api_key":
            found = (each.find_by_id(kept["source"]) for each in self.api_keys)
            return next((each for each in found if each is not None), None)
        return principal_of_provider(kept) if kept["source"] in self.issuers else None

    def _close(self, kept: dict[str, Any]) -> str:
        left = kept["ends"] - self.seal.now()
        return self.seal.close(_PURPOSE, kept, min(self.idle_seconds, left))


# -- provider --------------------------------------------------------------------------------------


_SERVER_ERROR = 500
_OK = 200
_LONGEST_ERROR = 80


@dataclass(frozen=True)
class ProviderClient:
    """This server's client registration at an identity provider."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ("openid", "profile")
    label: str = ""
    """The label of the button."""


@dataclass(frozen=True)
class LoginAttempt:
    """The state of an attempt to sign in, which the browser keeps in an encrypted cookie."""

    state: str
    nonce: str
    verifier: str = field(repr=False)

    @classmethod
    def make(cls) -> LoginAttempt:
        """Return a new attempt with random values."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))

    @property
    def challenge(self) -> str:
        """The code challenge of PKCE, by the method S256."""
        return urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode()


class ProviderLogin:
    """Signs users in at one provider.

    Args:
        keys: The provider's documents and keys.
        tokens: Verifies the ID tokens that the provider issues to the client.
    """

    def __init__(self, client: ProviderClient, keys: ProviderKeys, tokens: OidcTokens) -> None:
        self.client = client
        self.issuer = keys.issuer
        self.label = client.label or keys.issuer.partition("://")[2].partition("/")[0]
        self._keys = keys
        self._tokens = tokens

    async def address(self, attempt: LoginAttempt, callback: str) -> str:
        """Return the URL at the provider to which the browser is redirected.

        Args:
            callback: The URL to which the provider redirects the browser back.

        Raises:
            ServiceUnavailableError: (17) the provider does not respond.
        """
        endpoint = await self._endpoint("authorization_endpoint")
        query = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": callback,
            "scope": " ".join(self.client.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query, quote_via=quote)}"

    async def finish(
        self, attempt: LoginAttempt, answer: Mapping[str, str], callback: str
    ) -> Identity:
        """Return the identity of the user who has signed in.

        Args:
            answer: The query parameters of the provider's redirect back.
            callback: As for `address`.

        Raises:
            UnauthenticatedError: (16) the provider has refused, the parameters belong to another
                attempt, or the token is not valid.
            ServiceUnavailableError: (17) the provider does not respond.
        """
        code = self._code(attempt, answer)
        token = await self._exchange(attempt, code, callback)
        principal = await self._tokens.verify(token)
        claims = principal.claims
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), attempt.nonce.encode()):
            raise UnauthenticatedError("The token is not for this attempt to sign in")
        if claims.get("azp", self.client.client_id) != self.client.client_id:
            raise UnauthenticatedError("The token was issued to another client")
        return Identity("oidc", self.issuer, principal)

    def _code(self, attempt: LoginAttempt, answer: Mapping[str, str]) -> str:
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise UnauthenticatedError(
                "The response belongs to another attempt to sign in; try again"
            )
        if answer.get("iss", self.issuer) != self.issuer:
            raise UnauthenticatedError("The response is from another identity provider")
        if "code" not in answer:
            raise UnauthenticatedError(f"The identity provider refused: {_error_code(answer)}")
        return answer["code"]

    async def _exchange(self, attempt: LoginAttempt, code: str, callback: str) -> str:
        """Exchange a code for an ID token."""
        endpoint = await self._endpoint("token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "code_verifier": attempt.verifier,
        }
        status, content = await self._keys.post(endpoint, *await self._credentials(form))
        if status >= _SERVER_ERROR:
            raise self._failure(f"the token endpoint returned status {status}")
        if status != _OK:
            raise UnauthenticatedError(f"The identity provider refused: {_error_code(content)}")
        token = content.get("id_token")
        if not isinstance(token, str):
            raise UnauthenticatedError("The identity provider sent no ID token: is openid a scope?")
        return token

    async def _credentials(
        self, form: dict[str, str]
    ) -> tuple[dict[str, str], tuple[str, str] | None]:
        """Return the form, and the client's credentials in it or as user and password."""
        client = self.client
        document = await self._keys.document()
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if client.secret is None:
            return {**form, "client_id": client.client_id}, None
        if "client_secret_basic" in methods:
            return form, (quote(client.client_id, safe=""), quote(client.secret, safe=""))
        return {**form, "client_id": client.client_id, "client_secret": client.secret}, None

    async def _endpoint(self, name: str) -> str:
        url = (await self._keys.document()).get(name)
        if not isinstance(url, str) or not is_protected(url):
            raise self._failure(f"its {name} is missing, or is not https")
        return url

    def _failure(self, reason: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(f"The identity provider {self.issuer}: {reason}")


def _error_code(answer: Mapping[str, Any]) -> str:
    """Return the code of an error, such as ``access_denied``, without its untrusted text."""
    code = str(answer.get("error", ""))[:_LONGEST_ERROR]
    is_plain = code.isascii() and code.replace("_", "").isalnum()
    return code if is_plain else "no reason is given"


@dataclass(frozen=True)
class Login:
    """The ways to sign in, and how long sessions last."""

    api_keys: Sequence[ApiKeys] = ()
    providers: Sequence[ProviderLogin] = ()
    address: str | None = None
    """The server's address in browsers, without a path; None takes it from each request."""
    keys: Sequence[bytes] = field(default=(), repr=False)
    """The keys that encrypt cookies; by default the key of the process."""
    seconds: int = 43_200
    idle_seconds: int = 3_600
    failures: str = "30/minute"
    """How many attempts to sign in may fail from one address."""

    @property
    def is_offered(self) -> bool:
        """Whether there is a way to sign in."""
        return bool(self.api_keys or self.providers)

    def sessions(self, seal: Seal) -> Sessions:
        """Return the sessions, encrypted by a seal."""
        issuers = [each.issuer for each in self.providers]
        return Sessions(seal, self.api_keys, issuers, self.seconds, self.idle_seconds)
