"""OpenTelemetry metrics of requests, named by its conventions for HTTP servers.

The process's OpenTelemetry SDK exports them; without an SDK they are dropped.
"""

from __future__ import annotations

from opentelemetry import metrics
from starlette.types import Scope

from ..operations import Operation
from .observed import SERVER_ERROR

Attributes = dict[str, str | int]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BYTES = tuple(1 << exponent for exponent in range(8, 35, 2))
_METHODS = {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}


class HttpInstruments:
    """Counts and measures requests. Safe to share between threads."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._active = meter.create_up_down_counter(
            "http.server.active_requests", "{request}", "Requests in progress."
        )
        self._seconds = meter.create_histogram(
            "http.server.request.duration",
            "s",
            "Time from the head of a request to the end of its response.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._received, self._sent = (
            meter.create_histogram(
                f"http.server.{name}.body.size",
                "By",
                f"Bytes of the body of a {name}.",
                explicit_bucket_boundaries_advisory=_BYTES,
            )
            for name in ("request", "response")
        )

    def begin(self, request: Attributes) -> None:
        """Count a new request. Args: request: The result of `request_attributes`."""
        self._active.add(1, request)

    def end(
        self, request: Attributes, result: Attributes, seconds: float, received: int, sent: int
    ) -> None:
        """Count the end of a request.

        Args:
            result: The result of `result_attributes`.
            received: Bytes of its body.
            sent: Bytes of its response.
        """
        self._active.add(-1, request)
        attributes = {**request, **result}
        self._seconds.record(seconds, attributes)
        self._received.record(received, attributes)
        self._sent.record(sent, attributes)


def request_attributes(scope: Scope) -> Attributes:
    """Return the attributes that are known when a request begins."""
    method = scope["method"]
    known = method if method in _METHODS else "_OTHER"  # clients can send any others
    return {"http.request.method": known, "url.scheme": scope["scheme"]}


def result_attributes(operation: Operation | None, status: int | None, code: str) -> Attributes:
    """Return the attributes that are known when a request has ended.

    Args:
        status: None if the client disconnected first.
        code: The result of `code_label`.
    """
    found: Attributes = {"lance.operation": "other", "lance.code": code}
    if operation is not None:
        found |= {"lance.operation": operation.name, "http.route": operation.path}
    if status is not None:
        found["http.response.status_code"] = status
    if status is None or status >= SERVER_ERROR:
        found["error.type"] = code
    return found
