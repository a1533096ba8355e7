"""Metrics and trace spans of requests, for Prometheus and for the process's OpenTelemetry SDK."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from lance_namespace.errors import ErrorCode
from opentelemetry import context, metrics, propagate, trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.samples import Sample
from starlette.requests import Request
from starlette.types import Scope

from .operations import Operation

# -- metrics ---------------------------------------------------------------------------------------


_ERROR = 400
SERVER_ERROR = 500
"""The lowest status of server errors."""

Attributes = dict[str, str | int]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BYTES = tuple(1 << exponent for exponent in range(8, 35, 2))
_METHODS = {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}


class Instruments:
    """Instruments of OpenTelemetry, by its conventions for HTTP servers."""

    def __init__(self, meter: metrics.Meter) -> None:
        self.active = meter.create_up_down_counter(
            "http.server.active_requests", "{request}", "Requests in progress."
        )
        self.seconds = meter.create_histogram(
            "http.server.request.duration",
            "s",
            "Time from the head of a request to the end of its response.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.received, self.sent = (
            meter.create_histogram(
                f"http.server.{name}.body.size",
                "By",
                f"Bytes of the body of a {name}.",
                explicit_bucket_boundaries_advisory=_BYTES,
            )
            for name in ("request", "response")
        )


def result_attributes(
    operation: Operation | None, status: int | None, code: int | None
) -> Attributes:
    """Return the attributes that are known when a request has ended.

    The label of its code is that of its error, ``OK``, or ``NONE`` if the client disconnected
    first.

    Args:
        status: None if the client disconnected first.
        code: The code of its error, if that has one.
    """
    if code is not None:
        label = ErrorCode(code).name
    elif status is None:
        label = "NONE"
    else:
        label = "OK" if status < _ERROR else f"HTTP_{status}"
    found: Attributes = {"lance.operation": "other", "lance.code": label}
    if operation is not None:
        found |= {"lance.operation": operation.name, "http.route": operation.path}
    if status is not None:
        found["http.response.status_code"] = status
    if status is None or status >= SERVER_ERROR:
        found["error.type"] = label
    return found


CONTENT_TYPE = CONTENT_TYPE_LATEST
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The directory of worker processes' metrics. Set it before they start: it is read on import."""


class Metrics:
    """Counts and measures requests. Safe to share between threads."""

    def __init__(self, meter: metrics.Meter | None = None) -> None:
        """Args: meter: By default that of the process's OpenTelemetry SDK."""
        self._instruments = Instruments(meter or metrics.get_meter("lance_bridge_server"))
        self._registry = registry = CollectorRegistry()
        self._is_shared = DIRECTORY_VARIABLE in os.environ
        if not self._is_shared:
            ProcessCollector(registry=registry)
        self._requests = Counter(
            "lance_bridge_requests",
            "Completed requests, by operation and response code.",
            ["operation", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "lance_bridge_request_seconds",
            "Time from the head of a request to the end of its response.",
            ["operation"],
            buckets=SECONDS,
            registry=registry,
        )
        self._received = Counter(
            "lance_bridge_received_bytes", "Bytes of bodies.", ["operation"], registry=registry
        )
        self._sent = Counter(
            "lance_bridge_sent_bytes", "Bytes of response bodies.", ["operation"], registry=registry
        )
        self._in_flight = Gauge(
            "lance_bridge_requests_in_flight",
            "Requests in progress.",
            multiprocess_mode="livesum",
            registry=registry,
        )

        self._ended = Counter(
            "lance_bridge_query_process_ends",
            "Processes that ended before their query, by reason.",
            ["reason"],
            registry=registry,
        )

    def begin(self, scope: Scope) -> Attributes:
        """Count a new request, and return its attributes."""
        method = scope["method"]
        known = method if method in _METHODS else "_OTHER"  # clients can send any others
        request: Attributes = {"http.request.method": known, "url.scheme": scope["scheme"]}
        self._in_flight.inc()
        self._instruments.active.add(1, request)
        return request

    def end(
        self, request: Attributes, result: Attributes, seconds: float, received: int, sent: int
    ) -> None:
        """Count the end of a request.

        Args:
            request: What `begin` returned.
            result: The result of `result_attributes`.
            received: Bytes of its body.
            sent: Bytes of its response.
        """
        operation, code = result["lance.operation"], result["lance.code"]
        self._in_flight.dec()
        self._requests.labels(operation, code).inc()
        self._seconds.labels(operation).observe(seconds)
        self._received.labels(operation).inc(received)
        self._sent.labels(operation).inc(sent)
        instruments, attributes = self._instruments, {**request, **result}
        instruments.active.add(-1, request)
        instruments.seconds.record(seconds, attributes)
        instruments.received.record(received, attributes)
        instruments.sent.record(sent, attributes)

    def count_query_end(self, reason: str) -> None:
        """Count a process that ended before its query. Args: reason: Why."""
        self._ended.labels(reason).inc()

    def text(self, catalogs: Mapping[str, bool]) -> bytes:
        """Return all metrics, in Prometheus' format.

        Args:
            catalogs: Whether each catalog responds, as this process knows it.
        """
        return generate_latest(self._all()) + generate_latest(_CatalogStates(catalogs))

    def samples(self, name: str) -> list[Sample]:
        """Return the samples of a metric, such as ``lance_bridge_requests``."""
        found = (each for each in self._all().collect() if each.name == name)
        return [sample for each in found for sample in each.samples]

    def _all(self) -> CollectorRegistry:
        if not self._is_shared:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
        return registry


class _CatalogStates(CollectorRegistry):
    """The gauge of the catalogs, whose states are not added up over processes."""

    def __init__(self, catalogs: Mapping[str, bool]) -> None:
        super().__init__()
        self._catalogs = catalogs

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge."""
        found = GaugeMetricFamily(
            "lance_bridge_catalog_up", "1 if the catalog responds, else 0.", labels=["catalog"]
        )
        for name, is_up in self._catalogs.items():
            found.add_metric([name], float(is_up))
        yield found


def share_metrics(directory: Path) -> None:
    """Make worker processes that start later share their metrics, in a new directory."""
    directory.mkdir()
    os.environ[DIRECTORY_VARIABLE] = str(directory)


def forget_process(process: int) -> None:
    """Remove the gauges of a worker process that has ended. Its counters stay."""
    mark_process_dead(process)  # type: ignore[no-untyped-call]  # it has no types


# -- traces ----------------------------------------------------------------------------------------


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
