"""Summarizes the requests of a server: count, errors and duration."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ..monitoring.metrics import Metrics

_OK = "OK"
_MEDIAN, _SLOWEST = 0.5, 0.95


@dataclass(frozen=True)
class OperationSummary:
    """The requests for one operation, or one page."""

    operation: str
    requests: int
    errors: dict[str, int]
    """The number of failed requests, by code."""
    median: float | None
    """The approximate median duration in seconds; None if unknown."""
    slowest: float | None
    """The approximate 95th percentile of the duration in seconds; None if unknown."""


def summarize(metrics: Metrics) -> list[OperationSummary]:
    """Return the summary of each operation, ordered by the number of requests."""
    codes: dict[str, dict[str, int]] = defaultdict(dict)
    for each in metrics.samples("lance_bridge_requests"):
        if each.name.endswith("_total"):
            codes[each.labels["operation"]][each.labels["code"]] = int(each.value)
    buckets: dict[str, dict[float, float]] = defaultdict(dict)
    for each in metrics.samples("lance_bridge_request_seconds"):
        if each.name.endswith("_bucket"):
            buckets[each.labels["operation"]][float(each.labels["le"])] = each.value
    found = [
        OperationSummary(
            operation,
            sum(counts.values()),
            {code: count for code, count in sorted(counts.items()) if code != _OK},
            quantile(buckets[operation], _MEDIAN),
            quantile(buckets[operation], _SLOWEST),
        )
        for operation, counts in codes.items()
    ]
    return sorted(found, key=lambda each: (-each.requests, each.operation))


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return a quantile of a histogram, as Prometheus' ``histogram_quantile`` does.

    Args:
        buckets: How many values are at most each limit, including infinity.
    """
    limits = sorted(buckets)
    wanted = share * buckets[limits[-1]] if limits else 0.0
    below, lower = 0.0, 0.0
    for limit in limits if wanted else ():
        if buckets[limit] >= wanted:
            if math.isinf(limit):
                return lower or None
            part = (wanted - below) / (buckets[limit] - below)
            return lower + (limit - lower) * part
        below, lower = buckets[limit], limit
    return None
