"""Metrics for Prometheus. With several worker processes, each of them reports the sum.

Labels are operations and codes. Names of objects and principals are not used: their number is
unlimited, and they may be hidden from readers of the metrics.
"""

from __future__ import annotations

import os
from pathlib import Path

from lance_namespace.errors import ErrorCode
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.samples import Sample

from .http_instruments import SECONDS

CONTENT_TYPE = CONTENT_TYPE_LATEST
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The directory of worker processes' metrics. Set it before they start: it is read on import."""


class Metrics:
    """Counts requests. Safe to share between threads."""

    def __init__(self) -> None:
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

    def begin(self) -> None:
        """Count a new request."""
        self._in_flight.inc()

    def end(self, operation: str, code: str, seconds: float, received: int, sent: int) -> None:
        """Count the end of a request.

        Args:
            operation: The operation's name, or ``other``.
            code: The result of `code_label`.
            received: Bytes of its body.
            sent: Bytes of its response.
        """
        self._in_flight.dec()
        self._requests.labels(operation, code).inc()
        self._seconds.labels(operation).observe(seconds)
        self._received.labels(operation).inc(received)
        self._sent.labels(operation).inc(sent)

    def text(self) -> bytes:
        """Return all metrics, in Prometheus' format."""
        return generate_latest(self._all())

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


def code_label(status: int | None, code: int | None) -> str:
    """Return the name of an error code, ``OK``, or ``NONE`` if the client disconnected first."""
    if code is not None:
        return ErrorCode(code).name
    if status is None:
        return "NONE"
    return "OK" if status < 400 else f"HTTP_{status}"


def share_metrics(directory: Path) -> None:
    """Make worker processes that start later share their metrics, in a new directory."""
    directory.mkdir()
    os.environ[DIRECTORY_VARIABLE] = str(directory)


def forget_process(process: int) -> None:
    """Remove the gauges of a worker process that has ended. Its counters stay."""
    mark_process_dead(process)  # type: ignore[no-untyped-call]  # it has no types
