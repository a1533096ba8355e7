"""The types of Arrow and their names elsewhere; schemas in the specification's JSON and in Spark's.

A new plain type is one line here. Other modules have the forms of types with parameters (units,
lengths, fields) that only they use: Lance's own (`lance_bridge_server.lancedb.type_names`), SQL
names (`lance_bridge_cli.schemas`), and Spark's values (`lance_bridge_spark.schemas`).

The source of Spark's form is the JSON of ``pyspark.sql.types.StructType``, which Unity Catalog
stores per column. The names in the specification's JSON (JsonArrowSchema) are those of pylance's
directory namespace, so that clients read all namespaces the same way. As there, units, time zones
and dictionaries are omitted, and a decimal's ``length`` is ``precision * 1000 + scale``. A request
may have them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as arrow
from lance_namespace_urllib3_client.models import JsonArrowDataType, JsonArrowField, JsonArrowSchema
from pydantic import ValidationError

from .errors import invalid
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
    return plain.spark if plain else _with_parameters(data_type) or _nested_spark_type(data_type)


def _with_parameters(data_type: pa.DataType) -> str | None:
    if arrow.is_time(data_type) or arrow.is_duration(data_type):
        return "long"  # Spark has no type for these that all its readers support
    if arrow.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    if arrow.is_decimal(data_type):
        fits = data_type.precision <= _LARGEST_DECIMAL
        return f"decimal({data_type.precision},{data_type.scale})" if fits else "string"
    return None


def _nested_spark_type(data_type: pa.DataType) -> SparkType:
    if arrow.is_struct(data_type):
        return {"type": "struct", "fields": [_spark_field(each) for each in data_type]}
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


def _spark_field(each: pa.Field) -> dict[str, Any]:
    return {
        "name": each.name,
        "type": spark_type(each.type),
        "nullable": each.nullable,
        "metadata": {},
    }


# -- a schema in the specification's JSON ----------------------------------------------------------


def schema_to_json(schema: pa.Schema, *, exact: bool = False) -> JsonArrowSchema:
    """Return the JSON form of ``schema``.

    Args:
        exact: Whether types have their units and time zones, and dictionaries their indices, in the
            names that `type_from_json` reads, such as ``timestamp[ms, tz=UTC]``.
    """
    fields = [_field_to_json(field, exact=exact) for field in schema]
    return JsonArrowSchema(fields=fields, metadata=_decode(schema.metadata))


def _field_to_json(field: pa.Field, *, exact: bool) -> JsonArrowField:
    dtype, metadata = field.type, dict(field.metadata or {})
    if isinstance(dtype, pa.BaseExtensionType):
        # As in Arrow IPC, an extension type is its storage type with two metadata entries.
        metadata[b"ARROW:extension:name"] = dtype.extension_name.encode()
        metadata[b"ARROW:extension:metadata"] = _parameters(dtype)
        dtype = dtype.storage_type
    return JsonArrowField(
        name=field.name,
        nullable=field.nullable,
        type=_type_to_json(dtype, exact=exact),
        metadata=_decode(metadata),
    )


def _parameters(dtype: pa.BaseExtensionType) -> bytes:
    """Return the parameters of an extension type, such as the shape of a tensor, as in Arrow IPC.

    pyarrow has no method that returns those of its own types.
    """
    if hasattr(dtype, "__arrow_ext_serialize__"):
        return bytes(dtype.__arrow_ext_serialize__())
    from lance.schema import LanceSchema  # noqa: PLC0415 - takes long to import, and is seldom needed

    field: Any = LanceSchema.from_pyarrow(pa.schema([pa.field("c", dtype)])).field("c")
    found: dict[str, str] = field.metadata
    return found.get("ARROW:extension:metadata", "").encode()


def _type_to_json(dtype: pa.DataType, *, exact: bool) -> JsonArrowDataType:
    if pa.types.is_dictionary(dtype) and not exact:
        return _type_to_json(dtype.value_type, exact=exact)
    if pa.types.is_decimal(dtype):
        name = f"decimal{dtype.bit_width}"
        return JsonArrowDataType(type=name, length=dtype.precision * 1000 + dtype.scale)
    if pa.types.is_fixed_size_binary(dtype):
        return JsonArrowDataType(type="fixed_size_binary", length=dtype.byte_width)
    if pa.types.is_map(dtype):
        entries = pa.field(
            "entries", pa.struct([dtype.key_field, dtype.item_field]), nullable=False
        )
        return JsonArrowDataType(type="map", fields=[_field_to_json(entries, exact=exact)])
    if pa.types.is_nested(dtype):
        fixed = pa.types.is_fixed_size_list(dtype)
        return JsonArrowDataType(
            type=_plain_name(dtype),
            fields=[_field_to_json(dtype.field(i), exact=exact) for i in range(dtype.num_fields)],
            length=dtype.list_size if fixed else None,
        )
    name = str(dtype) if exact and plain_type(dtype) is None else _plain_name(dtype)
    return JsonArrowDataType(type=name)


def _plain_name(dtype: pa.DataType) -> str:
    """Return a type's name without its parameters: ``timestamp[us]`` is ``timestamp``."""
    plain = plain_type(dtype)
    return plain.name if plain else str(dtype).split("[", 1)[0].split("<", 1)[0]


def _decode(metadata: dict[bytes, bytes] | None) -> dict[str, str] | None:
    if not metadata:
        return None
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in metadata.items()}


# -- from JSON -------------------------------------------------------------------------------------

