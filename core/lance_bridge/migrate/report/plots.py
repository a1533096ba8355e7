"""The plots of a report: bars of the largest tables, drawn by matplotlib.

Each table has a line for its name and its value, and its bars below: no name is so long that it
meets another. Colours are those of Okabe and Ito, which people see apart who see few colours.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..plan import What
from . import shown
from .model import ItemLine, Report
from .svg import BACKGROUND, FOREGROUND

SHOWN = 30
"""Tables of a plot."""

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
_ONE = {"": _COLOURS[0]}
_OTHERS, _OTHERS_COLOUR = "other steps", "#999999"
_NAME_COLUMNS = 28
_WIDTH, _SIDE, _BOTTOM, _TOP = 5.0, 0.1, 0.5, 0.05
_NAME, _BAR, _GAP = 0.19, 0.13, 0.08
"""Inches: the figure and its margins; and of each table, its name, one bar, and what is below."""
_NAME_SIZE, _TICK_SIZE = 8, 7.5
_INSET = 0.008
"""Of a name from the axis, as a part of the width."""


@dataclass(frozen=True)
class Row:
    """One table of a plot.

    Attributes:
        text: Its value in words.
        bars: The length of each bar, in the unit of the axis.
        rank: How large the table is: the largest are shown.
    """

    name: str
    text: str
    bars: Mapping[str, float]
    rank: float


@dataclass(frozen=True)
class Plot:
    """Bars of tables, the largest ones.

    Attributes:
        axis: What the axis shows, with its unit.
        colours: Of each series, in the order in which bars are drawn.
        left_out: How many tables are not shown.
        is_stacked: Whether a table's bars are put behind one another.
    """

    title: str
    axis: str
    colours: Mapping[str, str]
    rows: Sequence[Row]
    left_out: int = 0
    is_stacked: bool = False

    @property
    def text(self) -> str:
        """What the plot shows, in words."""
        return "; ".join(f"{shown.cut(row.name, 100)}: {row.text}" for row in self.rows)


def plots_of(report: Report) -> list[Plot]:
    """Return the plots that there is something to show in."""
    tables = [each for each in report.items if each.what is What.TABLE]
    found = [_times(tables), _sizes(tables), _bytes_per_second(tables), _rows_per_second(tables)]
    return [plot for plot in found if plot.rows]


# -- what is shown ---------------------------------------------------------------------------------


def _times(tables: Sequence[ItemLine]) -> Plot:
    """Return the time of each table, by step; the steps that took longest have colours."""
    sums: dict[str, float] = {}
    for each in tables:
        for name, seconds in _by_step(each).items():
            sums[name] = sums.get(name, 0.0) + seconds
    kept = sorted(sums, key=lambda name: -sums[name])[: len(_COLOURS)]
    colours = dict(zip((name for name in sums if name in kept), _COLOURS, strict=False))
    if len(sums) > len(kept):
        colours[_OTHERS] = _OTHERS_COLOUR
    totals = [sum(_by_step(each).values()) for each in tables]
    divisor, unit = _time_scale(max(totals, default=0.0))

    def bars(each: ItemLine) -> dict[str, float]:
        found = dict.fromkeys(colours, 0.0)
        for name, seconds in _by_step(each).items():
            found[name if name in found else _OTHERS] += seconds / divisor
        return found

    rows = [
        Row(each.name, shown.seconds(each.seconds), bars(each), total)
        for each, total in zip(tables, totals, strict=True)
        if _by_step(each)
    ]
    return _largest("Time by step", f"time in {unit}", colours, rows, is_stacked=True)


def _by_step(item: ItemLine) -> dict[str, float]:
    return {each.name: each.seconds for each in item.steps if each.seconds is not None}


def _time_scale(largest: float) -> tuple[float, str]:
    for divisor, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if largest >= 2 * divisor:
            return divisor, unit
    return 1.0, "seconds"


def _sizes(tables: Sequence[ItemLine]) -> Plot:
    known = [
        (each, {"before": each.bytes_before or 0, "after": each.bytes_after or 0})
        for each in tables
        if each.bytes_before is not None or each.bytes_after is not None
    ]
    divisor, unit = shown.size_scale(max((max(b.values()) for _, b in known), default=0))
    rows = [
        Row(
            each.name,
            f"{shown.size(each.bytes_before)} → {shown.size(each.bytes_after)}",
            {side: size / divisor for side, size in sizes.items()},
            max(sizes.values()),
        )
        for each, sizes in known
    ]
    colours = dict(zip(("before", "after"), _COLOURS, strict=False))
    return _largest("Sizes before and after", f"size of the data in {unit}", colours, rows)


def _bytes_per_second(tables: Sequence[ItemLine]) -> Plot:
    known = [(t, t.bytes_per_second) for t in tables if t.bytes_per_second is not None]
    divisor, unit = shown.size_scale(max((each for _, each in known), default=0.0))
    rows = [
        Row(t.name, shown.speed(each), {"": each / divisor}, t.bytes_written or 0)
        for t, each in known
    ]
    return _largest("Bytes written in a second", f"throughput in {unit}/s", _ONE, rows)


def _rows_per_second(tables: Sequence[ItemLine]) -> Plot:
    known = [(t, t.rows_per_second) for t in tables if t.rows_per_second is not None]
    divisor, unit = shown.row_scale(max((each for _, each in known), default=0.0))
    rows = [
        Row(t.name, shown.rate(each), {"": each / divisor}, t.rows_written or 0)
        for t, each in known
    ]
    return _largest("Rows written in a second", f"throughput in {unit}/s", _ONE, rows)


def _largest(
    title: str,
    axis: str,
    colours: Mapping[str, str],
    rows: Iterable[Row],
    *,
    is_stacked: bool = False,
) -> Plot:
    """Return a plot of the largest tables, the largest first."""
    ranked = sorted(rows, key=lambda row: -row.rank)
    left_out = max(0, len(ranked) - SHOWN)
    return Plot(title, axis, colours, ranked[:SHOWN], left_out, is_stacked)


# -- how it is drawn -------------------------------------------------------------------------------


def figure_of(plot: Plot) -> Figure:
    """Return a plot as a figure of matplotlib's, as high as its tables need."""
    bars = 1 if plot.is_stacked else len(plot.colours)
    height_of_row = _NAME + bars * _BAR + _GAP
    height = _TOP + len(plot.rows) * height_of_row + _BOTTOM
    figure = Figure(figsize=(_WIDTH, height))
    sides = (_SIDE / _WIDTH, _BOTTOM / height)
    inner = (1 - 2 * sides[0], len(plot.rows) * height_of_row / height)
    axes = figure.add_axes((*sides, *inner))
    axes.set_ylim(len(plot.rows) * height_of_row, 0)
    for number, row in enumerate(plot.rows):
        _draw(axes, plot, row, number * height_of_row)
    _dress(axes, plot)
    return figure


