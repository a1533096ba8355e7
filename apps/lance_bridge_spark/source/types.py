"""Conversion of types between Lance and Spark.

Spark requires Arrow batches with exactly the types that it derives from its own schema. So each
Lance type is read as the Spark type that can hold all its values, and its values are converted.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as arrow
from lance_namespace.errors import LanceNamespaceError, TableColumnNotFoundError
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import FloatType, LongType, StructField, StructType

from lance_bridge.blobs import is_blob_type
from lance_bridge.errors import invalid
from lance_bridge.types import plain_type

from . import stored_types
from .column_names import require_readable
from .options import ReadOptions, Search

COMMENT = "comment"
"""The key of a column's comment, in Spark's metadata and in Arrow's."""

_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)
"""From 4.2 on, Spark needs the time zone of timestamps; before, it is always UTC."""


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """Return Spark's schema for reading a Lance table."""
    read = pa.schema([pa.field(f.name, read_type(f.type), f.nullable) for f in schema])
    fields = []
    # By default, times without a zone would be timestamps in the session's zone.
    converted = from_arrow_schema(read, prefer_timestamp_ntz=True)
    for made, field in zip(converted.fields, schema, strict=True):
        comment = (field.metadata or {}).get(COMMENT.encode())
        metadata = {COMMENT: comment.decode()} if comment else {}
        metadata |= stored_types.metadata_of(field, read_type)
        fields.append(spark.StructField(made.name, made.dataType, made.nullable, metadata))
    return spark.StructType(fields)


