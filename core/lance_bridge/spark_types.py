"""Columns for catalogs that show them: an Arrow schema in Spark's JSON form of types.

Source: the JSON of ``pyspark.sql.types.StructType``, which Unity Catalog stores per column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as arrow

from .records import Column

SparkType = str | dict[str, Any]

_LARGEST_DECIMAL = 38
_NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (arrow.is_null, "void"),
    (arrow.is_boolean, "boolean"),
    (arrow.is_int8, "byte"),
    (arrow.is_int16, "short"),
    (arrow.is_int32, "integer"),
    (arrow.is_int64, "long"),
    # Spark has no unsigned integers: the next larger type holds all values.
    (arrow.is_uint8, "short"),
    (arrow.is_uint16, "integer"),
    (arrow.is_uint32, "long"),
    (arrow.is_uint64, "decimal(20,0)"),
    (arrow.is_float16, "float"),
    (arrow.is_float32, "float"),
    (arrow.is_float64, "double"),
    (arrow.is_string, "string"),
    (arrow.is_large_string, "string"),
    (arrow.is_string_view, "string"),
    (arrow.is_date, "date"),
    # Spark has no type for a time of day or a duration that all its readers support.
    (arrow.is_time, "long"),
    (arrow.is_duration, "long"),
)


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a schema, in its order."""
    return tuple(Column(each.name, spark_type(each.type), each.nullable) for each in schema)


def spark_type(data_type: pa.DataType) -> SparkType:
    """Return the Spark type for a column of an Arrow type.

    A type without an equivalent in Spark, such as a union, is binary, so no column is omitted.
    """
    if isinstance(data_type, pa.BaseExtensionType):
        return spark_type(data_type.storage_type)
    if arrow.is_dictionary(data_type):
        return spark_type(data_type.value_type)
    for matches, name in _NAMES:
        if matches(data_type):
            return name
    if arrow.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    if arrow.is_decimal(data_type):
        fits = data_type.precision <= _LARGEST_DECIMAL
        return f"decimal({data_type.precision},{data_type.scale})" if fits else "string"
    return _nested(data_type)


def _nested(data_type: pa.DataType) -> SparkType:
    if arrow.is_struct(data_type):
        return {"type": "struct", "fields": [_field(each) for each in data_type]}
    if arrow.is_map(data_type):
        return {
            "type": "map",
            "keyType": spark_type(data_type.key_type),
            "valueType": spark_type(data_type.item_type),
            "valueContainsNull": data_type.item_field.nullable,
        }
    lists = (arrow.is_list, arrow.is_large_list, arrow.is_fixed_size_list)
    if any(matches(data_type) for matches in lists):
        return {
            "type": "array",
            "elementType": spark_type(data_type.value_type),
            "containsNull": data_type.value_field.nullable,
        }
    return "binary"


def _field(each: pa.Field) -> dict[str, Any]:
    return {
        "name": each.name,
        "type": spark_type(each.type),
        "nullable": each.nullable,
        "metadata": {},
    }
