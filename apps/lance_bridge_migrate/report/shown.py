"""How people read numbers, sizes, times and values. What is not known is said to be so."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

NOT_KNOWN = "not known"

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_ROWS = ("", "thousand", "million", "billion", "trillion")
_LONGEST = 300
_MINUTE, _HOUR = 60, 3600


def scaled(value: float, words: tuple[str, ...]) -> tuple[float, str]:
    """Return a thousandth of a number as often as it takes to be short, and the word for that."""
    power = 0
    while abs(value) >= 1000 and power < len(words) - 1:
        value, power = value / 1000, power + 1
    return 1000.0**power, words[power]


def number(value: float | None) -> str:
    """Return a number with its thousands apart: 12,345."""
    if value is None:
        return NOT_KNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _short(value: float) -> str:
    """Return a number to three digits."""
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def size_scale(largest: float) -> tuple[float, str]:
    """Return what to divide bytes by, and the unit then; units are powers of 1,000."""
    return scaled(largest, _BYTES)


def row_scale(largest: float) -> tuple[float, str]:
    """Return what to divide rows by, and the unit then."""
    divisor, word = scaled(largest, _ROWS)
    return divisor, f"{word} rows".strip()


def size(value: float | None) -> str:
    """Return bytes as people read them: 1.2 GB."""
    if value is None:
        return NOT_KNOWN
    divisor, unit = size_scale(value)
    return f"{_short(value / divisor) if divisor > 1 else round(value)} {unit}"


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
    """Return what a check found, or an option's value, cut where it is long."""
    if found is None:
        return "-"
    return cut(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))


def cut(text: str, longest: int = _LONGEST) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
