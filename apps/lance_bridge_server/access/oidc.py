"""OpenID Connect: find the principal in a bearer token that an identity provider has signed."""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import anyio
import httpx
from joserfc import jwt
from joserfc.errors import ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from joserfc.util import urlsafe_b64decode
from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError
from starlette.requests import HTTPConnection

from .authentication import Principal, check_principal_name, tokens_of

Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
]
"""Algorithms with a private key. ``none`` and shared secrets are never accepted."""
DEFAULT_ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256")
_TYPES = {"jwt", "at+jwt", "application/at+jwt", "application/jwt"}
"""Types of tokens that sign in. Others are signed with the same keys, such as ``logout+jwt``.
Source: RFC 8725, section 3.11; RFC 9068."""
_PARTS = 3


class OidcTokens:
    """Finds the principal in tokens of one issuer.

    Args:
        keys: The issuer's keys.
        audiences: The audiences of which a token must have one.
        algorithms: The allowed signature algorithms.
        name_claim: The claim with the principal's name.
        groups_claim: The claim with the groups: a list, or one name. Dots select fields of
            objects, as in ``realm_access.roles``, unless a claim has the whole name.
        claims: Values that other claims must have.
        leeway: The allowed clock skew, in seconds.
    """

    def __init__(
        self,
        keys: ProviderKeys,
        audiences: Sequence[str],
        *,
        algorithms: Sequence[Algorithm] = DEFAULT_ALGORITHMS,
        name_claim: str = "sub",
        groups_claim: str | None = "groups",
        claims: Mapping[str, str] | None = None,
        leeway: int = 60,
    ) -> None:
        self.keys = keys
        self._algorithms = list(algorithms)
        self._name_claim = name_claim
        self._groups_claim = groups_claim
        options: dict[str, Any] = {
            name: {"essential": True, "value": value} for name, value in (claims or {}).items()
        }
        options |= {
            "iss": {"essential": True, "value": keys.issuer},
            "aud": {"essential": True, "values": list(audiences)},
            "exp": {"essential": True},
        }
        self._claims = jwt.JWTClaimsRegistry(leeway=leeway, **options)

    def takes(self, token: str) -> bool:
        """Return whether a token names this issuer. Its signature is not checked."""
        parts = token.split(".")
        return len(parts) == _PARTS and _decode(parts[1]).get("iss") == self.keys.issuer

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal of the request's token, or None if it has none of this issuer.

        Raises:
            UnauthenticatedError: (16) the token is invalid, expired, or for another audience.
            ServiceUnavailableError: (17) the issuer's keys are unknown, and it does not respond.
        """
        found = [await self.verify(each) for each in tokens_of(connection) if self.takes(each)]
        return found[0] if found else None

    async def verify(self, token: str) -> Principal:
        """Return the principal of a token. Raises as `authenticate` does."""
        header = _decode(token.partition(".")[0])
        algorithm, kid = header.get("alg"), header.get("kid")
        if header.get("typ") is not None and str(header["typ"]).lower() not in _TYPES:
            raise UnauthenticatedError("The token is of a type that does not sign in")
        if algorithm not in self._algorithms:
            raise UnauthenticatedError("The token is signed with an algorithm that is not allowed")
        key = await self.keys.find(kid if isinstance(kid, str) else None)
        if key.alg not in (None, algorithm):
            raise UnauthenticatedError(
                "The token is signed with an algorithm that is not its key's"
            )
        registry = JWSRegistry(algorithms=self._algorithms)
        try:
            claims = jwt.decode(token, key, registry=registry).claims
            self._claims.validate(claims)
        except ExpiredTokenError as error:
            raise UnauthenticatedError("The token has expired") from error
        except ClaimError as error:
            raise UnauthenticatedError(f"The token's claim '{error.claim}' is wrong") from error
        except (JoseError, ValueError, TypeError) as error:
            raise UnauthenticatedError("The token is malformed, or its signature wrong") from error
        name = check_principal_name(_find_claim(claims, self._name_claim))
        return Principal(name, self._groups(claims), "oidc", claims, token)

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        found = _find_claim(claims, self._groups_claim) if self._groups_claim else None
        groups = [found] if isinstance(found, str) else found if isinstance(found, list) else []
        return frozenset(each for each in groups if isinstance(each, str))


def _find_claim(claims: Mapping[str, Any], name: str) -> Any:
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _decode(part: str) -> dict[str, Any]:
    """Return an unverified part of a token, or an empty dictionary if it is malformed."""
    try:
        content = json.loads(urlsafe_b64decode(part.encode()))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


# -- provider --------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

PublicKey = RSAKey | ECKey | OKPKey
_PUBLIC = (RSAKey, ECKey, OKPKey)
_WELL_KNOWN = "/.well-known/openid-configuration"
_POSTS = 16
"""How many forms are sent to a provider at once. Each attempt to sign in sends one."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class KeyLifetimes:
    """How long keys are cached, in seconds."""

    refresh: float = 3600.0
    """The age after which keys are fetched again."""
    cooldown: float = 30.0
    """The least time between two attempts to fetch keys."""
    keep: float = 86_400.0
    """How long keys are used while the provider does not respond."""
    timeout: float = 5.0
    """The timeout of one request to the provider."""


