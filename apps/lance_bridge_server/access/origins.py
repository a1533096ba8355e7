"""Requests of web pages of other origins, which browsers send only if the server allows them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError
from pydantic import ConfigDict, Field
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

# -- web pages -------------------------------------------------------------------------------------


_HEADERS = (
    "authorization", "content-type", "traceparent", "tracestate", "x-api-key",
    "x-lance-table-location", "x-lance-table-properties", "x-lancedb-database", "x-request-id",
    "x-request-timeout-ms",
)  # fmt: skip
_EXPOSED = ("phalanx-version", "retry-after", "x-request-id")
_ORIGIN = r"^(\*|https?://[A-Za-z0-9.\[\]:-]+)$"


@dataclass(frozen=True)
class CorsSettings:
    """Which web pages may make requests."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    origins: Annotated[list[Annotated[str, Field(pattern=_ORIGIN)]], Field(min_length=1)]
    """Such as ``https://app.example.com``; ``*`` for all. Cookies are never accepted."""
    max_age: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds that a browser caches the response."""

    def middleware(self) -> Middleware:
        """Return the middleware."""
        return Middleware(
            CORSMiddleware,
            allow_origins=self.origins,
            allow_methods=["GET", "POST"],
            allow_headers=_HEADERS,
            expose_headers=_EXPOSED,
            max_age=self.max_age,
        )


# -- host names ------------------------------------------------------------------------------------


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
