"""A trace span for each request.

The process's OpenTelemetry SDK exports it; without an SDK it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import context, propagate, trace
from starlette.requests import Request
from starlette.types import Scope

from .metrics import (
    SERVER_ERROR,
    Attributes,
)

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the current request, also set in its threads."""
_TRACE_HEADERS = ("traceparent", "tracestate")
_TRACER = trace.get_tracer("lance_bridge_server")


@contextmanager
def span_of(scope: Scope) -> Iterator[trace.Span]:
    """Start a span as a child of the client's. Calls to catalogs become its children."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    parent = propagate.extract(headers)
    span = _TRACER.start_span("request", parent, trace.SpanKind.SERVER)
    token = context.attach(trace.set_span_in_context(span, parent))
    try:
        yield span
    finally:
        context.detach(token)
        span.end()


def end_span(span: trace.Span, result: Attributes, status: int | None) -> None:
    """Record the result of a request. Args: result: The result of `result_attributes`."""
    if not span.is_recording():
        return
    span.update_name(str(result["lance.operation"]))
    for key, value in result.items():
        span.set_attribute(key, value)
    if status is None or status >= SERVER_ERROR:
        span.set_status(trace.StatusCode.ERROR)


def request_context(request: Request) -> dict[str, str]:
    """Return the headers for the catalog: the request's id and trace.

    They make the catalog's spans children of the current one.
    """
    found = {name: request.headers[name] for name in _TRACE_HEADERS if name in request.headers}
    propagate.inject(found)
    found["x-request-id"] = request.state.request_id
    return {f"header.{name}": value for name, value in found.items()}
