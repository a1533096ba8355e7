"""The HTML page of a report: a self-contained file for screens of any size and for print.

Plots are bar charts of the largest tables. If the longest bar is much longer than the shortest, the
scale is logarithmic, so that short bars stay visible. Bars are then not stacked, because parts of a
logarithmic bar have no meaning. The colours are those of Okabe and Ito, which people with colour
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

from lance_bridge.errors import invalid
from lance_bridge.extras import require

from .plan import ItemType
from .record import State
from .report import GENERATOR, ItemLine, Report

require("report", "jinja2")

from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: E402 - the extra
from markupsafe import Markup  # noqa: E402 - the same

MAX_LINES: Final = 500
"""The maximum number of rows in each table of the page; JSON has all."""
MAX_ROWS = 30
"""The maximum number of tables in a plot."""

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
_OTHERS, _OTHERS_COLOUR = "other steps", "#999999"
_MAX_RATIO = 30
"""The ratio of the longest to the shortest bar above which the scale is logarithmic."""
NOT_KNOWN = "unknown"

_HEAD = 2000
"""The first bytes of a file, in which a report contains its generator."""
_FIRST = (State.FAILED, State.DIFFERS, State.STARTED, State.UNDOING, State.BLOCKED, State.PLANNED)
"""The states of items that need attention, which come first."""
_MAX_NAME, _MAX_VALUE = 200, 300
_BREAKS = re.compile(r"(?<=[./_\\-])(?=[^./_\\-])")
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR = 60, 3600


def write(report: Report, page: Path) -> tuple[Path, Path]:
    """Write a report as a page and as JSON of the same name, replacing an earlier report.

    Args:
        page: A file ``*.html``.

    Raises:
        InvalidInputError: (13) the name does not end with .html, an existing file is not a report,
            or the files cannot be written.
    """
    if page.suffix.lower() not in (".html", ".htm"):
        raise invalid(f"The report is a page: its name must end with .html, not {page.name}")
    data = page.with_suffix(".json")
    content = {data: report.model_dump_json(indent=1), page: page_of(report, data.name)}
    try:
        for path in content:
            if path.exists() and GENERATOR.encode() not in path.read_bytes()[:_HEAD]:
                raise invalid(f"{path} already exists and is not a report: name another file")
        for path, text in content.items():
            path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise invalid(f"The report cannot be written to {page} ({error})") from error
    return page, data


def page_of(report: Report, data_name: str) -> str:
    """Return the page of a report as HTML.

    Args:
        data_name: The name of the report's JSON file.
    """
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            items=sorted(report.items, key=lambda each: (*_FIRST, each.state).index(each.state)),
            differing=sum(not each.ok for each in report.checks),
            plots=plots_of(report),
            plot_rows=MAX_ROWS,
            lines=MAX_LINES,
            data_name=data_name,
        )
    )


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


# -- formatting ------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Format a number with thousands separators: 12,345."""
    if value is None:
        return NOT_KNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _short(value: float) -> str:
    """Format a number with three significant digits."""
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def size(value: float | None) -> str:
    """Format bytes in powers of 1,000: 1.2 GB."""
    if value is None:
        return NOT_KNOWN
    power = 0
    while value >= 1000 and power < len(_BYTES) - 1:
        value, power = value / 1000, power + 1
    return f"{_short(value) if power else round(value)} {_BYTES[power]}"


def speed(value: float | None) -> str:
    """Format bytes per second: 12.3 MB/s."""
    return NOT_KNOWN if value is None else f"{size(value)}/s"


def rate(value: float | None, unit: str = "rows") -> str:
    """Format a rate: 1,234 rows/s."""
    return NOT_KNOWN if value is None else f"{_short(value)} {unit}/s"


def seconds(value: float | None) -> str:
    """Format a duration: 0.123 s, 12.3 s, 2 min 5 s, 1 h 2 min."""
    if value is None:
        return NOT_KNOWN
    if value < _MINUTE:
        return f"{value:.3f} s" if value < 1 else f"{value:.1f} s"
    whole = round(value)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR:,} h {whole % _HOUR // _MINUTE} min"


def moment(text: str | None) -> str:
    """Format a time without fractions of a second: 2026-01-31 12:34:56 UTC."""
    if not text:
        return ""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return found.strftime("%Y-%m-%d %H:%M:%S") + (" UTC" if not found.utcoffset() else "")


def value(found: Any) -> str:
    """Format a value of a check or option, truncated if it is long."""
    if found is None:
        return "-"
    return cut(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))


def cut(text: str, longest: int = _MAX_VALUE) -> str:
    """Truncate a long text."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def name(text: str) -> Markup:
    """Return a name with possible line breaks after dots, slashes, hyphens and underscores."""
    return Markup("<wbr>").join(_BREAKS.split(cut(text, _MAX_NAME)))


# -- plots -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One table of a plot.

    Attributes:
        bars: The value of each series, in seconds, bytes or rows.
        rank: The size of the table, by which the largest are chosen.
    """

    item: ItemLine
    bars: Mapping[str, float]
    rank: float


@dataclass(frozen=True)
class Plot:
    """A bar chart of the largest tables.

    Attributes:
        quantity: The quantity of the bars, by which the template formats the value of a row.
        colours: The colour of each series, in drawing order.
        left_out: The number of tables that are not shown.
        is_stacked: Whether a table's bars are stacked.
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
        """The lengths of all bars above 0; stacked bars count as one."""
        if self.is_stacked:
            return [total for row in self.rows if (total := sum(row.bars.values())) > 0]
        return [length for row in self.rows for length in row.bars.values() if length > 0]

    def width(self, length: float) -> float:
        """Return the width of a bar in percent of the longest."""
        longest = max(self.lengths, default=0.0)
        if not length:
            return 0.0
        if not self.is_logarithmic:
            return round(100 * length / longest, 2)
        least = min(self.lengths) / 3  # so that the shortest bar has a width
        return round(100 * math.log(length / least) / math.log(longest / least), 2)


def plots_of(report: Report) -> list[Plot]:
    """Return the plots that have values."""
    tables = [each for each in report.items if each.type is ItemType.TABLE]

    def speeds(title: str, quantity: str, unit: str) -> Plot:
        rows = [
            Row(each, {"": value}, getattr(each, f"{unit}_written") or 0)
            for each in tables
            if (value := getattr(each, f"{unit}_per_second")) is not None
        ]
        return _largest(Plot(title, quantity, {"": _COLOURS[0]}, rows))

    found = [
        _times(tables),
        _sizes(tables),
        speeds("Bytes written per second", "speed", "bytes"),
        speeds("Rows written per second", "rate", "rows"),
    ]
    return [plot for plot in found if plot.rows]


def _times(tables: Sequence[ItemLine]) -> Plot:
    """Return the time of each table by step; the longest steps have their own colours."""
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


def _largest(plot: Plot) -> Plot:
    """Return a plot reduced to the largest tables, sorted by size."""
    ranked = sorted(plot.rows, key=lambda row: -row.rank)
    plot = replace(plot, rows=ranked[:MAX_ROWS], left_out=max(0, len(ranked) - MAX_ROWS))
    if not plot.lengths or max(plot.lengths) <= _MAX_RATIO * min(plot.lengths):
        return plot
    if plot.is_stacked:
        whole = [replace(row, bars={"": sum(row.bars.values())}) for row in plot.rows]
        plot = replace(plot, title="Time", rows=whole, colours={"": _COLOURS[0]}, is_stacked=False)
    return replace(plot, is_logarithmic=True)
