"""Who has signed in, as a session keeps it. A session has no API key and no token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..principals import Principal

_OF_ONE_LOGIN = {"iat", "nbf", "exp", "auth_time", "nonce", "jti", "sid", "at_hash", "c_hash"}
"""Claims about a login or a token, and not about the user."""


@dataclass(frozen=True)
class Identity:
    """What a method of signing in has found out."""

    method: str
    """``api_key`` or ``oidc``."""
    source: str
    """The identifier of the API key, or the issuer."""
    principal: Principal

    def to_json(self) -> dict[str, Any]:
        """Return what a session keeps. Who has an API key, its file says at each request."""
        kept: dict[str, Any] = {"method": self.method, "source": self.source}
        if self.method == "api_key":
            return kept
        texts = {
            name: value
            for name, value in self.principal.claims.items()
            if isinstance(value, str) and name not in _OF_ONE_LOGIN
        }
        groups = sorted(self.principal.groups)
        return {**kept, "name": self.principal.name, "groups": groups, "claims": texts}


def principal_of_provider(kept: Mapping[str, Any]) -> Principal:
    """Return the principal of a session that began at an identity provider."""
    return Principal(kept["name"], frozenset(kept["groups"]), "oidc", kept["claims"])
