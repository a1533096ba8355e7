"""Metrics and a trace span for each request.

The process's OpenTelemetry SDK exports them; without an SDK they are dropped. Metrics are also
available to Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import context, metrics, propagate, trace
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import (
    SERVER_ERROR,
    Attributes,
    HttpInstruments,
    Metrics,
    code_label,
    observe,
    request_attributes,
    result_attributes,
)

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the current request, also set in its threads."""
_TRACE_HEADERS = ("traceparent", "tracestate")
_TRACER = trace.get_tracer("lance_bridge_server")
_INSTRUMENTS = HttpInstruments(metrics.get_meter("lance_bridge_server"))


class Telemetry:
    """Records the operation, code, duration and size of each request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, received = time.perf_counter(), _CountedReceive(receive)
        answer, request = observe(scope, send), request_attributes(scope)
        self._metrics.begin()
        _INSTRUMENTS.begin(request)
        with _span(scope) as span:
            try:
                with answer.record_failure():
                    await self._app(scope, received, answer)
            finally:
                operation = scope["state"].get("operation")
                label = code_label(answer.status, answer.code)
                result = result_attributes(operation, answer.status, label)
                measured = (time.perf_counter() - started, received.bytes, answer.bytes)
                self._metrics.end(str(result["lance.operation"]), label, *measured)
                _INSTRUMENTS.end(request, result, *measured)
                _end_span(span, result, answer.status)


class _CountedReceive:
    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self.bytes += len(message.get("body", b""))
        return message


@contextmanager
def _span(scope: Scope) -> Iterator[trace.Span]:
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


def _end_span(span: trace.Span, result: Attributes, status: int | None) -> None:
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
