"""Rows of Arrow batches as Python values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lance_bridge.errors import unsupported

from .sql_types import sql_type

Row = dict[str, Any]

_TIMES = (types.is_date, types.is_time, types.is_timestamp)


def batch_to_rows(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch, with dates and times that Python lacks as ISO 8601.

    Python lacks those before year 1 and after 9999, and nanoseconds.

    Raises:
        UnsupportedOperationError: (0) Python lacks another value, such as a date in a list.
    """
    try:
        rows: list[Row] = batch.to_pylist()
    except (OverflowError, ValueError):
        names = batch.schema.names
        columns = [_column_to_python(name, batch.column(name)) for name in names]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _column_to_python(name: str, column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError) as error:
        if not any(matches(column.type) for matches in _TIMES):
            raise unsupported(
                f"Column '{name}' has a value of type {sql_type(column.type)} that cannot be shown "
                f"({error}): leave it out with --column, or read the table in Python"
            ) from error
    return list(_to_iso(column).to_pylist())


def _to_iso(column: pa.Array) -> pa.Array:
    """Return dates and times in ISO 8601; Arrow separates them by a space."""
    text = pc.replace_substring(pc.cast(column, pa.string()), " ", "T", max_replacements=1)
    return pc.replace_substring_regex(text, r"([+-]\d\d)(\d\d)$", r"\1:\2")
