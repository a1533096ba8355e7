"""The page of a report: one file that loads nothing, for screens of any size and for paper."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..record import State
from . import shown
from .model import ItemLine, Report
from .plots import SHOWN, figure_of, plots_of
from .svg import svg_of

LINES: Final = 500
"""Of each table of the page; JSON has all."""

_FIRST = (State.FAILED, State.DIFFERS, State.BEGUN, State.UNDOING, State.BLOCKED, State.PLANNED)
_LONGEST_NAME = 200
_BREAKS = re.compile(r"(?<=[./_\\-])(?=[^./_\\-])")


def page_of(report: Report, data_name: str) -> str:
    """Return the page of a report.

    Args:
        data_name: The name of the file that has the same as JSON.
    """
    template = _environment().get_template("page.html.j2")
    drawn = [
        (plot, Markup(svg_of(partial(figure_of, plot), plot.title, plot.text)))
        for plot in plots_of(report)
    ]
    return template.render(
        report=report,
        items=sorted(report.items, key=_rank),
        differing=sum(not each.ok for each in report.checks),
        plots=drawn,
        plot_rows=SHOWN,
        lines=LINES,
        data_name=data_name,
    )


def _rank(item: ItemLine) -> int:
    """Return where an item comes: those first that something is to be done about."""
    return _FIRST.index(item.state) if item.state in _FIRST else len(_FIRST)


def _name(text: str) -> Markup:
    """Return a name that a browser breaks behind a dot, a slash or an underscore, if it must."""
    parts = _BREAKS.split(shown.cut(text, _LONGEST_NAME))
    return Markup("<wbr>").join(parts)


def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        loader=PackageLoader(__package__ or "", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Iterable[Any] = (shown.number, shown.size, shown.speed, shown.rate, shown.seconds,
                              shown.moment, shown.value, shown.cut)  # fmt: skip
    environment.filters.update({each.__name__: each for each in filters})
    environment.filters["name"] = _name
    return environment