def batch_schema(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema of batches that Spark sends or expects for one of its schemas."""
    return to_arrow_schema(schema, **_ZONE)


def read_type(dtype: pa.DataType) -> pa.DataType:
    """Return the Arrow type as which Spark reads values of ``dtype``."""
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.binary() if is_blob_type(dtype) else read_type(dtype.storage_type)
    if arrow.is_dictionary(dtype):
        return read_type(dtype.value_type)
    if is_list(dtype):
        element = dtype.value_field
        return pa.list_(pa.field("element", read_type(element.type), element.nullable))
    if arrow.is_struct(dtype):
        return pa.struct([pa.field(f.name, read_type(f.type), f.nullable) for f in dtype])
    if arrow.is_map(dtype):
        return pa.map_(
            read_type(dtype.key_type),
            pa.field("value", read_type(dtype.item_type), dtype.item_field.nullable),
        )
    return _plain(dtype)


_READ_AS: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (arrow.is_fixed_size_binary, pa.binary()),
    (arrow.is_time, pa.int64()),
    (arrow.is_duration, pa.duration("us")),
)


def _plain(dtype: pa.DataType) -> pa.DataType:
    if plain := plain_type(dtype):
        return plain.read_as or dtype
    for matches, read in _READ_AS:
        if matches(dtype):
            return read
    if arrow.is_timestamp(dtype):
        return pa.timestamp("us", "UTC" if dtype.tz else None)
    if arrow.is_decimal(dtype) and not arrow.is_decimal128(dtype):
        return pa.decimal128(min(38, dtype.precision), dtype.scale)
    return dtype


def is_list(dtype: pa.DataType) -> bool:
    return bool(
        arrow.is_list(dtype) or arrow.is_large_list(dtype) or arrow.is_fixed_size_list(dtype)
    )


# -- types that cannot be stored -------------------------------------------------------------------

_UNSTORABLE = {
    "CalendarIntervalType": "cast it to a string, or to an INTERVAL DAY TO SECOND",
    "YearMonthIntervalType": "cast it to its number of months",
    "VariantType": "turn it into a string with to_json",
    "GeometryType": "turn it into binary with ST_AsBinary",
    "GeographyType": "turn it into binary with ST_AsBinary",
    "TimeType": "cast it to a string, or to its number of microseconds",
}
"""Spark types by class name (not every version has all of them), and what to do instead."""


def refuse_unstorable(schema: spark.StructType) -> None:
    """Raise an error if Lance cannot store a column.

    Raises:
        InvalidInputError: (13)
    """
    for field in schema.fields:
        bad = _find_type(field.dataType, _is_unstorable)
        if bad is not None:
            hint = _UNSTORABLE.get(type(bad).__name__, "turn it into another one")
            raise invalid(
                f"Column '{field.name}' has the type {bad.simpleString()}, and Lance has none for "
                f"that: {hint}"
            )


def refuse_collations(schema: spark.StructType) -> None:
    """Raise an error if a column of a new table has a collation: Lance would compare bytes.

    Raises:
        InvalidInputError: (13)
    """
    for field in schema.fields:
        bad = _find_type(field.dataType, _has_collation)
        if bad is not None:
            raise collation_error(field.name, bad.simpleString())


def collation_error(column: str, type_name: str) -> LanceNamespaceError:
    """Return InvalidInput (13) for a column of a type with a collation."""
    return invalid(
        f"Column '{column}' has the type {type_name}, and Lance has no collations: declare or "
        "cast it as STRING COLLATE UTF8_BINARY, and name the collation in queries"
    )


def _is_unstorable(data_type: spark.DataType) -> bool:
    return type(data_type).__name__ in _UNSTORABLE or isinstance(data_type, spark.UserDefinedType)


def _has_collation(data_type: spark.DataType) -> bool:
    return (
        isinstance(data_type, spark.StringType)
        and data_type.collation != spark.StringType().collation
    )


def _find_type(
    data_type: spark.DataType, matches: Callable[[spark.DataType], bool]
) -> spark.DataType | None:
    """Return the type, or the first of its parts at any depth, that matches."""
    if matches(data_type):
        return data_type
    parts: list[spark.DataType] = []
    if isinstance(data_type, spark.StructType):
        parts = [each.dataType for each in data_type.fields]
    elif isinstance(data_type, spark.ArrayType):
        parts = [data_type.elementType]
    elif isinstance(data_type, spark.MapType):
        parts = [data_type.keyType, data_type.valueType]
    return next((bad for each in parts if (bad := _find_type(each, matches)) is not None), None)


def nullable(schema: spark.StructType) -> spark.StructType:
    """Return a schema whose columns are all nullable, as Spark makes them when it saves data."""
    fields = [spark.StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields]
    return spark.StructType(fields)


ROW_ID, ROW_ADDRESS = "_rowid", "_rowaddr"
ADDED = (ROW_ID, ROW_ADDRESS)
"""A row's id, which compaction keeps if the table has stable ids, and its address (fragment and
offset) in a version. Any read can return them."""


def read_schema(
    table: pa.Schema, name: str, options: ReadOptions, search: Search | None
) -> StructType:
    """Return the columns of a read without a schema.

    Args:
        name: The table's name in messages.

    Raises:
        TableColumnNotFoundError: (12) an option names a column that does not exist.
        InvalidInputError: (13) a column is named twice.
    """
    schema = spark_schema(table)
    if options.columns is not None:
        for each in options.columns:
            if options.columns.count(each) > 1:
                raise invalid(f"Column '{each}' is listed twice")
        found = [_require_column(schema, each, name) for each in options.columns]
        schema = StructType(found)
    if options.with_row_id and ROW_ID not in schema.fieldNames():
        schema.add(ROW_ID, LongType(), True)
    if search is not None and search.column not in schema.fieldNames():
        schema.add(search.column, FloatType(), True)
    return schema


def check_readable(asked: StructType, table: pa.Schema, name: str, search: Search | None) -> None:
    """Check that each column of a schema can be read with its type.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) a column has another type.
    """
    require_readable(asked.fieldNames(), name)
    schema = spark_schema(table)
    added = (*ADDED, search.column) if search else ADDED
    for field in asked.fields:
        if field.name in added and field.name not in schema.fieldNames():
            continue
        there = _require_column(schema, field.name, name)
        if there.dataType.simpleString() != field.dataType.simpleString():
            raise invalid(
                f"Column '{field.name}' of table '{name}' is {there.dataType.simpleString()}, and "
                f"cannot be read as {field.dataType.simpleString()}: read it as it is, and cast it"
            )


def _require_column(schema: StructType, column: str, table: str) -> StructField:
    names = schema.fieldNames()
    if column in names:
        return schema[column]
    if column in ADDED:
        return StructField(column, LongType(), True)
    near = difflib.get_close_matches(column, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(names)}"
    raise TableColumnNotFoundError(f"Table '{table}' has no column '{column}': {hint}")
