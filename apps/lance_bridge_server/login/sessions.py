"""Sessions, which are stored entirely in the cookies of browsers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..authentication.api_keys import ApiKeys
from ..principals import Principal
from .identities import Identity, principal_of_provider
from .sealing import Seal

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
