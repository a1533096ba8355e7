"""An Arrow schema as the specification's JSON (JsonArrowSchema), in Arrow's own type names.

The names are those of pylance's directory namespace, so that clients read all namespaces the same
way. As there, units, time zones and dictionaries are omitted, and a decimal's ``length`` is
``precision * 1000 + scale``. A request may have them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema
from lance_namespace_urllib3_client.models import JsonArrowDataType, JsonArrowField, JsonArrowSchema
from pydantic import ValidationError

from ..errors import invalid
from ..type_table import PLAIN_TYPES, plain_type


def to_json(schema: pa.Schema) -> JsonArrowSchema:
    """Return the JSON form of ``schema``."""
    return JsonArrowSchema(
        fields=[_field_to_json(field) for field in schema], metadata=_decode(schema.metadata)
    )


def _field_to_json(field: pa.Field) -> JsonArrowField:
    dtype, metadata = field.type, dict(field.metadata or {})
    if isinstance(dtype, pa.BaseExtensionType):
        # As in Arrow IPC, an extension type is its storage type with two metadata entries.
        metadata[b"ARROW:extension:name"] = dtype.extension_name.encode()
        metadata[b"ARROW:extension:metadata"] = _parameters(dtype)
        dtype = dtype.storage_type
    return JsonArrowField(
        name=field.name,
        nullable=field.nullable,
        type=_type_to_json(dtype),
        metadata=_decode(metadata),
    )


def _parameters(dtype: pa.BaseExtensionType) -> bytes:
    """Return the parameters of an extension type, such as the shape of a tensor, as in Arrow IPC.

    pyarrow has no method that returns those of its own types.
    """
    if hasattr(dtype, "__arrow_ext_serialize__"):
        return bytes(dtype.__arrow_ext_serialize__())
    field: Any = LanceSchema.from_pyarrow(pa.schema([pa.field("c", dtype)])).field("c")
    found: dict[str, str] = field.metadata
    return found.get("ARROW:extension:metadata", "").encode()


def _type_to_json(dtype: pa.DataType) -> JsonArrowDataType:
    if pa.types.is_dictionary(dtype):
        return _type_to_json(dtype.value_type)
    if pa.types.is_decimal(dtype):
        name = f"decimal{dtype.bit_width}"
        return JsonArrowDataType(type=name, length=dtype.precision * 1000 + dtype.scale)
    if pa.types.is_fixed_size_binary(dtype):
        return JsonArrowDataType(type="fixed_size_binary", length=dtype.byte_width)
    if pa.types.is_map(dtype):
        entries = pa.field(
            "entries", pa.struct([dtype.key_field, dtype.item_field]), nullable=False
        )
        return JsonArrowDataType(type="map", fields=[_field_to_json(entries)])
    if pa.types.is_nested(dtype):
        fixed = pa.types.is_fixed_size_list(dtype)
        return JsonArrowDataType(
            type=_plain_name(dtype),
            fields=[_field_to_json(dtype.field(i)) for i in range(dtype.num_fields)],
            length=dtype.list_size if fixed else None,
        )
    return JsonArrowDataType(type=_plain_name(dtype))


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


def from_base64(text: str, problem: str) -> pa.Schema:
    """Return the schema in an Arrow IPC message, in base64. Raises InvalidInput (13)."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise invalid(problem) from error
