"""The page of a report: one file that loads nothing, for screens of any size and for paper."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lance_bridge.errors import invalid

from ..record import State
from .model import GENERATOR, ItemLine, Report
from .plots import MAX_ROWS, plots_of

MAX_LINES: Final = 500
"""Of each table of the page; JSON has all."""
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
