"""Sessions: the server keeps none of them; all of a session is in the cookie of its browser."""

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
"""A session that is used is renewed when this part of its idle time has passed."""


@dataclass(frozen=True)
class Session:
    """A session that has not ended."""

    id: str
    principal: Principal
    ends: int
    """When it ends at the latest, in seconds since 1970."""
    renewed: str | None
    """What its cookie is to have from now on; None leaves it as it is."""


@dataclass(frozen=True)
class Sessions:
    """Begins sessions, and finds them in cookies.

    Args:
        seal: Encrypts them.
        api_keys: Say at each request whether the key of a session is still valid.
        issuers: Those of the identity providers by which users can sign in.
        seconds: How long a session lasts.
        idle_seconds: How long it lasts without a request.
    """

    seal: Seal
    api_keys: Sequence[ApiKeys]
    issuers: Sequence[str]
    seconds: int
    idle_seconds: int

    def begin(self, identity: Identity) -> str:
        """Return what the cookie of a new session is to have."""
        ends = self.seal.now() + self.seconds
        return self._close({"id": secrets.token_urlsafe(16), "ends": ends, **identity.to_json()})

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None if it has ended, or what it began with is revoked.

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
