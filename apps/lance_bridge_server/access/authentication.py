"""Principals, and the protocol of authenticators that find them in requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Literal, Protocol, runtime_checkable

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


# -- methods ---------------------------------------------------------------------------------------


API_KEY_HEADER = "x-api-key"
_AUTHORIZATION = "authorization"
_BEARER = "bearer"


def tokens_of(connection: HTTPConnection) -> list[str]:
    """Return the distinct tokens of a request: ``Authorization: Bearer`` and ``x-api-key``.

    Some clients can send only one of the two headers, so each may carry any type of token.
    """
    found = []
    for value in connection.headers.getlist(_AUTHORIZATION):
        scheme, _, token = value.partition(" ")
        if scheme.lower() == _BEARER:
            found.append(token.strip())
    found += [value.strip() for value in connection.headers.getlist(API_KEY_HEADER)]
    return list(dict.fromkeys(token for token in found if token))


@runtime_checkable
class TokenAuthenticator(Authenticator, Protocol):
    """An authenticator of tokens, which `tokens_of` finds in a request."""

    def takes(self, token: str) -> bool:
        """Return whether this authenticator is responsible for a token, going by its form."""


class AuthenticatorChain:
    """Runs several methods, and returns the first principal that one of them finds.

    Every credential in a request must be valid, even if an earlier method has found a principal or
    anonymous requests are allowed: an invalid key never gets another principal's rights.

    Args:
        methods: The methods, in order.
        allow_anonymous: Whether requests without credentials are anonymous instead of refused.
    """

    def __init__(self, methods: Sequence[Authenticator], *, allow_anonymous: bool = False) -> None:
        self._methods = tuple(methods)
        self._of_tokens = [each for each in methods if isinstance(each, TokenAuthenticator)]
        self._allow_anonymous = allow_anonymous

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal, or None if there are no credentials and anonymous is not allowed.

        Raises:
            UnauthenticatedError: (16) a credential is invalid.
            ServiceUnavailableError: (17) the service that checks it does not respond.
        """
        self._refuse_unknown_tokens(connection)
        found = [await each.authenticate(connection) for each in self._methods]
        principal = next((each for each in found if each is not None), None)
        if principal is None and self._allow_anonymous:
            return ANONYMOUS
        return principal

    def _refuse_unknown_tokens(self, connection: HTTPConnection) -> None:
        """Refuse tokens of an unknown form, unless no method reads tokens.

        LanceDB's clients always send an API key, even to servers that use other methods only.
        """
        for token in tokens_of(connection) if self._of_tokens else ():
            if not any(each.takes(token) for each in self._of_tokens):
                raise UnauthenticatedError(
                    "This server does not accept API keys or tokens of this form"
                )


STATE_KEY = "peer_certificate"
"""The key of the certificate in a connection's state, as `ssl.SSLSocket.getpeercert` returns it."""

NameField = Literal["common_name", "dns", "uri", "email"]
GroupsField = Literal["organizational_unit", "organization"]
_ALTERNATIVES = {"dns": "DNS", "uri": "URI", "email": "email"}
_ATTRIBUTES = {
    "common_name": "commonName",
    "organizational_unit": "organizationalUnitName",
    "organization": "organizationName",
}


class ClientCertificates:
    """Takes the name of the principal from a field of its certificate.

    TLS has verified the certificate.

    Args:
        name: The field with the name: the subject's common name, or the first alternative name of
            a type.
        groups: The attributes of the subject that are groups.
    """

    def __init__(self, name: NameField, groups: GroupsField | None = None) -> None:
        self._name = name
        self._groups = groups

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal of a connection's certificate, or None if it has none.

        Raises:
            UnauthenticatedError: (16) the certificate lacks the field with the name.
        """
        certificate = connection.scope.get("state", {}).get(STATE_KEY)
        if not certificate:
            return None
        name = next(_values(certificate, self._name), None)
        if name is None:
            raise UnauthenticatedError(f"The client certificate has no {self._name}")
        groups = _values(certificate, self._groups) if self._groups else ()
        return Principal(check_principal_name(name), frozenset(groups), "certificate")


def _values(certificate: dict[str, Any], field: str) -> Iterator[str]:
    if field in _ALTERNATIVES:
        names = certificate.get("subjectAltName", ())
        yield from (value for name_type, value in names if name_type == _ALTERNATIVES[field])
        return
    for part in certificate.get("subject", ()):
        yield from (value for attribute, value in part if attribute == _ATTRIBUTES[field])


Network = IPv4Network | IPv6Network


class TrustedProxy:
    """Takes the principal from a header, if the request comes from a trusted address.

    The header is ignored from any other address.

    Args:
        header: The header with the name of the principal.
        groups_header: The header with the groups, separated by commas.
        networks: The networks of trusted proxies.
        unix_socket: Whether requests by a unix socket are trusted.
    """

    def __init__(
        self,
        header: str,
        groups_header: str | None,
        networks: Sequence[Network],
        *,
        unix_socket: bool = False,
    ) -> None:
        self._header = header
        self._groups_header = groups_header
        self._networks = tuple(networks)
        self._unix_socket = unix_socket

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal that a trusted proxy names, or None.

        Raises:
            UnauthenticatedError: (16) the name is malformed, or there are several.
        """
        names = connection.headers.getlist(self._header)
        if not names or not self._is_trusted(connection):
            return None
        if len(names) > 1:
            # A proxy that adds its header and leaves the client's is configured wrongly.
            raise UnauthenticatedError(f"The request has the header {self._header} several times")
        return Principal(check_principal_name(names[0].strip()), self._groups(connection), "proxy")

    def _groups(self, connection: HTTPConnection) -> frozenset[str]:
        given = connection.headers.getlist(self._groups_header) if self._groups_header else []
        if len(given) > 1:
            raise UnauthenticatedError(
                f"The request has the header {self._groups_header} several times"
            )
        return frozenset(name for each in given for name in map(str.strip, each.split(",")) if name)

    def _is_trusted(self, connection: HTTPConnection) -> bool:
        client = connection.client
        if client is None or not client.host:
            return self._unix_socket
        address = ip_address(client.host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)
