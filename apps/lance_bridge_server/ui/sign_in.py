"""Signing in to the catalog page: cookies, forms with their tokens, sessions, and the pages."""

from __future__ import annotations

import hmac
import secrets
from functools import partial
from urllib.parse import parse_qsl, unquote, urlsplit

from lance_namespace.errors import (
    ErrorCode,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lance_bridge import LanceBridgeNamespace
from lance_bridge.errors import invalid
from lance_bridge_federated import FederatedNamespace

from ..access.audit import trail_of
from ..access.authentication import ANONYMOUS, principal_of_key
from ..access.login import Identity, LoginAttempt, ProviderLogin, Seal
from ..access.oidc import is_protected
from ..access.permissions import Access, Decision
from ..gateway.gateway import Gateway
from ..gateway.limits import Admission
from ..http.calls import BodyTooLargeError, media_type, read_body
from ..http.exchange import exchange_of
from ..http.lifecycle import Process
from .rendering import PRIVATE_HEADERS, ROOT, address, html_page
from .request import UiRequest, error_text
from .tree import load_tree

# -- cookies ---------------------------------------------------------------------------------------


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


# -- forms -----------------------------------------------------------------------------------------


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
        text = (await read_body(request, _MAX_BYTES, _READ_SECONDS)).decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except BodyTooLargeError:
        raise invalid(f"The form is larger than {_MAX_BYTES >> 10} KiB") from None
    except (ServiceUnavailableError, ValueError) as error:
        raise invalid("The form is malformed, or was not sent in time") from error


# -- session ---------------------------------------------------------------------------------------


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
        exchange_of(request.scope).code = ErrorCode.UNAUTHENTICATED.value
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


# -- pages -----------------------------------------------------------------------------------------


_ATTEMPT = "login attempt"
_ATTEMPT_SECONDS = 600
CALLBACK_PAGE = f"{LOGIN_PAGE}/callback"


class LoginPages:
    """The pages for signing in, by API key or identity provider, the account, and signing out."""

    def __init__(self, sign_in: SignIn, admission: Admission) -> None:
        self._sign_in = sign_in
        self._login = sign_in.login
        self._admission = admission

    async def show_login(self, ui: UiRequest) -> Response:
        """Return the page with the ways to sign in."""
        return self._login_page(ui, ui.text("next"))

    async def log_in_by_key(self, ui: UiRequest) -> Response:
        """Start a session for an API key."""
        fields = await self._sign_in.forms.read(ui.http)
        target = fields.get("next", "")
        try:
            identity = self._identity_of(fields.get("key", "").strip())
        except UnauthenticatedError as error:
            self._record_failure(ui.http)
            exchange_of(ui.http.scope).code = error.code.value
            return self._login_page(ui, target, message=error_text(error))
        return self._begin(ui.http, identity, target)

    async def start_at_provider(self, ui: UiRequest) -> Response:
        """Redirect the browser to an identity provider."""
        provider = self._provider(ui.text("issuer"))
        attempt = LoginAttempt.make()
        target = await provider.address(attempt, _callback(ui.http))
        kept = {
            "issuer": provider.issuer,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "verifier": attempt.verifier,
            "next": ui.text("next"),
        }
        sealed = self._sign_in.seal.close(_ATTEMPT, kept, _ATTEMPT_SECONDS)
        ui.http.state.cookies.set(LOGIN, sealed, _ATTEMPT_SECONDS)
        return redirect(target)

    async def finish_at_provider(self, ui: UiRequest) -> Response:
        """Start a session for a user whom an identity provider redirected back."""
        cookies: Cookies = ui.http.state.cookies
        kept = self._sign_in.seal.open(_ATTEMPT, cookies.get(LOGIN))
        cookies.delete(LOGIN)
        if kept is None:  # not counted: any web page can make a browser send this
            raise UnauthenticatedError("The attempt to sign in is too old; sign in again")
        attempt = LoginAttempt(kept["state"], kept["nonce"], kept["verifier"])
        provider = self._provider(kept["issuer"])
        answer = dict(ui.http.query_params)
        try:
            identity = await provider.finish(attempt, answer, _callback(ui.http))
        except UnauthenticatedError:
            self._record_failure(ui.http)
            raise
        return self._begin(ui.http, identity, kept["next"])

    async def show_account(self, ui: UiRequest) -> Response:
        """Return the page that shows who is signed in, and what the principal may do."""
        session = ui.http.state.session
        return ui.page(
            "account.html",
            section="",
            tree=await load_tree(ui, ()),
            actions=list(_ACTIONS),
            rights=await run_in_threadpool(_rights, ui),
            has_keys=bool(self._login.api_keys),
            providers=[each.label for each in self._login.providers],
            ends=session.ends * 1000 if session else None,
            token=self._sign_in.forms.token(ui.http) if session else "",
            can_sign_in=self._login.is_offered,
        )

    async def log_out(self, ui: UiRequest) -> Response:
        """End the session."""
        await self._sign_in.forms.read(ui.http)
        _record(ui.http, "logout", is_allowed=True)
        return self._sign_in.end(ui.http)

    def _begin(self, request: Request, identity: Identity, target: str) -> Response:
        response = self._sign_in.begin(request, identity, target)
        _record(request, "login", is_allowed=True)
        return response

    def _identity_of(self, key: str) -> Identity:
        method = next((each for each in self._login.api_keys if each.takes(key)), None)
        if method is None:
            raise UnauthenticatedError("This is not an API key")
        entry = method.find(key)
        return Identity("api_key", entry.id, principal_of_key(entry))

    def _provider(self, issuer: str) -> ProviderLogin:
        found = next((each for each in self._login.providers if each.issuer == issuer), None)
        if found is None:
            raise invalid("Users cannot sign in at this identity provider")
        return found

    def _record_failure(self, request: Request) -> None:
        """Count a failed attempt to sign in.

        The limit is for failures only. Behind a proxy, all users have the same address, and one of
        them could keep the others out. To check a key takes microseconds.

        Raises:
            TooManyRequestsError: (21) too many from its address have failed.
        """
        _record(request, "login", is_allowed=False)
        self._admission.check_failures(self._login.failures, _client(request))
        self._admission.count_failure(self._login.failures, _client(request))

    def _login_page(self, ui: UiRequest, target: str, message: str = "") -> Response:
        cookies: Cookies = ui.http.state.cookies
        return html_page(
            "login.html",
            status=401 if message else 200,
            section="",
            principal=None,
            target=target,
            message=message,
            has_keys=bool(self._login.api_keys),
            providers=[
                (each.label, address(f"{LOGIN_PAGE}/start", issuer=each.issuer, next=target))
                for each in self._login.providers
            ],
            token=self._sign_in.forms.token(ui.http),
            can_be_kept=cookies.can_be_kept,
        )


_ACTIONS = {
    "See": "describe_table",
    "Read": "query_table",
    "Write": "insert_into_table",
    "Alter": "alter_table_add_columns",
    "Create": "create_table",
    "Drop": "drop_table",
}
"""What the page of the account shows: an operation of each group, by the word for the group."""


def _rights(ui: UiRequest) -> dict[str, list[bool]]:
    """Return which of `_ACTIONS` the principal may do on all tables of each visible catalog.

    This is decided for a name that no table has, so that only rights on whole catalogs count.
    """
    gateway, found = ui.gateway, {}
    is_root = not isinstance(gateway.namespace, FederatedNamespace)
    for name in gateway.visible_catalogs(ui.principal):
        catalog = gateway.catalogs[name]
        levels = catalog.capabilities.levels if isinstance(catalog, LanceBridgeNamespace) else 1
        absent = f"absent_{secrets.token_hex(8)}"
        path = (*(() if is_root else (name,)), *[absent] * (levels + 1))
        check = partial(gateway.authorizer.check, ui.principal)
        found[name] = [check(each, path).allowed for each in _ACTIONS.values()]
    return found


def _callback(request: Request) -> str:
    return f"{request.state.cookies.origin}{address(CALLBACK_PAGE)}"


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _record(request: Request, action: str, *, is_allowed: bool) -> None:
    """Record a decision about a session in the audit log."""
    trail_of(request).record(Access(action, ()), Decision(is_allowed))
