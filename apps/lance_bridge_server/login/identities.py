"""The identity of a signed-in user, as a session stores it, without API keys and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..principals import Principal

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
