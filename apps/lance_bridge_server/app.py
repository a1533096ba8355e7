"""The gateway as an ASGI application: its routes, the requests for operations, and errors."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
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

from lance_bridge.dotted_names import DELIMITER
from lance_bridge.errors import OutcomeUnknownError, internal

from . import lancedb
from .access.origins import LocalHosts
from .access.visibility import no_store
from .errors import error_answer, error_headers, error_of_status, public_text
from .gateway.gateway import LARGE_BODY, Execution, Gateway
from .gateway.threads import TimeLimit, requested_seconds
from .http.calls import (
    BodyTooLargeError,
    MediaTypeError,
    cancelled_on_disconnect,
    check_batch,
    parse_call,
    read_body,
    receive_within,
    require_no_encoding,
)
from .http.exchange import REQUEST_ID_HEADER, Exchanges
from .http.lifecycle import Process
from .http.streams import ARROW_FILE, ARROW_STREAM, RowsResponse, UploadedFile
from .monitoring import CONTENT_TYPE
from .operations import OPERATIONS, Answer, Body, Call, Operation
from .queries.runs import Run
from .ui import ui_routes

_log = logging.getLogger(__name__)

_SMALL_BODY = 64 << 10
"""A JSON body that is parsed in the event loop."""


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
        process.admission.admit(request.scope["state"], limits, principal)
        limit = TimeLimit(min(gateway.limits.operation_seconds, requested_seconds(request.headers)))
        size = int(request.headers.get("content-length") or 0)
        is_small = size <= LARGE_BODY and "transfer-encoding" not in request.headers
        if is_small or operation.body is Body.ROWS:  # rows are not held in memory
            return await _handle(gateway, request, operation, limit)
        async with gateway.room_for_body(principal, limit):
            return await _handle(gateway, request, operation, limit)

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


# -- operations ------------------------------------------------------------------------------------


async def _handle(
    gateway: Gateway, request: Request, operation: Operation, limit: TimeLimit
) -> Response:
    """Handle one request, and return its response.

    Raises:
        LanceNamespaceError: What the operation raises; not found for hidden objects.
    """
    limits = gateway.limits
    most, seconds = request.state.limits.body_bytes, min(limits.stall_seconds, limit.seconds)
    require_no_encoding(request)
    takes_rows = operation.body is Body.ROWS
    body = b"" if takes_rows else await read_body(request, most, seconds)
    prepare = partial(_prepare, gateway, request, operation, body)
    if len(body) <= _SMALL_BODY:
        call, model = prepare()
    else:  # other requests need not wait for it
        call, model = await gateway.parsing.run(prepare, request.state.principal.name, limit)
    arguments: list[Any] = [model]
    if takes_rows:
        upload = UploadedFile(request, limits.stall_seconds, limits.batch_bytes)
        with receive_within(limit.remaining):
            small = await upload.read_small()
        arguments.append(upload if small is None else small)
    run = Run(limit.remaining)
    execution = gateway.execution(request, call, arguments, run)
    work = partial(execution.run, _Responder(gateway, execution, limit, run).respond)
    catalog = gateway.catalog_of(call.fields.get("id"))
    if not (operation.is_query and operation.is_read):  # a change has to be recorded
        return await gateway.run(request, work, call.operation, limit, catalog, query=run)
    async with cancelled_on_disconnect(request, run):
        return await gateway.run(request, work, call.operation, limit, catalog, query=run)


def _prepare(
    gateway: Gateway, request: Request, operation: Operation, body: bytes
) -> tuple[Call, Any]:
    """Return the call in a request, translated for the namespace, and its request model."""
    call = parse_call(request, operation, body)
    if call.is_lancedb:
        call = replace(call, fields=lancedb.translate_request(call.operation.name, call.fields))
    path = lancedb.database_of(request, gateway.databases)
    if path is not None:
        call = _in_database(call, path)
    check_batch(call, gateway.limits.batch_entries)
    model = call.model()
    # The model has a large vector, too: a request that waits need not keep both.
    kept = {name: value for name, value in call.fields.items() if name != "vector"}
    return replace(call, fields=kept), model


def _in_database(call: Call, path: list[str]) -> Call:
    """Prepend the path of LanceDB's database to the identifiers of a call."""
    is_list = call.operation.name == "list_all_tables"
    operation = lancedb.TABLE_NAMES if is_list else call.operation
    fields = lancedb.in_database(path, operation.name, call.fields)
    return replace(call, operation=operation, fields=fields)


@dataclass(frozen=True)
class _Responder:
    """Makes responses for a client of the API."""

    gateway: Gateway
    execution: Execution
    limit: TimeLimit
    run: Run

    def respond(self, result: Any) -> Response:
        """Return the response with the result of an operation. Called in the operation's thread."""
        call = self.execution.call
        operation = call.operation
        if operation.answer is Answer.EMPTY:
            return Response(status_code=operation.status)
        if operation.answer is Answer.ROWS:
            return self._rows(result)
        content = _to_json(result)
        if operation.name == "list_all_tables" and call.delimiter != DELIMITER:
            content["tables"] = [
                name.replace(DELIMITER, call.delimiter) for name in content["tables"]
            ]
        if operation.answer is Answer.METADATA:
            content = content.get("metadata", {}) if isinstance(content, dict) else content
        elif operation.answer is Answer.VALUE and isinstance(content, dict):
            content = content["count"]
        headers = no_store(content)
        if call.is_lancedb:
            namespace, request = self.execution.namespace, self.execution.arguments[0]
            content = lancedb.translate_answer(namespace, operation.name, request, content)
            headers |= self._version_header(content)
        return JSONResponse(content, operation.status, headers)

    def _version_header(self, answer: Any = None) -> dict[str, str]:
        version = lancedb.version_of(answer)
        return lancedb.version_header(
            version or getattr(self.execution.state, "read_version", None)
        )

    def _rows(self, result: Any) -> Response:
        if isinstance(result, pa.RecordBatchReader):
            media_type = ARROW_STREAM if self.execution.call.is_lancedb else ARROW_FILE
            seconds, senders = self.gateway.limits.stall_seconds, self.gateway.senders
            headers = self._version_header()
            run, limit = self.run, self.limit
            return RowsResponse(
                result, media_type, seconds, senders, limit, run=run, headers=headers
            )
        return Response(result if isinstance(result, bytes) else result.data, media_type=ARROW_FILE)


def _to_json(result: Any) -> Any:
    if hasattr(result, "model_dump"):
        content = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        context = content.get("context")  # where a federation reports unavailable catalogs
        if context:
            unavailable = ErrorCode.SERVICE_UNAVAILABLE
            content["context"] = {
                key: public_text(text, unavailable) for key, text in context.items()
            }
        return content
    return result


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
