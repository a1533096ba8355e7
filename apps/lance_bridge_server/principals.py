"""Principals, and the protocol of authenticators that find them in requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lance_namespace.errors import UnauthenticatedError
from starlette.requests import HTTPConnection


@dataclass(frozen=True)
class Principal:
    """The caller of a request, as authentication found it."""

    name: str
    groups: frozenset[str] = frozenset()
    method: str = "anonymous"
    """How it was authenticated: api_key, oidc, certificate, proxy or anonymous."""
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The claims of its token; empty for other methods."""
    token: str | None = field(default=None, compare=False, repr=False)
    """Its bearer token, for catalogs that accept it. A secret."""


ANONYMOUS = Principal("anonymous")
_MAX_NAME = 256


def check_principal_name(name: object) -> str:
    """Return a name from a token, a certificate or a proxy, if it is valid.

    Raises:
        UnauthenticatedError: (16) it is not a string, is empty, is longer than 256 characters, or
            has control characters. Names are used in logs and policies.
    """
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise UnauthenticatedError("The credentials are valid, but the user name in them is not")
    return name


class Authenticator(Protocol):
    """Finds the principal of a request."""

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal, or None if a request has no credentials for this method.

        Raises:
            UnauthenticatedError: (16) the credentials are not valid.
            ServiceUnavailableError: (17) the service that checks them does not respond.
        """


class Anonymous:
    """Treats every request as anonymous, for servers that only this machine can reach."""

    async def authenticate(self, connection: HTTPConnection) -> Principal:  # noqa: ARG002
        return ANONYMOUS
