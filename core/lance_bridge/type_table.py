"""The plain types of Arrow and their names elsewhere, and an Arrow schema in Spark's JSON of types.

A new type is one line here. Types with parameters (units, lengths, fields) are in the modules of
each form: the specification's JSON (`lance_bridge.dataset.schema_json`), Lance's own
(`lance_bridge_server.lancedb.type_names`), SQL names (`lance_bridge_cli.schemas`), Spark's
values (`lance_bridge_spark.schemas`).

The source of Spark's form is the JSON of ``pyspark.sql.types.StructType``, which Unity Catalog
stores per column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as arrow

from .records import Column


@dataclass(frozen=True)
class PlainType:
    """A type without parameters.

    Attributes:
        arrow: The type.
        name: Its name in Rust's Arrow, and in the specification's JSON.
        lance: Its name in Lance's own JSON, which LanceDB's client reads.
        sql: Its SQL name.
        spark: Its name in Spark's JSON: the smallest type that holds all its values.
        read_as: The type as which Spark reads its values, if it is another one.
    """

    arrow: pa.DataType
    name: str
    lance: str
    sql: str
    spark: str
    read_as: pa.DataType | None = None


PLAIN_TYPES = (
    PlainType(pa.null(), "null", "null", "null", "void"),
    PlainType(pa.bool_(), "bool", "bool", "boolean", "boolean"),
    PlainType(pa.int8(), "int8", "int8", "tinyint", "byte"),
    PlainType(pa.int16(), "int16", "int16", "smallint", "short"),
    PlainType(pa.int32(), "int32", "int32", "int", "integer"),
    PlainType(pa.int64(), "int64", "int64", "bigint", "long"),
    # Spark has no unsigned integers: the next larger type holds all values.
    PlainType(pa.uint8(), "uint8", "uint8", "tinyint unsigned", "short", pa.int16()),
    PlainType(pa.uint16(), "uint16", "uint16", "smallint unsigned", "integer", pa.int32()),
    PlainType(pa.uint32(), "uint32", "uint32", "int unsigned", "long", pa.int64()),
    PlainType(
        pa.uint64(), "uint64", "uint64", "bigint unsigned", "decimal(20,0)", pa.decimal128(20, 0)
    ),
    PlainType(pa.float16(), "float16", "halffloat", "float16", "float", pa.float32()),
    PlainType(pa.float32(), "float32", "float", "float", "float"),
    PlainType(pa.float64(), "float64", "double", "double", "double"),
    PlainType(pa.string(), "utf8", "string", "string", "string"),
    PlainType(pa.large_string(), "large_utf8", "large_string", "string", "string", pa.string()),
    PlainType(pa.string_view(), "utf8_view", "utf8_view", "string", "string", pa.string()),
    PlainType(pa.binary(), "binary", "binary", "binary", "binary"),
    PlainType(pa.large_binary(), "large_binary", "large_binary", "binary", "binary", pa.binary()),
    PlainType(pa.binary_view(), "binary_view", "binary_view", "binary", "binary", pa.binary()),
    PlainType(pa.date32(), "date32", "date32:day", "date", "date"),
    PlainType(pa.date64(), "date64", "date64:ms", "date", "date", pa.date32()),
)
_BY_TYPE = {each.arrow: each for each in PLAIN_TYPES}


def plain_type(dtype: pa.DataType) -> PlainType | None:
    """Return the entry of a type, or None if it has parameters."""
    return _BY_TYPE.get(dtype)


# -- types of Spark --------------------------------------------------------------------------------


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
