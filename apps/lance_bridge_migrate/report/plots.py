"""The plots of a report: bars of the largest tables, drawn by matplotlib.

Where the largest of them is far from the smallest, the axis is logarithmic: else most bars could
not be seen. Parts of a bar mean nothing there, so that it has one bar of a table's whole time.

Each table has a line for its name and its value, and its bars below: no name is so long that it
meets another. Colours are those of Okabe and Ito, which people see apart who see few colours.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

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
_FAR = 30
"""How many times the smallest bar the longest is where the axis is logarithmic."""
_MOST_TICKS = 5
_MARGIN = 0.08
"""Parts of a logarithmic axis, at both of its ends, that have no tick: its text would not fit."""
_WIDTH, _SIDE, _BOTTOM, _TOP = 5.0, 0.1, 0.5, 0.05
_NAME, _BAR, _GAP = 0.19, 0.13, 0.08
"""Inches: the figure and its margins; and of each table, its name, one bar, and what is below."""
_NAME_SIZE, _TICK_SIZE = 8, 7.5
_SEPARATOR = re.compile(r"[._/-]")
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
        tick: What a tick of a logarithmic axis says; None where the axis is linear.
        divisor: What bars of a logarithmic axis are divided by.
    """

    title: str
    axis: str
    colours: Mapping[str, str]
    rows: Sequence[Row]
    left_out: int = 0
    is_stacked: bool = False
    tick: Callable[[float], str] | None = None
    divisor: float = 1.0

    @property
    def text(self) -> str:
        """What the plot shows, in words."""
        return "; ".join(f"{shown.cut(row.name, 100)}: {row.text}" for row in self.rows)


@dataclass(frozen=True)
class Scale:
    """What the lengths of bars are divided by, the unit then, and what a tick of an amount says."""

    divisor: float
    unit: str
    tick: Callable[[float], str]


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
    scale = Scale(*_time_scale(max(totals, default=0.0)), _tick_of_seconds)

    def bars(each: ItemLine) -> dict[str, float]:
        found = dict.fromkeys(colours, 0.0)
        for name, seconds in _by_step(each).items():
            found[name if name in found else _OTHERS] += seconds / scale.divisor
        return found

    rows = [
        Row(each.name, shown.seconds(each.seconds), bars(each), total)
        for each, total in zip(tables, totals, strict=True)
        if _by_step(each)
    ]
    return _largest("Time by step", "time", scale, colours, rows, is_stacked=True)


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
    largest = max((max(sizes.values()) for _, sizes in known), default=0)
    scale = Scale(*shown.size_scale(largest), _tick_of_size)
    rows = [
        Row(
            each.name,
            f"{shown.size(each.bytes_before)} → {shown.size(each.bytes_after)}",
            {side: size / scale.divisor for side, size in sizes.items()},
            max(sizes.values()),
        )
        for each, sizes in known
    ]
    colours = dict(zip(("before", "after"), _COLOURS, strict=False))
    return _largest("Sizes before and after", "size of the data", scale, colours, rows)


def _bytes_per_second(tables: Sequence[ItemLine]) -> Plot:
    known = [(t, t.bytes_per_second) for t in tables if t.bytes_per_second is not None]
    divisor, unit = shown.size_scale(max((each for _, each in known), default=0.0))
    scale = Scale(divisor, f"{unit}/s", lambda value: f"{_tick_of_size(value)}/s")
    rows = [
        Row(t.name, shown.speed(each), {"": each / divisor}, t.bytes_written or 0)
        for t, each in known
    ]
    return _largest("Bytes written in a second", "throughput", scale, _ONE, rows)


def _rows_per_second(tables: Sequence[ItemLine]) -> Plot:
    known = [(t, t.rows_per_second) for t in tables if t.rows_per_second is not None]
    divisor, unit = shown.row_scale(max((each for _, each in known), default=0.0))
    scale = Scale(divisor, f"{unit}/s", _tick_of_rows)
    rows = [
        Row(t.name, shown.rate(each), {"": each / divisor}, t.rows_written or 0)
        for t, each in known
    ]
    return _largest("Rows written in a second", "throughput", scale, _ONE, rows)


