"""Host names that a server without authentication serves.

If the name of a web page is changed to resolve to this machine (DNS rebinding), browsers treat the
server as the page's own origin. Only the name in the requests shows the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_address

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError
from starlette.types import ASGIApp, Receive, Scope, Send

Answer = Callable[[Scope, LanceNamespaceError], ASGIApp]
"""Returns the response to a refused request."""


class LocalHosts:
    """Refuses requests for hosts other than IP addresses, ``localhost`` and some names.

    Requests by a unix socket pass, because web pages cannot send them, and so do requests without a
    host.

    Args:
        names: Other names that are served, in lower case.
        answer: Creates the response to a refused request.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], answer: Answer) -> None:
        self._app = app
        self._names = {"localhost", *names}
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and _is_tcp(scope) and not self._are_served(_hosts_of(scope)):
            error = PermissionDeniedError(
                "Without authentication, this server answers only for localhost and IP addresses, "
                "and the header Host has another name; see allow_anonymous"
            )
            app = self._answer(scope, error)
        await app(scope, receive, send)

    def _are_served(self, hosts: Collection[str]) -> bool:
        return all(each in self._names or _is_address(each) for each in hosts)


def _is_tcp(scope: Scope) -> bool:
    client = scope.get("client")
    return bool(client and client[0])


def _hosts_of(scope: Scope) -> list[str]:
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    return [host_name(each) for each in values]


def host_name(host: str) -> str:
    """Return the name or address in a header ``Host``, in lower case, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
