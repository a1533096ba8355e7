"""The plots of a report: bars of the largest tables, as elements of the page.

Where the largest of them is far from the smallest, bars are logarithmic: else most of them could
not be seen. Parts of a bar mean nothing there, so that a table has one bar for its whole time.

Colours are those of Okabe and Ito, which people with colour blindness can distinguish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..plan import ItemType
from .model import ItemLine, Report

MAX_ROWS = 30
"""Tables of a plot."""

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
_OTHERS, _OTHERS_COLOUR = "other steps", "#999999"
_MAX_RATIO = 30
"""How many times the smallest bar the longest is where bars become logarithmic."""


@dataclass(frozen=True)
class Row:
    """One table of a plot.

    Attributes:
        bars: The value of each series, in seconds, bytes or rows.
        rank: How large the table is: the largest are shown.
    """

    item: ItemLine
    bars: Mapping[str, float]
    rank: float


@dataclass(frozen=True)
class Plot:
    """Bars of tables, the largest ones.

    Attributes:
        quantity: What the bars show, which says how the template writes the value of a row.
        colours: Of each series, in the order in which bars are drawn.
        left_out: How many tables are not shown.
        is_stacked: Whether a table's bars are parts of one.
    """

    title: str
    quantity: str
    colours: Mapping[str, str]
    rows: Sequence[Row]
    left_out: int = 0
    is_stacked: bool = False
    is_logarithmic: bool = False

    @property
    def lengths(self) -> list[float]:
        """All bars that have a length; stacked ones count as one bar."""
        if self.is_stacked:
            return [total for row in self.rows if (total := sum(row.bars.values())) > 0]
        return [length for row in self.rows for length in row.bars.values() if length > 0]

    def width(self, length: float) -> float:
        """Return the width of a bar, in percent of the longest one."""
        longest = max(self.lengths, default=0.0)
        if not length:
            return 0.0
        if not self.is_logarithmic:
            return round(100 * length / longest, 2)
        least = min(self.lengths) / 3  # so that the shortest bar has a width, too
        return round(100 * math.log(length / least) / math.log(longest / least), 2)


def plots_of(report: Report) -> list[Plot]:
    """Return the plots for which there are values."""
    tables = [each for each in report.items if each.type is ItemType.TABLE]
    found = [_times(tables), _sizes(tables), _bytes_per_second(tables), _rows_per_second(tables)]
    return [plot for plot in found if plot.rows]


def _times(tables: Sequence[ItemLine]) -> Plot:
    """Return the time of each table, by step; the steps that took longest have colours."""
    steps = [
        (table, {step.name: step.seconds for step in table.steps if step.seconds is not None})
        for table in tables
    ]
    sums: dict[str, float] = {}
    for _, times in steps:
        for name, seconds in times.items():
            sums[name] = sums.get(name, 0.0) + seconds
    kept = sorted(sums, key=lambda name: -sums[name])[: len(_COLOURS)]
    colours = dict(zip((name for name in sums if name in kept), _COLOURS, strict=False))
    if len(sums) > len(kept):
        colours[_OTHERS] = _OTHERS_COLOUR
    rows = []
    for table, times in steps:
        bars = dict.fromkeys(colours, 0.0)
        for name, seconds in times.items():
            bars[name if name in bars else _OTHERS] += seconds
        if times:
            rows.append(Row(table, bars, sum(times.values())))
    return _largest(Plot("Time by step", "time", colours, rows, is_stacked=True))


def _sizes(tables: Sequence[ItemLine]) -> Plot:
    rows = []
    for table in tables:
        if table.bytes_before is not None or table.bytes_after is not None:
            bars = {"before": table.bytes_before or 0, "after": table.bytes_after or 0}
            rows.append(Row(table, bars, max(bars.values())))
    colours = dict(zip(("before", "after"), _COLOURS, strict=False))
    return _largest(Plot("Sizes before and after", "size", colours, rows))


def _bytes_per_second(tables: Sequence[ItemLine]) -> Plot:
    rows = [
        Row(table, {"": table.bytes_per_second}, table.bytes_written or 0)
        for table in tables
        if table.bytes_per_second is not None
    ]
    return _largest(Plot("Bytes written per second", "speed", {"": _COLOURS[0]}, rows))


def _rows_per_second(tables: Sequence[ItemLine]) -> Plot:
    rows = [
        Row(table, {"": table.rows_per_second}, table.rows_written or 0)
        for table in tables
        if table.rows_per_second is not None
    ]
    return _largest(Plot("Rows written per second", "rate", {"": _COLOURS[0]}, rows))


def _largest(plot: Plot) -> Plot:
    """Return a plot of the largest tables, the largest first."""
    ranked = sorted(plot.rows, key=lambda row: -row.rank)
    plot = replace(plot, rows=ranked[:MAX_ROWS], left_out=max(0, len(ranked) - MAX_ROWS))
    if not plot.lengths or max(plot.lengths) <= _MAX_RATIO * min(plot.lengths):
        return plot
    if plot.is_stacked:
        whole = [replace(row, bars={"": sum(row.bars.values())}) for row in plot.rows]
        plot = replace(plot, title="Time", rows=whole, colours={"": _COLOURS[0]}, is_stacked=False)
    return replace(plot, is_logarithmic=True)
