"""OpenID Connect: find the principal in a bearer token that an identity provider has signed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from joserfc import jwt
from joserfc.errors import ClaimError, ExpiredTokenError, JoseError
from joserfc.jws import JWSRegistry
from joserfc.util import urlsafe_b64decode
from lance_namespace.errors import UnauthenticatedError
from starlette.requests import HTTPConnection

from ..principals import Principal, check_principal_name
from .provider import ProviderKeys
from .tokens import tokens_of

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
