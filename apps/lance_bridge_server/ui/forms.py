"""Forms with protection against CSRF: only forms of this server's own pages are accepted."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qsl

import anyio
from lance_namespace.errors import PermissionDeniedError
from starlette.requests import Request

from lance_bridge.errors import invalid

from ..calls import BodyTooLargeError, media_type, read_limited_body
from ..login import Seal
from .cookies import FORM, Cookies

TOKEN = "token"
"""The field of a form with its token."""
_PURPOSE = "form"
_SECONDS = 43_200
_MAX_BYTES = 16 << 10
_MAX_FIELDS = 50
_READ_SECONDS = 20.0
_MEDIA_TYPE = "application/x-www-form-urlencoded"
_EXPIRED = (
    "The form does not belong to this session, or has expired: reload the page and submit it again"
)


class Forms:
    """Creates and checks the tokens of forms. A token is bound to a session or a browser.

    Args:
        seal: Encrypts tokens.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def token(self, request: Request) -> str:
        """Return the token for a form in the response to a request."""
        cookies: Cookies = request.state.cookies
        bound = self._bound_to(request)
        if not bound:
            bound = secrets.token_urlsafe(16)
            cookies.set(FORM, bound, _SECONDS)
        return self._seal.close(_PURPOSE, {"bound": bound}, _SECONDS)

    async def read(self, request: Request) -> dict[str, str]:
        """Return the fields of a submitted form.

        Raises:
            PermissionDeniedError: (15) it is from another site, session or browser, or too old.
            InvalidInputError: (13) it is malformed or too large.
        """
        require_same_origin(request)
        fields = await _read_fields(request)
        content = self._seal.open(_PURPOSE, fields.get(TOKEN)) or {}
        bound = self._bound_to(request)
        given = str(content.get("bound"))
        if not bound or not hmac.compare_digest(given.encode(), bound.encode()):
            raise PermissionDeniedError(_EXPIRED)
        return fields

    def _bound_to(self, request: Request) -> str:
        session = request.state.session
        return session.id if session else request.state.cookies.get(FORM) or ""


def require_same_origin(request: Request) -> None:
    """Refuse a request that was sent by a page of another origin.

    Raises:
        PermissionDeniedError: (15)
    """
    cookies: Cookies = request.state.cookies
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin", cookies.origin)
    # Only the host: behind a proxy with TLS, this server may not know that the scheme is https.
    hosts = {each.partition("://")[2] for each in (origin, cookies.origin)}
    if site != "same-origin" or len(hosts) > 1:
        raise PermissionDeniedError("The form was sent by a page of another site")


async def _read_fields(request: Request) -> dict[str, str]:
    if media_type(request) != _MEDIA_TYPE:
        raise invalid(f"The Content-Type of a form must be {_MEDIA_TYPE}")
    try:
        with anyio.fail_after(_READ_SECONDS):
            text = (await read_limited_body(request, _MAX_BYTES)).decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except BodyTooLargeError:
        raise invalid(f"The form is larger than {_MAX_BYTES >> 10} KiB") from None
    except (TimeoutError, ValueError) as error:
        raise invalid("The form is malformed, or was not sent in time") from error
