"""Which columns a read has, and whether a schema that Spark asks for can be read."""

from __future__ import annotations

import difflib

import pyarrow as pa
from lance_namespace.errors import TableColumnNotFoundError
from pyspark.sql.types import FloatType, LongType, StructField, StructType

from lance_bridge.errors import invalid
from lance_bridge.tables.query.projection import ROW_ID

from .options import ReadOptions
from .search import Search
from .types import spark_schema

ROW_ADDRESS = "_rowaddr"
ADDED = (ROW_ID, ROW_ADDRESS)
"""Where rows are, which any read can have."""


def readable(
    table: pa.Schema, name: str, options: ReadOptions, search: Search | None
) -> StructType:
    """Return the columns of a read that names no schema.

    Args:
        name: What messages call the table.

    Raises:
        TableColumnNotFoundError: (12) an option names a column that is not there.
        InvalidInputError: (13) one is named twice.
    """
    schema = spark_schema(table)
    if options.columns is not None:
        _require_once(options.columns)
        found = [_require_column(schema, each, name) for each in options.columns]
        schema = StructType(found)
    if options.with_row_id and ROW_ID not in schema.fieldNames():
        schema.add(ROW_ID, LongType(), True)
    if search is not None and search.column not in schema.fieldNames():
        schema.add(search.column, FloatType(), True)
    return schema


def require_readable(asked: StructType, table: pa.Schema, name: str, search: Search | None) -> None:
    """Check that each column of a schema can be read, as the type that it has there.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) it is of another type.
    """
    schema = spark_schema(table)
    added = (*ADDED, search.column) if search else ADDED
    for field in asked.fields:
        if field.name in added and field.name not in schema.fieldNames():
            continue
        there = _require_column(schema, field.name, name)
        if _nullable(there) != _nullable(field):
            raise invalid(
                f"Column '{field.name}' of table '{name}' is {there.dataType.simpleString()}, and "
                f"cannot be read as {field.dataType.simpleString()}: read it as it is, and cast it"
            )


def _require_once(names: tuple[str, ...]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"Column '{name}' is asked for twice")


def _require_column(schema: StructType, column: str, table: str) -> StructField:
    names = schema.fieldNames()
    if column in names:
        return schema[column]
    if column in ADDED:
        return StructField(column, LongType(), True)
    near = difflib.get_close_matches(column, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(names)}"
    raise TableColumnNotFoundError(f"Table '{table}' has no column '{column}': {hint}")


def _nullable(field: StructField) -> str:
    return field.dataType.simpleString()
