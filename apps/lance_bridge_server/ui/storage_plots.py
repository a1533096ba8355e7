"""The data of small plots, which templates draw as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_QUANTILES = (("min", "min"), ("p25", "25 %"), ("p50", "50 %"), ("p75", "75 %"), ("max", "max"))
BAR_HEIGHT = 40


@dataclass(frozen=True)
class Bar:
    """A bar of a plot that is `BAR_HEIGHT` high."""

    label: str
    value: int
    height: float


@dataclass(frozen=True)
class FragmentPlot:
    """The distribution of rows over fragments."""

    bars: list[Bar]

    @classmethod
    def of(cls, stats: Any) -> FragmentPlot | None:
        """Return the plot of fragment statistics, or None without fragments."""
        if not stats.num_fragments:
            return None
        largest = max(stats.lengths.max, 1)
        values = [(label, int(getattr(stats.lengths, name))) for name, label in _QUANTILES]
        return cls([Bar(label, n, max(1.0, n / largest * BAR_HEIGHT)) for label, n in values])


def share_percent(part: int | None, rest: int | None) -> float:
    """Return the percentage of a part in its sum with the rest."""
    whole = (part or 0) + (rest or 0)
    return round(100 * (part or 0) / whole, 1) if whole else 0.0


def line_points(values: Sequence[float], width: float, height: float) -> str:
    """Return numbers as points of an SVG polyline, from left to right, lowest at the bottom.

    Numbers that are not finite are left out.
    """
    finite = [each for each in values if abs(each) < float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    step = width / max(len(values) - 1, 1)
    return " ".join(
        f"{i * step:.1f},{height - (each - low) / span * height:.1f}"
        for i, each in enumerate(values)
        if abs(each) < float("inf")
    )