_PLAIN: dict[str, pa.DataType] = {
    **{each.name: each.arrow for each in PLAIN_TYPES},
    "boolean": pa.bool_(),
    # The default unit of Lance.
    "timestamp": pa.timestamp("us"),
    "duration": pa.duration("us"),
}
_PRINTED = {str(each.arrow): each.name for each in PLAIN_TYPES}
_WITH_UNIT = re.compile(r"(timestamp|duration|time32|time64)\[(s|ms|us|ns)(?:, *tz=(.+))?\]")
_DICTIONARY = re.compile(r"dictionary<values=(.+), indices=(u?int(?:8|16|32|64)), ordered=[01]>")
_DECIMALS = {"decimal128": pa.decimal128, "decimal256": pa.decimal256}
_MIN_SCALE = -128


def type_from_json(json: Mapping[str, Any]) -> pa.DataType:
    """Return the Arrow type that a JsonArrowDataType describes.

    A unit, a time zone and a dictionary may be given as Arrow prints them, as in
    ``timestamp[ns, tz=UTC]`` and ``dictionary<values=string, indices=int32, ordered=0>``. The
    default unit is microseconds.

    Raises:
        InvalidInputError: (13) it is not such a type, or has a key that its type does not use.
    """
    unknown = set(json) - set(JsonArrowDataType.model_fields)
    if unknown:
        raise invalid(
            f"data_type has an unknown key {sorted(unknown)[0]!r}: it has type, fields, length"
        )
    try:
        data_type = JsonArrowDataType.from_dict(dict(json))
    except ValidationError as error:
        raise invalid(f"data_type is not a JsonArrowDataType: {error.errors()[0]['msg']}") from None
    if data_type is None:
        raise invalid("data_type is empty")
    try:
        return _arrow_type(data_type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise invalid(f"data_type {data_type.type!r} is not valid: {error}") from error


def schema_from_json(json: Mapping[str, Any]) -> pa.Schema:
    """Return the Arrow schema that a JsonArrowSchema describes, with types as `type_from_json`.

    Raises:
        InvalidInputError: (13) it is not such a schema.
    """
    try:
        found = JsonArrowSchema.from_dict(dict(json))
    except (ValidationError, TypeError, AttributeError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise invalid(f"The schema is not a JsonArrowSchema: {reason}") from error
    if found is None or not found.fields:
        raise invalid("The schema has no fields")
    try:
        return pa.schema([_arrow_field(field) for field in found.fields], found.metadata)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise invalid(f"The schema is not valid: {error}") from error


def _arrow_type(data_type: JsonArrowDataType) -> pa.DataType:
    name = data_type.type.lower()
    if name in _PLAIN:
        _refuse_keys(data_type, "length", "fields")
        return _PLAIN[name]
    if match := _WITH_UNIT.fullmatch(data_type.type):
        _refuse_keys(data_type, "length", "fields")
        return _type_with_unit(*match.groups())
    if match := _DICTIONARY.fullmatch(data_type.type):
        _refuse_keys(data_type, "length", "fields")
        values, indices = (_PRINTED.get(each, each) for each in match.groups())
        return pa.dictionary(_PLAIN[indices], _arrow_type(JsonArrowDataType(type=values)))
    if name in _DECIMALS:
        _refuse_keys(data_type, "fields")
        precision = (_length(data_type) - _MIN_SCALE) // 1000
        return _DECIMALS[name](precision, _length(data_type) - precision * 1000)
    if name == "fixed_size_binary":
        _refuse_keys(data_type, "fields")
        return pa.binary(_length(data_type))
    return _nested_type(data_type, name)


def _nested_type(data_type: JsonArrowDataType, name: str) -> pa.DataType:
    if name != "fixed_size_list":
        _refuse_keys(data_type, "length")
    if name == "struct":
        return pa.struct([_arrow_field(field) for field in data_type.fields or []])
    if name not in {"list", "large_list", "fixed_size_list", "map"}:
        raise invalid(f"data_type {data_type.type!r} is not known: see JsonArrowDataType")
    if data_type.fields is None or len(data_type.fields) != 1:
        raise invalid(f"data_type {data_type.type!r} needs one field in fields")
    inner = _arrow_field(data_type.fields[0])
    if name == "map":
        if not pa.types.is_struct(inner.type) or inner.type.num_fields != 2:
            raise invalid("data_type 'map' needs a field of a struct of a key and a value")
        return pa.map_(inner.type.field(0), inner.type.field(1))
    if name == "fixed_size_list":
        return pa.list_(inner, _length(data_type))
    return pa.large_list(inner) if name == "large_list" else pa.list_(inner)


def _type_with_unit(name: str, unit: str, zone: str | None) -> pa.DataType:
    if zone is not None and name != "timestamp":
        raise invalid(f"data_type {name!r} has no time zone")
    if name == "timestamp":
        return pa.timestamp(unit, zone)
    return {"duration": pa.duration, "time32": pa.time32, "time64": pa.time64}[name](unit)


def _arrow_field(data_type: JsonArrowField) -> pa.Field:
    return pa.field(
        data_type.name, _arrow_type(data_type.type), data_type.nullable, data_type.metadata
    )


def _length(data_type: JsonArrowDataType) -> int:
    if data_type.length is None:
        raise invalid(f"data_type {data_type.type!r} needs a length")
    return int(data_type.length)


def _refuse_keys(data_type: JsonArrowDataType, *keys: str) -> None:
    for key in keys:
        if getattr(data_type, key) is not None:
            raise invalid(f"data_type {data_type.type!r} has no {key}")


def schema_from_base64(text: str, problem: str) -> pa.Schema:
    """Return the schema in an Arrow IPC message, in base64. Raises InvalidInput (13)."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise invalid(problem) from error
