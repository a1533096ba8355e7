"""The files of a report: a page, and JSON of the same name beside it."""

from __future__ import annotations

from pathlib import Path

from lance_bridge.errors import invalid

from .model import GENERATOR, Report
from .page import page_of

_HEAD = 2000
"""Bytes in which a report says what it is."""


def write(report: Report, page: Path) -> tuple[Path, Path]:
    """Write a report; return the page and the JSON. Those of an earlier report are written over.

    Args:
        page: A file ``*.html``.

    Raises:
        InvalidInputError: (13) another name; what is there is no report; it cannot be written.
    """
    if page.suffix.lower() not in (".html", ".htm"):
        raise invalid(f"The report is a page: give it a name that ends with .html, not {page.name}")
    data = page.with_suffix(".json")
    content = {data: report.model_dump_json(indent=1), page: page_of(report, data.name)}
    try:
        for path in content:
            _require_own(path)
        for path, text in content.items():
            path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise invalid(f"The report cannot be written to {page} ({error})") from error
    return page, data


def _require_own(path: Path) -> None:
    """Raise InvalidInput (13) where a file is there that is no report."""
    if not path.exists():
        return
    with path.open("rb") as file:
        if GENERATOR.encode() not in file.read(_HEAD):
            raise invalid(f"{path} is there already and is no report: name another file")
