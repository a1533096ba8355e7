"""Authenticates requests for pages, by their own credentials or by a session."""

from __future__ import annotations

from urllib.parse import unquote

from lance_namespace.errors import ErrorCode, UnauthenticatedError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lance_bridge.errors import invalid

from ..gateway import Gateway
from ..login import Identity, Seal
from ..monitoring.observed import observed
from ..principals import ANONYMOUS
from ..process.shared import Process
from .cookies import FORM, SESSION, Cookies
from .forms import Forms
from .rendering import PRIVATE_HEADERS
from .urls import ROOT, address

LOGIN_PAGE = "login"
_SEE_OTHER = 303
_MAX_COOKIE = 3_800
"""In bytes. Browsers allow 4096 with the name and the attributes."""


class SignIn:
    """Finds the principal of pages, and starts and ends sessions."""

    def __init__(self, gateway: Gateway, process: Process) -> None:
        self.login = gateway.login
        self.seal = Seal(self.login.keys or [process.session_key])
        self.forms = Forms(self.seal)
        self._sessions = self.login.sessions(self.seal)
        self._authenticator = gateway.authenticator

    async def identify(self, request: Request, *, is_required: bool = True) -> None:
        """Set ``principal`` and ``session`` of the request's state.

        The principal is the same that the API would find for the request; without credentials, it
        is the principal of the session cookie.

        Raises:
            UnauthenticatedError: (16) the request has wrong credentials, or none and needs some.
            ServiceUnavailableError: (17) the service that checks them does not respond.
        """
        state = request.state
        state.cookies = cookies = Cookies(request, self.login.address)
        state.principal = await self._authenticator.authenticate(request)
        if state.principal in (None, ANONYMOUS):
            state.session = session = self._sessions.find(cookies.get(SESSION))
            if session is not None:
                state.principal = session.principal
                if session.renewed is not None:
                    cookies.set(SESSION, session.renewed, self.login.idle_seconds)
        if state.principal is None and is_required:
            raise UnauthenticatedError("This server needs credentials, and the request has none")

    def begin(self, request: Request, identity: Identity, target: str) -> Response:
        """Start a session, and return a redirect to a page.

        Raises:
            InvalidInputError: (13) the session is too large for a cookie.
        """
        content = self._sessions.begin(identity)
        if len(content) > _MAX_COOKIE:
            raise invalid(
                "The groups and claims of the ID token are too long for a session: have the "
                "identity provider send fewer of them to this client"
            )
        cookies: Cookies = request.state.cookies
        cookies.set(SESSION, content, self.login.idle_seconds)
        cookies.delete(FORM)
        request.state.principal = identity.principal
        return redirect(safe_target(target))

    def end(self, request: Request) -> Response:
        """End the session, and return a redirect to the page for signing in."""
        cookies: Cookies = request.state.cookies
        cookies.delete(SESSION)
        cookies.delete(FORM)
        return redirect(address(LOGIN_PAGE))

    def ask(self, request: Request) -> Response | None:
        """Return a redirect to the page for signing in, which leads back; None if not possible."""
        if not self.login.is_offered or request.method not in ("GET", "HEAD"):
            return None
        observed(request.scope).code = ErrorCode.UNAUTHENTICATED.value
        query = request.url.query
        target = request.url.path + (f"?{query}" if query else "")
        return redirect(address(LOGIN_PAGE, next="" if target == ROOT else target))


def redirect(target: str) -> Response:
    """Return a redirect to another page, with the method GET."""
    return RedirectResponse(target, _SEE_OTHER, PRIVATE_HEADERS)


def safe_target(target: str) -> str:
    """Return an address if it is a page of this server, else the address of the first page."""
    path = target.partition("?")[0]
    parts = [unquote(each) for each in path.split("/")]
    is_page = path == ROOT or path.startswith(f"{ROOT}/")
    is_plain = target.isascii() and target.isprintable() and "\\" not in target
    return target if is_page and is_plain and not {".", ".."} & {*parts} else ROOT
