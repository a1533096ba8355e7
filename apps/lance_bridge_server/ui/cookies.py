"""Cookies of the catalog page, and the server's address in the browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ..authentication.provider import is_protected
from .urls import ROOT

SESSION = "session"
FORM = "form"
LOGIN = "login"
_SECURE = "__Secure-"


class Cookies:
    """The cookies of one request and its response.

    Scripts cannot read them, browsers do not send them with resources that other sites load, and
    they are sent only to the catalog page: the API accepts none.

    Args:
        address: The server's address in browsers, if it is configured.
    """

    def __init__(self, request: Request, address: str | None) -> None:
        self.origin = address or _origin(request)
        self._request = request
        self._set: dict[str, tuple[str, int]] = {}

    @property
    def can_be_kept(self) -> bool:
        """Whether browsers keep the cookies: over HTTPS, or plain HTTP to this machine."""
        return is_protected(self.origin)

    def get(self, name: str) -> str | None:
        """Return the value of a cookie."""
        return self._request.cookies.get(self._full_name(name))

    def set(self, name: str, value: str, seconds: int) -> None:
        """Set a cookie for some seconds."""
        self._set[name] = (value, seconds)

    def delete(self, name: str) -> None:
        """Delete a cookie."""
        self._set[name] = ("", 0)

    def apply(self, response: Response) -> None:
        """Add the cookies that were set to a response."""
        for name, (value, seconds) in self._set.items():
            response.set_cookie(
                self._full_name(name),
                value,
                max_age=seconds,
                path=ROOT,
                secure=self._is_secure,
                httponly=True,
                samesite="lax",
            )

    def _full_name(self, name: str) -> str:
        return f"{_SECURE if self._is_secure else ''}lance_bridge_{name}"

    @property
    def _is_secure(self) -> bool:
        return urlsplit(self.origin).scheme == "https" or not is_protected(self.origin)


def _origin(request: Request) -> str:
    """Return the origin of a request, without the host if that is malformed."""
    scheme, host = request.scope["scheme"], request.headers.get("host", "")
    origin = f"{scheme}://{host}"
    try:
        urlsplit(origin)
    except ValueError:
        return f"{scheme}://"
    return origin
