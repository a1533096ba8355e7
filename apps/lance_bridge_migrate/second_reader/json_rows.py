"""The objects of JSON files as Python's json reads them, and their values beside Spark's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from pyspark.sql import types as spark

_LINES = re.compile(r"\r\n|\n|\r")
_SPACE = re.compile(r"[\s,]*")
BROKEN = object()
"""Stands for a line that is no object."""


def lines_of(text: str) -> Iterator[Any]:
    """Yield the object of each line, or `BROKEN`; of a list, each of its objects."""
    for line in _LINES.split(text):
        if not line.strip():
            continue
        try:
            yield from _objects(json.loads(line))
        except ValueError:
            yield BROKEN


def documents_of(text: str) -> Iterator[Any]:
    """Yield the objects of a text in which an object may have several lines.

    Raises:
        ValueError: It is not JSON.
    """
    decoder, at = json.JSONDecoder(), _end_of_space(text, 0)
    while at < len(text):
        found, at = decoder.raw_decode(text, at)
        yield from _objects(found)
        at = _end_of_space(text, at)


def _end_of_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _objects(found: Any) -> Iterator[Any]:
    if isinstance(found, list):
        yield from (each if isinstance(each, dict) else BROKEN for each in found)
    else:
        yield found if isinstance(found, dict) else BROKEN


def difference(value: Any, read: Any, data_type: spark.DataType, path: str = "") -> str | None:
    """Return the path of the first value that Spark reads otherwise; None if there is none."""
    if isinstance(data_type, spark.StructType) and isinstance(value, dict):
        return _in_struct(value, read, data_type, path)
    if isinstance(data_type, spark.ArrayType) and isinstance(value, list):
        if read is None or len(read) != len(value):
            return path
        pairs = zip(value, read, strict=True)
        found = (difference(a, b, data_type.elementType, f"{path}[]") for a, b in pairs)
        return next((each for each in found if each is not None), None)
    return None if _is_same(value, read, data_type) else path


def _in_struct(value: Any, read: Any, columns: spark.StructType, path: str) -> str | None:
    known = {each.name.lower(): each for each in columns.fields}
    known |= {each.name: each for each in columns.fields}
    start = f"{path}." if path else ""
    for name, each in value.items():
        field = known.get(name) or known.get(name.lower())
        if field is None:
            if each in (None, {}):
                continue
            return f"{start}{name}"
        if read is None:
            return path
        found = difference(each, read[field.name], field.dataType, f"{start}{name}")
        if found is not None:
            return found
    return None


def _is_same(value: Any, read: Any, data_type: spark.DataType) -> bool:
    if value is None or read is None:
        return value is None and read is None
    if isinstance(data_type, spark.StringType):
        return not isinstance(value, str) or bool(value == read)
    if isinstance(value, bool) or isinstance(data_type, spark.BooleanType):
        return bool(value is read)
    if isinstance(data_type, spark.DecimalType):
        return bool(_decimal(value) == read)
    if isinstance(data_type, spark.NumericType) and isinstance(value, (int, float)):
        return bool(value == read) or value != value  # noqa: PLR0124 - NaN
    return True


def _decimal(value: Any) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None