def _draw(axes: Axes, plot: Plot, row: Row, top: float) -> None:
    across = axes.get_yaxis_transform()
    baseline = top + _NAME - 0.045
    label: Callable[..., object] = axes.text
    style = {
        "transform": across,
        "parse_math": False,
        "fontsize": _NAME_SIZE,
        "color": FOREGROUND,
        "bbox": {"facecolor": BACKGROUND, "edgecolor": "none", "pad": 0.5},
    }
    label(_INSET, baseline, label_of(row.name), ha="left", **style)
    label(1, baseline, row.text, ha="right", **style)
    begin, place = 0.0, top + _NAME + _BAR / 2
    for series, value in row.bars.items():
        axes.barh(place, value, left=begin, height=_BAR * 0.92, color=plot.colours[series],
                  edgecolor=BACKGROUND, linewidth=0.3, clip_on=False)  # fmt: skip
        if plot.is_stacked:
            begin += value
        else:
            place += _BAR


def _dress(axes: Axes, plot: Plot) -> None:
    length = sum if plot.is_stacked else max
    longest = max((length(row.bars.values()) for row in plot.rows), default=0.0)
    axes.set_xlim(0, longest * 1.02 or 1.0)
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FOREGROUND)
        axes.spines[side].set_linewidth(0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    axes.tick_params(axis="x", length=0, labelsize=_TICK_SIZE, labelcolor=FOREGROUND)
    axes.set_axisbelow(True)
    axes.xaxis.grid(visible=True, color=FOREGROUND, alpha=0.2, linewidth=0.5, clip_on=False)
    axes.set_xlabel(plot.axis, fontsize=_NAME_SIZE, color=FOREGROUND)


def label_of(name: str) -> str:
    """Return a name as it fits beside its value: its end, which tells tables apart."""
    printable = "".join(
        " " if each.isspace() else "?" if unicodedata.category(each).startswith("C") else each
        for each in name
    )
    kept, columns = "", 0
    for each in reversed(printable):
        columns += 2 if unicodedata.east_asian_width(each) in "WF" else 1
        if columns > _NAME_COLUMNS:
            return "…" + kept
        kept = each + kept
    return kept
