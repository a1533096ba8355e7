"""Columns in SQL: the JSON of Spark's schemas, with what the data source's schemas lack.

These are the lengths of strings, comments of nested fields, and properties that declare vectors.
All else is in `lance_bridge_spark.schemas`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from lance_bridge import blobs

from ..schemas import (
    COMMENT,
    collation_error,
    new_schema,
    read_type,
    spark_schema,
    stored_metadata,
)
from ..source.options import whole_number

TYPE = "spark.type"
"""The key in a column's metadata for ``char(n)`` and ``varchar(n)``; Spark checks the lengths."""
_LENGTH_CHECKED = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's own key for string columns whose lengths it checks."""
_COLLATIONS = "__COLLATIONS"
"""Spark's own key for the collations of a column's strings."""
VECTOR = "vector."
"""The table property ``'vector.v' = '16'`` makes column ``v`` vectors of 16 elements."""

Json = dict[str, Any]


def to_spark(schema: pa.Schema) -> str:
    """Return the JSON text of the ``StructType`` for Spark."""
    struct = spark_schema(schema).jsonValue()
    return json.dumps(_add_metadata(struct, list(schema)))


def _add_metadata(struct: Any, fields: list[pa.Field]) -> Any:
    """Return the JSON of a struct with the metadata of its fields, at every depth."""
    pairs = zip(struct["fields"], fields, strict=True)
    return {**struct, "fields": [_add_field_metadata(each, field) for each, field in pairs]}


def _add_field_metadata(spark_json: Json, field: pa.Field) -> Json:
    metadata: Json = {}
    comment = (field.metadata or {}).get(COMMENT.encode())
    if comment is not None:
        metadata[COMMENT] = comment.decode(errors="replace")
    metadata |= stored_metadata(field)
    exact = (field.metadata or {}).get(TYPE.encode())
    if exact is not None:
        metadata[_LENGTH_CHECKED] = exact.decode(errors="replace")
    return {
        **spark_json,
        "type": _add_type_metadata(spark_json["type"], field.type),
        "metadata": metadata,
    }


def _add_type_metadata(spark_json: Any, dtype: pa.DataType) -> Any:
    if not isinstance(spark_json, dict):
        return spark_json
    if pa.types.is_struct(dtype):
        return _add_metadata(spark_json, [dtype.field(i) for i in range(dtype.num_fields)])
    if spark_json.get("type") == "array":
        return {
            **spark_json,
            "elementType": _add_type_metadata(spark_json["elementType"], dtype.value_type),
        }
    return spark_json


def converted_columns(schema: pa.Schema) -> list[str]:
    """Return the columns whose values in Spark differ from the stored ones, at any depth.

    A type that differs only in layout, such as ``large_string``, is not converted.
    """
    return [f.name for f in schema if blobs.has_blobs(f) or _is_converted(f.type)]


def _is_converted(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return True
    if pa.types.is_map(dtype):
        return _is_converted(dtype.key_type) or _is_converted(dtype.item_type)
    if pa.types.is_nested(dtype):
        return any(_is_converted(dtype.field(i).type) for i in range(dtype.num_fields))
    if pa.types.is_duration(dtype):
        return True  # its literals differ between Lance and Spark
    return bool(read_type(dtype) != dtype and not any(same(dtype) for same in _SAME_VALUES))


_SAME_VALUES = (
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


def to_arrow(text: str, properties: Mapping[str, str] | None = None) -> pa.Schema:
    """Return the Arrow schema of a table with these columns.

    Args:
        text: The JSON text of a ``StructType``.
        properties: The table's properties, which may declare columns as vectors.

    Raises:
        InvalidInputError: (13) a type that Lance does not have, or an invalid vector.
    """
    parsed = json.loads(text)
    _refuse_collations_of_lengths(parsed)
    struct = StructType.fromJson(parsed)
    schema = new_schema(_without_lengths(struct), _vectors(properties or {}))
    return pa.schema([_with_metadata(field, struct[field.name]) for field in schema])


def to_arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type for the JSON text of a type of Spark.

    Raises:
        InvalidInputError: (13) Lance has no such type.
    """
    spark_json = {"name": "value", "type": json.loads(text), "nullable": True, "metadata": {}}
    return to_arrow(json.dumps({"type": "struct", "fields": [spark_json]})).field(0).type


def length_in(text: str) -> str | None:
    """Return ``varchar(10)`` or ``char(3)`` if that is the JSON text of a type, or None."""
    found = json.loads(text)
    return found if str(found).startswith(("char(", "varchar(")) else None


def _vectors(properties: Mapping[str, str]) -> dict[str, int]:
    return {
        key.removeprefix(VECTOR): whole_number(f"Property '{key}'", value)
        for key, value in properties.items()
        if key.startswith(VECTOR)
    }


def _without_lengths(struct: StructType) -> StructType:
    """Return the columns with ``char(n)`` and ``varchar(n)`` as strings: Arrow lacks them."""
    return StructType(
        [
            StructField(each.name, StringType(), each.nullable, each.metadata)
            if isinstance(each.dataType, CharType | VarcharType)
            else each
            for each in struct.fields
        ]
    )


def _refuse_collations_of_lengths(struct: Json) -> None:
    """Raise InvalidInput (13) for a ``char(n)`` with a collation, which PySpark's type loses."""
    for each in struct["fields"]:
        type_json = json.dumps(each["type"])
        has_collation = _COLLATIONS in (each.get("metadata") or {}) or " collate " in type_json
        if has_collation and "char(" in type_json:
            raise collation_error(each["name"], type_json.strip('"'))


def _with_metadata(field: pa.Field, spark: StructField) -> pa.Field:
    """Return a column with the lengths of strings and the comments of fields as metadata."""
    metadata = dict(field.metadata or {})
    if isinstance(spark.dataType, CharType | VarcharType):
        metadata[TYPE.encode()] = spark.dataType.simpleString().encode()
    dtype = _add_comments(field.type, spark.dataType)
    return field.with_type(dtype).with_metadata(metadata or None)


def _add_comments(dtype: pa.DataType, spark: DataType) -> pa.DataType:
    if isinstance(spark, StructType) and pa.types.is_struct(dtype):
        children = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.struct([_add_comment(child, spark[child.name]) for child in children])
    if isinstance(spark, ArrayType) and pa.types.is_list(dtype):
        inner = dtype.value_field
        return pa.list_(inner.with_type(_add_comments(inner.type, spark.elementType)))
    return dtype


def _add_comment(field: pa.Field, spark: StructField) -> pa.Field:
    comment = (spark.metadata or {}).get(COMMENT)
    dtype = _add_comments(field.type, spark.dataType)
    metadata = {**(field.metadata or {}), **({COMMENT: comment} if comment else {})}
    return field.with_type(dtype).with_metadata(metadata or None)
