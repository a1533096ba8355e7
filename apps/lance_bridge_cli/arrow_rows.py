"""Rows of Arrow batches as Python values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lance_bridge.arrow_values import to_values
from lance_bridge.errors import unsupported

from .sql_types import sql_type

Row = dict[str, Any]


def batch_to_rows(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch, with values as `lance_bridge.arrow_values` makes them.

    Raises:
        UnsupportedOperationError: (0) a value cannot be represented.
    """
    names = batch.schema.names
    columns = [_values(*each) for each in zip(batch.schema, batch.columns, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(field: pa.Field, column: pa.Array) -> list[Any]:
    try:
        return to_values(column, field)
    except ValueError as error:
        raise unsupported(
            f"Column '{field.name}' has a value of type {sql_type(field.type)} that cannot be "
            f"shown ({error}): leave it out with --column, or read the table in Python"
        ) from error
