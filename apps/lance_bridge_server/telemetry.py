"""Metrics and a trace span for each request.

Spans go where the process's OpenTelemetry SDK sends them, and nowhere without one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context, propagate, trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics, code_label
from .observed import observe

_SERVER_ERROR = 500
_TRACER = trace.get_tracer("lance_bridge_server")


class Telemetry:
    """Records each request: its operation, its code, its time, and how much was sent."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, received = time.perf_counter(), _CountedReceive(receive)
        answer = observe(scope, send)
        self._metrics.begin()
        with _span(scope) as span:
            try:
                with answer.record_failure():
                    await self._app(scope, received, answer)
            finally:
                operation = scope["state"].get("operation")
                name = operation.name if operation else None
                label = code_label(answer.status, answer.code)
                seconds = time.perf_counter() - started
                self._metrics.end(name, label, seconds, received.bytes, answer.bytes)
                _end_span(span, name, label, answer.status)


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
    """Begin a span, as a child of the client's; calls to catalogs are children of it."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    parent = propagate.extract(headers)
    span = _TRACER.start_span("request", parent, trace.SpanKind.SERVER)
    token = context.attach(trace.set_span_in_context(span, parent))
    try:
        yield span
    finally:
        context.detach(token)
        span.end()


def _end_span(span: trace.Span, operation: str | None, code: str, status: int | None) -> None:
    if not span.is_recording():
        return
    span.update_name(operation or "other")
    span.set_attribute("lance.operation", operation or "other")
    span.set_attribute("lance.code", code)
    if status is not None:
        span.set_attribute("http.response.status_code", status)
    if status is None or status >= _SERVER_ERROR:
        span.set_status(trace.StatusCode.ERROR)


def trace_headers() -> dict[str, str]:
    """Return the headers with which a catalog's spans become children of the current one."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
