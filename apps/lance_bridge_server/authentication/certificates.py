"""Client certificates: find the principal in the certificate that TLS has verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from lance_namespace.errors import UnauthenticatedError
from starlette.requests import HTTPConnection

from ..principals import Principal, check_principal_name

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
