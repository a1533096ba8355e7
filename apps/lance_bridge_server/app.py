"""The gateway as an ASGI application."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import Any

from lance_namespace.errors import (
    ErrorCode,
    LanceNamespaceError,
    PermissionDeniedError,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from lance_bridge.errors import OutcomeUnknownError, internal

from . import lancedb
from .access.origins import LocalHosts
from .errors import error_answer, error_headers, error_of_status
from .gateway.gateway import Gateway
from .http.calls import BodyTooLargeError, MediaTypeError
from .http.endpoint import handle
from .http.exchange import REQUEST_ID_HEADER, Exchanges
from .http.process import Process
from .monitoring import CONTENT_TYPE
from .operations import OPERATIONS, Operation
from .ui import ui_routes

_log = logging.getLogger(__name__)


def create_app(gateway: Gateway, process: Process | None = None) -> Starlette:
    """Return the application that serves a gateway.

    Args:
        process: The state of this process; by default a new one.
    """
    process = process or Process()
    if gateway.queries is not None:
        gateway.queries.on_end = process.metrics.count_query_end
    routes = [_route(gateway, operation, process) for operation in OPERATIONS]
    routes += monitoring_routes(gateway, process)
    if gateway.ui:
        routes += ui_routes(gateway, process)
    handlers: dict[Any, Any] = {
        LanceNamespaceError: _on_error,
        HTTPException: _on_http_error,
        BodyTooLargeError: partial(_on_refused_body, 413),
        MediaTypeError: partial(_on_refused_body, 415),
        Exception: _on_fault,
    }
    app = Starlette(
        routes=routes,
        exception_handlers=handlers,
        middleware=[
            *([gateway.cors.middleware()] if gateway.cors else []),
            Middleware(Exchanges, gateway=gateway, process=process, on_end=_on_end),
            *_host_check(gateway),
        ],
    )
    app.router.redirect_slashes = False
    return app


def _host_check(gateway: Gateway) -> list[Middleware]:
    if gateway.hosts is None:
        return []
    return [Middleware(LocalHosts, names=gateway.hosts, answer=_on_end)]


def _route(gateway: Gateway, operation: Operation, process: Process) -> Route:
    async def endpoint(request: Request) -> Response:
        request.state.operation = operation
        if not operation.is_read:
            _refuse_other_origins(request, gateway.cors.origins if gateway.cors else ())
        request.state.principal = principal = await gateway.authenticate(request)
        request.state.limits = limits = gateway.limits.of(principal)
        request.state.slot = process.admission.admit(limits, principal)
        return await handle(gateway, request, operation)

    return Route(operation.path, endpoint, methods=[operation.method], name=operation.name)


def _refuse_other_origins(request: Request, allowed: Collection[str]) -> None:
    """Refuse a change requested by a web page of another origin (CSRF).

    Browsers send requests without a body, such as a drop, across origins and with the client's
    certificate; a server on this machine without authentication is reachable from every page.

    Args:
        allowed: Origins that the configuration allows, or ``*`` for all.

    Raises:
        PermissionDeniedError: (15)
    """
    origin = request.headers.get("origin")
    if origin is None or origin in allowed or "*" in allowed:
        return
    if origin.partition("://")[2] != request.headers.get("host"):
        raise PermissionDeniedError("Web pages of other origins may not change anything")


# -- errors ----------------------------------------------------------------------------------------


async def _on_error(request: Request, error: LanceNamespaceError) -> Response:
    if error.code == ErrorCode.INTERNAL:  # users report the request id to the operators
        _log.error("Request %s failed", request.state.request_id, exc_info=error)
    return _answer(request, error, error_headers(error))


def _on_end(scope: Scope, error: LanceNamespaceError) -> ASGIApp:
    return _answer(Request(scope), error)


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404 and lancedb.is_lancedb(request):
        return _answer(request, lancedb.unserved_route(request.method, request.url.path))
    message = f"{request.method} {request.url.path}: {error.detail}"
    known = error_of_status(error.status_code, message)
    headers = dict(error.headers or {})
    return error_answer(request, known, status=error.status_code, headers=headers)


async def _on_refused_body(status: int, request: Request, error: Exception) -> Response:
    return error_answer(request, error_of_status(status, str(error)), status=status)


async def _on_fault(request: Request, error: Exception) -> Response:
    # Starlette calls this outside of all middleware, so the header is added here.
    headers = {REQUEST_ID_HEADER.decode(): request.state.request_id}
    return _answer(request, internal("The request", error), headers)


def _answer(
    request: Request, error: LanceNamespaceError, headers: dict[str, str] | None = None
) -> Response:
    status = None
    if lancedb.is_lancedb(request):
        operation = getattr(request.state, "operation", None)
        is_started = getattr(request.state, "is_started", False)
        is_started = is_started or isinstance(error, OutcomeUnknownError)
        status = lancedb.status_of(ErrorCode(error.code), operation, is_started=is_started)
    return error_answer(request, error, status=status, headers=headers)


# -- monitoring ------------------------------------------------------------------------------------


_UNAVAILABLE = 503


def monitoring_routes(gateway: Gateway, process: Process) -> list[Route]:
    """Return the routes. Only metrics need credentials, unless `anonymous_metrics` is set."""
    health = gateway.health

    async def live(_: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def ready(request: Request) -> Response:
        if process.lifecycle.is_stopping:
            return JSONResponse({"status": "stopping"}, _UNAVAILABLE)
        states = await health.states()
        is_ready = health.is_ready(states)
        content = {"status": "ready" if is_ready else "unavailable", "catalogs": states}
        if problems := await _visible_problems(gateway, request):
            content["problems"] = problems
        return JSONResponse(content, 200 if is_ready else _UNAVAILABLE)

    async def metrics(request: Request) -> Response:
        if not gateway.anonymous_metrics:
            await gateway.authenticate(request)
        down = await health.silent_now()  # a scrape does not wait for what is down
        up = {name: name not in down for name in health.catalogs}
        return Response(process.metrics.text(up), media_type=CONTENT_TYPE)

    return [
        Route("/livez", live, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


async def _visible_problems(gateway: Gateway, request: Request) -> dict[str, Any]:
    """Return since when catalogs do not respond, and why, for a principal that may see them."""
    problems = gateway.health.problems()
    if not problems:
        return {}
    try:
        principal = await gateway.authenticate(request)
    except LanceNamespaceError:  # probes need no credentials
        return {}
    return {
        name: {
            "since": problems[name].since.isoformat(timespec="seconds"),
            "error": problems[name].text,
        }
        for name in gateway.visible_catalogs(principal)
        if name in problems
    }