def _largest(
    title: str,
    what: str,
    scale: Scale,
    colours: Mapping[str, str],
    rows: Iterable[Row],
    *,
    is_stacked: bool = False,
) -> Plot:
    """Return a plot of the largest tables, the largest first."""
    ranked = sorted(rows, key=lambda row: -row.rank)
    left_out = max(0, len(ranked) - SHOWN)
    axis = f"{what} in {scale.unit}"
    plot = Plot(title, axis, colours, ranked[:SHOWN], left_out, is_stacked)
    lengths = _lengths(plot)
    if not lengths or max(lengths) <= _FAR * min(lengths):
        return plot
    if is_stacked:
        whole = [replace(row, bars={"": sum(row.bars.values())}) for row in plot.rows]
        plot = replace(plot, title=what.capitalize(), rows=whole, colours=_ONE, is_stacked=False)
    tick = partial(_text_of_tick, scale)
    axis = f"{what}, on a logarithmic axis"
    return replace(plot, axis=axis, tick=tick, divisor=scale.divisor)


def _text_of_tick(scale: Scale, value: float) -> str:
    return scale.tick(float(f"{value * scale.divisor:.6g}"))


def _tick_of_seconds(value: float) -> str:
    return f"{value:,g} s"


def _tick_of_size(value: float) -> str:
    divisor, unit = shown.size_scale(value)
    return f"{value / divisor:g} {unit}"


def _tick_of_rows(value: float) -> str:
    divisor, unit = shown.row_scale(value)
    return f"{value / divisor:g} {unit.removesuffix('rows')}".strip()


def _lengths(plot: Plot) -> list[float]:
    """Return the lengths of all bars that have one; stacked ones count as one bar."""
    if plot.is_stacked:
        return [total for row in plot.rows if (total := sum(row.bars.values())) > 0]
    return [length for row in plot.rows for length in row.bars.values() if length > 0]


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
    _set_limits(axes, plot)
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
    begin, place = axes.get_xlim()[0] if plot.tick else 0.0, top + _NAME + _BAR / 2
    for series, value in row.bars.items():
        length = max(value - begin, 0.0) if plot.tick else value
        axes.barh(place, length, left=begin, height=_BAR * 0.92, color=plot.colours[series],
                  edgecolor=BACKGROUND, linewidth=0.3, clip_on=False)  # fmt: skip
        if plot.is_stacked:
            begin += value
        else:
            place += _BAR


def _dress(axes: Axes, plot: Plot) -> None:
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FOREGROUND)
        axes.spines[side].set_linewidth(0.6)
    _set_ticks(axes, plot)
    axes.tick_params(axis="x", length=0, labelsize=_TICK_SIZE, labelcolor=FOREGROUND)
    axes.set_axisbelow(True)
    axes.xaxis.grid(visible=True, color=FOREGROUND, alpha=0.2, linewidth=0.5, clip_on=False)
    axes.set_xlabel(plot.axis, fontsize=_NAME_SIZE, color=FOREGROUND)


def _set_limits(axes: Axes, plot: Plot) -> None:
    lengths = _lengths(plot)
    longest = max(lengths, default=0.0)
    if plot.tick is None:
        axes.set_xlim(0, longest * 1.02 or 1.0)
        return
    axes.set_xscale("log")
    # The shortest bar has a length, too: the axis begins at a third of it.
    axes.set_xlim(min(lengths) / 3, longest * 1.1)


def _set_ticks(axes: Axes, plot: Plot) -> None:
    tick = plot.tick
    if tick is None:
        axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
        return
    axes.xaxis.set_major_locator(FixedLocator(_decades(*axes.get_xlim(), plot.divisor)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def _decades(least: float, most: float, divisor: float) -> list[float]:
    """Return powers of ten, divided, that lie between two numbers: as many as have room."""
    first, last = math.log10(least * divisor), math.log10(most * divisor)
    margin = (last - first) * _MARGIN
    powers = range(math.ceil(first + margin), math.floor(last - margin) + 1)
    step = max(1, math.ceil(len(powers) / _MOST_TICKS))
    return [10.0**power / divisor for power in powers[::step]]


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
            return "…" + _whole_words(kept)
        kept = each + kept
    return kept


def _whole_words(end: str) -> str:
    """Return the end of a name from where a part of it begins, if half of it is left then."""
    found = _SEPARATOR.search(end, 0, len(end) // 2)
    return end[found.end() :] if found else end
