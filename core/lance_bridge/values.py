"""Values of a table as JSON, CSV and text, for the command line and for pages.

`lance_bridge.arrow_values` makes the values of Arrow arrays, with which this module has only plain
Python in common, so that commands that show no rows need not import pyarrow.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any


class JsonText(str):
    """A value of a JSON column: its text. In JSON, it is the value that the text describes."""

    __slots__ = ()


def to_json_value(value: Any) -> Any:
    """Return a value converted to JSON types.

    Bytes are in base64, times in ISO 8601, durations in seconds, decimals as text, and numbers that
    JSON lacks as "NaN", "Infinity" and "-Infinity".
    """
    if isinstance(value, Mapping):
        return {str(key): to_json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    for type_, convert in _CONVERTERS:
        if isinstance(value, type_):
            return convert(value)
    return value


def to_text(value: Any) -> str:
    """Return a value as text: JSON unless it is a string, bytes, a time or a decimal."""
    if isinstance(value, JsonText):
        return str(value)
    found = to_json_value(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def number_of(exact: Decimal) -> float | str:
    """Return a number as a float, or as text if no float is equal to it."""
    near = float(exact)
    return near if math.isfinite(near) and Decimal(repr(near)) == exact else str(exact)


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _parse(text: JsonText) -> Any:
    try:
        return json.loads(text, parse_float=lambda number: number_of(Decimal(number)))
    except (ValueError, RecursionError):  # too deep, or an integer of thousands of digits
        return str(text)


_CONVERTERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (JsonText, _parse),
    (float, _float),
    (bytes, lambda value: base64.b64encode(value).decode()),
    (Enum, lambda value: value.value),
    (timedelta, timedelta.total_seconds),
    ((date, time), lambda value: value.isoformat()),
    (Decimal, str),
)
