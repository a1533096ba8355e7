"""The page of a report: one file that loads nothing, for screens of any size and for paper.

Plots are bars of the largest tables. Where the largest of them is far from the smallest, bars are
logarithmic: else most of them could not be seen. Parts of a bar mean nothing there, so that a table
has one bar for its whole time. Colours are those of Okabe and Ito, which people with colour
blindness can distinguish.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lance_bridge.errors import invalid

from ..plan import ItemType
from ..record import State
from .model import GENERATOR, ItemLine, Report

MAX_LINES: Final = 500
"""Of each table of the page; JSON has all."""
MAX_ROWS = 30
"""Tables of a plot."""

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
_OTHERS, _OTHERS_COLOUR = "other steps", "#999999"
_MAX_RATIO = 30
"""How many times the smallest bar the longest is where bars become logarithmic."""
NOT_KNOWN = "not known"

_HEAD = 2000
"""Bytes in which a report says what it is."""
_FIRST = (State.FAILED, State.DIFFERS, State.STARTED, State.UNDOING, State.BLOCKED, State.PLANNED)
_MAX_NAME, _MAX_VALUE = 200, 300
_BREAKS = re.compile(r"(?<=[./_\\-])(?=[^./_\\-])")
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR = 60, 3600


def write(report: Report, page: Path) -> tuple[Path, Path]:
    """Write a report as a page and as JSON of the same name; those of an earlier one are replaced.

    Args:
        page: A file ``*.html``.

    Raises:
        InvalidInputError: (13) another name; an existing file is no report; it cannot be written.
    """
    if page.suffix.lower() not in (".html", ".htm"):
        raise invalid(f"The report is a page: its name must end with .html, not {page.name}")
    data = page.with_suffix(".json")
    content = {data: report.model_dump_json(indent=1), page: page_of(report, data.name)}
    try:
        for path in content:
            _require_report(path)
        for path, text in content.items():
            path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise invalid(f"The report cannot be written to {page} ({error})") from error
    return page, data


def _require_report(path: Path) -> None:
    """Raise InvalidInput (13) for an existing file that is no report."""
    if not path.exists():
        return
    with path.open("rb") as file:
        if GENERATOR.encode() not in file.read(_HEAD):
            raise invalid(f"{path} already exists and is not a report: name another file")


def page_of(report: Report, data_name: str) -> str:
    """Return the page of a report.

    Args:
        data_name: The name of the file that has the same as JSON.
    """
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            items=sorted(report.items, key=_rank),
            differing=sum(not each.ok for each in report.checks),
            plots=plots_of(report),
            plot_rows=MAX_ROWS,
            lines=MAX_LINES,
            data_name=data_name,
        )
    )


def _rank(item: ItemLine) -> int:
    """Return the position of an item: those first that need attention."""
    return _FIRST.index(item.state) if item.state in _FIRST else len(_FIRST)


def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        loader=PackageLoader(__package__ or "", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (number, size, speed, rate, seconds, moment, value, cut, name)
    environment.filters.update({each.__name__: each for each in filters})
    return environment


# -- how people read values ------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Return a number with separators of thousands: 12,345."""
    if value is None:
        return NOT_KNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _short(value: float) -> str:
    """Return a number to three digits."""
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def size(value: float | None) -> str:
    """Return bytes in powers of 1,000: 1.2 GB."""
    if value is None:
        return NOT_KNOWN
    power = 0
    while value >= 1000 and power < len(_BYTES) - 1:
        value, power = value / 1000, power + 1
    return f"{_short(value) if power else round(value)} {_BYTES[power]}"


def speed(value: float | None) -> str:
    """Return bytes per second: 12.3 MB/s."""
    return NOT_KNOWN if value is None else f"{size(value)}/s"


def rate(value: float | None, unit: str = "rows") -> str:
    """Return how many per second: 1,234 rows/s."""
    return NOT_KNOWN if value is None else f"{_short(value)} {unit}/s"


def seconds(value: float | None) -> str:
    """Return a duration: 0.123 s, 12.3 s, 2 min 5 s, 1 h 2 min."""
    if value is None:
        return NOT_KNOWN
    if value < _MINUTE:
        return f"{value:.3f} s" if value < 1 else f"{value:.1f} s"
    whole = round(value)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR:,} h {whole % _HOUR // _MINUTE} min"


def moment(text: str | None) -> str:
    """Return a time without its fractions: 2026-01-31 12:34:56 UTC."""
    if not text:
        return ""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return found.strftime("%Y-%m-%d %H:%M:%S") + (" UTC" if not found.utcoffset() else "")


def value(found: Any) -> str:
    """Return what a check found, or an option's value, cut if it is long."""
    if found is None:
        return "-"
    return cut(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))


def cut(text: str, longest: int = _MAX_VALUE) -> str:
    """Return the start of a long text."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def name(text: str) -> Markup:
    """Return a name that a browser may break behind a dot, a slash or an underscore."""
    return Markup("<wbr>").join(_BREAKS.split(cut(text, _MAX_NAME)))


# -- plots -----------------------------------------------------------------------------------------


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
