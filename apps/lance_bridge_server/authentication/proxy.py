"""A trusted proxy, which authenticates the user and sends the name in a header."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from lance_namespace.errors import UnauthenticatedError
from starlette.requests import HTTPConnection

from ..principals import Principal, check_principal_name

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
