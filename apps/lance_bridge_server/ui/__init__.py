"""The catalog page: catalogs, tables and rows in a browser, at `/ui`.

It is rendered on the server, and works without scripts. All of its content comes from operations of
the API that run for the principal of the page (`Gateway.call`), so it never shows hidden objects.
Here are its routes, with the authentication, limits and errors of every page.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lance_namespace.errors import LanceNamespaceError, UnauthenticatedError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lance_bridge.errors import internal, invalid

from ..gateway.gateway import Gateway
from ..http.calls import cancelled_on_disconnect
from ..http.lifecycle import Process
from ..operations import Body, Operation
from . import browse, column_page, figures, foreign, rows_page, search_page, table_page
from .browse import error_page
from .caches import Caches
from .health_page import HealthPages
from .rendering import ROOT, static_file
from .request import UiRequest
from .rows_page import send_image, send_rows
from .sign_in import CALLBACK_PAGE, LOGIN_PAGE, LoginPages, SignIn, redirect
from .table_page import TagPages

_log = logging.getLogger(__name__)

Show = Callable[[UiRequest], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """A page: its name for metrics and the audit log, its route, and its function."""

    name: str
    path: str
    show: Show
    method: str = "GET"
    is_public: bool = False
    """Whether it is also served to users who have not signed in."""
    is_read: bool = True
    """Whether it changes nothing in a catalog."""

    def operation(self) -> Operation:
        """Return the operation that metrics and the audit log record for the page."""
        method, is_read = self.method, self.is_read
        return Operation(self.name, self.path, BaseModel, Body.NONE, method=method, is_read=is_read)


PAGES = (
    Page("ui_catalogs", ROOT, browse.show_catalogs),
    Page("ui_namespace", f"{ROOT}/namespace/{{path:path}}", browse.show_namespace),
    Page("ui_figures", f"{ROOT}/figures", figures.send_figures),
    Page("ui_figures", f"{ROOT}/figures/{{path:path}}", figures.send_figures),
    Page("ui_counts", f"{ROOT}/counts/{{path:path}}", figures.send_counts),
    Page("ui_foreign", f"{ROOT}/other/{{path:path}}", foreign.show_foreign),
    Page("ui_search", f"{ROOT}/search", search_page.show_search),
    Page("ui_table", f"{ROOT}/table/{{path:path}}", table_page.show_overview),
    Page("ui_rows", f"{ROOT}/rows/{{path:path}}", rows_page.show_rows),
    Page("ui_column", f"{ROOT}/column/{{path:path}}", column_page.show_column),
    Page("ui_value", f"{ROOT}/value/{{path:path}}", column_page.show_value),
    Page("ui_download", f"{ROOT}/download/{{path:path}}", send_rows),
    Page("ui_image", f"{ROOT}/image/{{path:path}}", send_image),
    Page("ui_versions", f"{ROOT}/versions/{{path:path}}", table_page.show_versions),
    Page("ui_connect", f"{ROOT}/connect/{{path:path}}", table_page.show_connect),
)


def ui_routes(gateway: Gateway, process: Process) -> list[Route]:
    """Return the routes of the catalog page.

    Only the pages for signing in and the files that pages load need no credentials.
    """
    sign_in = SignIn(gateway, process)
    caches = Caches()
    pages = [*PAGES, *_login_pages(LoginPages(sign_in, process.admission))]
    pages += _action_pages(sign_in)
    pages += _health_pages(HealthPages(gateway, process, sign_in.forms))
    pages.append(Page("ui_missing", f"{ROOT}/{{path:path}}", _show_missing))
    return [
        Route("/", _lead_to_pages, methods=["GET"]),
        Route(f"{ROOT}/static/{{name}}", _send_file, methods=["GET"]),
        *(_route(sign_in, gateway, process, caches, page) for page in pages),
    ]


def _login_pages(pages: LoginPages) -> list[Page]:
    login = f"{ROOT}/{LOGIN_PAGE}"
    return [
        Page("ui_login_form", login, pages.show_login, is_public=True),
        Page("ui_login", login, pages.log_in_by_key, "POST", is_public=True),
        Page("ui_login_start", f"{login}/start", pages.start_at_provider, is_public=True),
        Page("ui_login", f"{ROOT}/{CALLBACK_PAGE}", pages.finish_at_provider, is_public=True),
        Page("ui_account", f"{ROOT}/account", pages.show_account),
        Page("ui_logout", f"{ROOT}/logout", pages.log_out, "POST"),
    ]


def _action_pages(sign_in: SignIn) -> list[Page]:
    """Return the pages that change something."""
    tags, path = TagPages(sign_in.forms), f"{ROOT}/tag/{{path:path}}"
    return [
        Page("ui_tag_form", path, tags.ask),
        Page("ui_tag", path, tags.create, "POST", is_read=False),
    ]


def _health_pages(pages: HealthPages) -> list[Page]:
    return [
        Page("ui_health", f"{ROOT}/health", pages.show_health),
        Page("ui_doctor_form", f"{ROOT}/doctor", pages.ask_doctor),
        Page("ui_doctor", f"{ROOT}/doctor", pages.run_doctor, "POST"),
        Page("ui_report", f"{ROOT}/report/{{path:path}}", pages.send_report),
    ]


def _route(
    sign_in: SignIn, gateway: Gateway, process: Process, caches: Caches, page: Page
) -> Route:
    operation = page.operation()

    async def endpoint(request: Request) -> Response:
        request.state.operation = operation
        request.state.principal = request.state.session = None
        try:
            response = await _show(sign_in, UiRequest(gateway, request, caches), process, page)
        except UnauthenticatedError as error:
            may_sign_in = request.state.principal is None and not page.is_public
            answer = sign_in.ask(request) if may_sign_in else None
            response = answer or error_page(request, error)
        except LanceNamespaceError as error:
            response = error_page(request, error)
        except Exception as error:  # noqa: BLE001 - a page says that it failed, whatever failed
            _log.exception("%s failed", page.name)
            response = error_page(request, internal("The page", error))
        request.state.cookies.apply(response)
        return response

    return Route(page.path, endpoint, methods=[page.method], name=page.name)


async def _show(sign_in: SignIn, ui: UiRequest, process: Process, page: Page) -> Response:
    """Authenticate and admit a request, and return its page."""
    state = ui.http.state
    await sign_in.identify(ui.http, is_required=not page.is_public)
    if state.principal is not None:
        limits = ui.gateway.limits.of(state.principal)
        process.admission.admit(ui.http.scope["state"], limits, state.principal)
    if page.method != "GET":  # its form is still to be received
        return await page.show(ui)
    async with cancelled_on_disconnect(ui.http, ui.runs):
        return await page.show(ui)


async def _show_missing(ui: UiRequest) -> Response:
    error = invalid("There is no page at this address")
    return error_page(ui.http, error, status=404)


async def _lead_to_pages(request: Request) -> Response:
    """Redirect a browser that opens the address of the server. Raises HTTPException for clients."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)
    return redirect(ROOT)


async def _send_file(request: Request) -> Response:
    found = static_file(request.path_params["name"])
    return found or Response(status_code=404)
