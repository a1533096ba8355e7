"""The pages for signing in and out."""

from __future__ import annotations

from lance_namespace.errors import UnauthenticatedError
from starlette.requests import Request
from starlette.responses import Response

from lance_bridge.errors import invalid

from ..audit import trail_of
from ..authentication.api_keys import principal_of
from ..authorization.accesses import Access
from ..authorization.port import Decision
from ..limits import Admission
from ..login import Identity, LoginAttempt, ProviderLogin
from ..monitoring.observed import observed
from .cookies import LOGIN, Cookies
from .rendering import html_page
from .sign_in import LOGIN_PAGE, SignIn, redirect
from .ui_request import UiRequest, error_text
from .urls import address

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
            observed(ui.http.scope).code = error.code.value
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
        """Return the page that shows who is signed in."""
        session = ui.http.state.session
        return html_page(
            "account.html",
            section="",
            principal=ui.principal,
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
        return Identity("api_key", entry.id, principal_of(entry))

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


def _callback(request: Request) -> str:
    return f"{request.state.cookies.origin}{address(CALLBACK_PAGE)}"


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _record(request: Request, action: str, *, is_allowed: bool) -> None:
    """Record a decision about a session in the audit log."""
    trail_of(request).record(Access(action, ()), Decision(is_allowed))