class ProviderKeys:
    """The signing keys of one provider, which are fetched on first use.

    An unknown key identifier causes another fetch, but not within the cooldown, so that tokens with
    made-up identifiers cannot make this server flood the provider. While the provider does not
    respond, the known keys stay in use.

    Args:
        issuer: The issuer, exactly as in its tokens.
        discovery: The URL of its discovery document; by default below the issuer.
        ca_file: PEM certificates of authorities that replace those of the system.
    """

    def __init__(
        self,
        issuer: str,
        discovery: str | None = None,
        lifetimes: KeyLifetimes | None = None,
        ca_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = issuer
        self._discovery = discovery or issuer.rstrip("/") + _WELL_KNOWN
        self._lifetimes = lifetimes or KeyLifetimes()
        self._tls = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
        self._clock = clock
        self._lock = anyio.Lock()
        self._posts = anyio.CapacityLimiter(_POSTS)
        self._keys: dict[str | None, PublicKey] = {}
        self._document: dict[str, Any] = {}
        self._fetched = self._tried = self._discovered = float("-inf")
        self._problem = ""
        """Why the last attempt to fetch keys failed; empty if it did not."""
        self._document_tried = float("-inf")
        self._document_problem = ""
        """The same of the discovery document."""

    async def find(self, kid: str | None) -> PublicKey:
        """Return the key with an identifier; if that is None, the only key.

        Raises:
            UnauthenticatedError: (16) the provider has no such key.
            ServiceUnavailableError: (17) it is not known, and the provider does not respond.
        """
        if self._must_fetch(kid) and not (self._has(kid) and self._lock.locked()):
            async with self._lock:
                # Another request may have fetched them while this one waited.
                if self._must_fetch(kid):
                    await self._try_to_fetch()
        if self._clock() - self._fetched > self._lifetimes.keep:
            raise self._unavailable()
        if self._has(kid):
            return self._keys[kid] if kid in self._keys else next(iter(self._keys.values()))
        if self._problem:
            raise self._unavailable()
        raise UnauthenticatedError("The token is signed with a key that its issuer does not have")

    def _has(self, kid: str | None) -> bool:
        return kid in self._keys if kid is not None else len(self._keys) == 1

    def _must_fetch(self, kid: str | None) -> bool:
        now = self._clock()
        if now - self._tried < self._lifetimes.cooldown:
            return False
        return not self._has(kid) or now - self._fetched > self._lifetimes.refresh

    def _unavailable(self) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"The token cannot be checked: the identity provider {self.issuer} does not respond"
        )

    async def _try_to_fetch(self) -> None:
        self._tried = self._clock()
        try:
            await self.fetch()
        except ServiceUnavailableError as error:
            self._problem = str(error)
            logger.warning("%s", error)

    async def fetch(self) -> None:
        """Fetch the keys now.

        Raises:
            ServiceUnavailableError: (17) the provider does not respond, or its documents are wrong.
        """
        document = await self._discover()
        url = document.get("jwks_uri")
        if not isinstance(url, str):
            raise self._failure(self._discovery, "it has no jwks_uri")
        keys = public_keys(await self._get(url))
        if not keys:
            raise self._failure(url, "it has no public key for signatures")
        self._keys, self._problem = keys, ""
        self._fetched = self._clock()

    async def document(self) -> Mapping[str, Any]:
        """Return the discovery document, which is cached for `KeyLifetimes.refresh` seconds.

        After a failure, the provider is not asked again within the cooldown: anybody can make this
        server ask, by the page for signing in.

        Raises:
            ServiceUnavailableError: (17) as `fetch`; within the cooldown, the previous error.
        """
        if self._is_document_old():
            async with self._lock:
                # Another request may have fetched it while this one waited.
                if self._is_document_old():
                    await self._try_to_discover()
        return self._document

    def _is_document_old(self) -> bool:
        return self._clock() - self._discovered > self._lifetimes.refresh

    async def _try_to_discover(self) -> None:
        now = self._clock()
        if self._document_problem and now - self._document_tried < self._lifetimes.cooldown:
            raise ServiceUnavailableError(self._document_problem)
        self._document_tried = now
        try:
            await self._discover()
        except ServiceUnavailableError as error:
            self._document_problem = str(error)
            raise

    async def post(
        self, url: str, form: Mapping[str, str], login: tuple[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a form to an endpoint of the provider.

        Args:
            login: The user and password for HTTP's Basic authentication.

        Returns:
            The status and the JSON object of the response, which may be an error.

        Raises:
            ServiceUnavailableError: (17) there is no response, or it is not a JSON object.
        """
        auth = httpx.BasicAuth(*login) if login else httpx.USE_CLIENT_DEFAULT
        async with self._posts, self._request(url) as client:
            answer = await client.post(url, data=form, auth=auth)
            content = answer.json()
        return answer.status_code, self._as_object(url, content)

    async def _discover(self) -> dict[str, Any]:
        document = await self._get(self._discovery)
        if document.get("issuer") != self.issuer:
            raise self._failure(self._discovery, "its issuer is another one")
        self._document, self._discovered = document, self._clock()
        self._document_problem = ""
        return document

    async def _get(self, url: str) -> dict[str, Any]:
        async with self._request(url) as client:
            answer = await client.get(url)
            content = answer.raise_for_status().json()
        return self._as_object(url, content)

    @asynccontextmanager
    async def _request(self, url: str) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client for one request. Raise ServiceUnavailable (17) if the request fails."""
        if not is_protected(url):
            raise self._failure(url, "it is not https")
        timeout = self._lifetimes.timeout
        try:
            async with httpx.AsyncClient(verify=self._tls, timeout=timeout) as client:
                yield client
        except httpx.HTTPStatusError as error:
            raise self._failure(url, f"status {error.response.status_code}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._failure(url, type(error).__name__) from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise self._failure(url, "it is not JSON") from error

    def _as_object(self, url: str, content: Any) -> dict[str, Any]:
        if not isinstance(content, dict):
            raise self._failure(url, "it is not a JSON object")
        return content

    def _failure(self, url: str, reason: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"The identity provider {self.issuer}: {url} cannot be read: {reason}"
        )


def is_protected(url: str) -> bool:
    """Return whether a URL is safe from changes in transit: https, or http to this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def public_keys(document: Mapping[str, Any]) -> dict[str | None, PublicKey]:
    """Return the signing keys of a JWKS document, by identifier.

    Keys for encryption, secret keys and keys of unknown types are left out.
    """
    found: dict[str | None, PublicKey] = {}
    entries = document.get("keys")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        try:
            key = JWKRegistry.import_key(entry)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, _PUBLIC):
            found[entry.get("kid")] = key
    return found
