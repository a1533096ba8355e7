"""How users sign in to the catalog page of a configured server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..authentication.api_keys import ApiKeys
from .provider_login import ProviderLogin
from .sealing import Seal
from .sessions import Sessions


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
