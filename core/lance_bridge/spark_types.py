"""Columns for catalogs that show them: an Arrow schema in Spark's JSON form of types.

Source: the JSON of ``pyspark.sql.types.StructType``, which Unity Catalog stores per column.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as arrow

from .records import Column
from .types import plain_type

SparkType = str | dict[str, Any]

_LARGEST_DECIMAL = 38


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
    plain = plain_type(data_type)
    return plain.spark if plain else _with_parameters(data_type) or _nested(data_type)


def _with_parameters(data_type: pa.DataType) -> str | None:
    if arrow.is_time(data_type) or arrow.is_duration(data_type):
        return "long"  # Spark has no type for these that all its readers support
    if arrow.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    if arrow.is_decimal(data_type):
        fits = data_type.precision <= _LARGEST_DECIMAL
        return f"decimal({data_type.precision},{data_type.scale})" if fits else "string"
    return None


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
