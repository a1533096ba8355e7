"""Names of types: translates those of Lance's own JSON, and forms those of casts in Lance's SQL.

LanceDB's client reads and writes that JSON. It names types differently from the specification's
JSON, and has units, time zones and dictionaries, which the specification lacks. It has no maps:
they are lists of their entries. Which types there are says `lance_bridge.arrow_types`.
Source: ``arrow/json.rs`` and ``datatypes.rs`` of Lance 13.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lance_bridge.arrow_types import PLAIN_TYPES, plain_type
from lance_bridge.errors import invalid, unsupported

_NAMES = {**{each.name: each.lance for each in PLAIN_TYPES}, "boolean": "bool"}
_SPECIFIED = {each.lance: each.name for each in PLAIN_TYPES}
_WITH_UNIT = ("timestamp", "time32", "time64", "duration")

Json = dict[str, Any]


def schema_to_json(specified: Json, schema: pa.Schema) -> Json:
    """Translate the specification's JSON of a schema to Lance's own.

    Args:
        schema: The same columns, with the details that the JSON lacks. If a column has another type
            there (a blob, which is read as a description of its bytes), the JSON's type is used.
    """
    fields = zip(specified["fields"], schema, strict=True)
    return {**specified, "fields": [_field_to_json(each, field) for each, field in fields]}


def _field_to_json(specified: Json, field: pa.Field | None) -> Json:
    dtype = None if field is None else _storage_type(field.type)
    return {**specified, "type": _type_to_json(specified["type"], dtype)}


def _storage_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def _type_to_json(specified: Json, dtype: pa.DataType | None) -> Json:
    name = specified["type"]
    if dtype is not None and pa.types.is_dictionary(dtype):
        names = [
            _type_to_json(_type_to_spec(each), each)
            for each in (dtype.value_type, dtype.index_type)
        ]
        return {"type": f"dict:{names[0]['type']}:{names[1]['type']}:false"}
    if name in _WITH_UNIT and dtype is not None and hasattr(dtype, "unit"):
        zone = f":{dtype.tz or '-'}" if name == "timestamp" else ""
        return {"type": f"{name}:{dtype.unit}{zone}"}
    if name.startswith("decimal"):
        precision = (specified["length"] + 128) // 1000  # a scale is from -128 to 127
        scale = specified["length"] - precision * 1000
        return {"type": f"decimal:{name.removeprefix('decimal')}:{precision}:{scale}"}
    if specified.get("fields"):
        # Lance's JSON has no maps: without this, the client could not even read their table.
        shown = "list" if name == "map" else name
        fields = _fields_to_json(specified["fields"], dtype)
        return {**specified, "type": shown, "fields": fields}
    return {**specified, "type": _NAMES.get(name, name)}


def _fields_to_json(specified: list[Json], dtype: pa.DataType | None) -> list[Json]:
    if dtype is not None and pa.types.is_map(dtype):
        entries = pa.struct([dtype.key_field, dtype.item_field])
        return [_field_to_json(specified[0], pa.field("entries", entries))]
    count = dtype.num_fields if dtype is not None and pa.types.is_nested(dtype) else 0
    found = [dtype.field(i) for i in range(count)] if dtype is not None else []
    if [each.name for each in found] != [each["name"] for each in specified]:
        return [_field_to_json(each, None) for each in specified]
    return [_field_to_json(each, field) for each, field in zip(specified, found, strict=True)]


def _type_to_spec(dtype: pa.DataType) -> Json:
    """Return the specification's JSON of a type, with the parameters that `_type_to_json` reads."""
    if pa.types.is_decimal(dtype):
        return {"type": f"decimal{dtype.bit_width}", "length": dtype.precision * 1000 + dtype.scale}
    name = str(dtype).partition("[")[0]
    return {"type": name}


# -- from Lance's JSON -----------------------------------------------------------------------------


def type_from_json(data_type: Json) -> Json:
    """Translate Lance's JSON of a type to the specification's.

    Raises:
        InvalidInputError: (13) it is malformed.
        UnsupportedOperationError: (0) it is a dictionary of values that have no name of their own.
    """
    written = data_type.get("type", "")
    if not isinstance(written, str):
        raise invalid("The `type` of a data_type must be a string")
    name, *rest = written.split(":")
    if name == "dict":
        return _dictionary_from_json(rest)
    if name == "decimal":
        return _decimal_from_json(rest)
    if name in _WITH_UNIT and rest:
        unit, zone = rest[0], ":".join(rest[1:])
        shown = f"{name}[{unit}, tz={zone}]" if zone not in ("", "-") else f"{name}[{unit}]"
        return {"type": shown}
    found = {**data_type, "type": _SPECIFIED.get(written, data_type.get("type"))}
    if found.get("fields"):
        found["fields"] = _fields_from_json(found["fields"])
    return found


def _dictionary_from_json(parts: list[str]) -> Json:
    """Return a dictionary as Arrow prints it; see `lance_bridge.arrow_types`."""
    *value, index, _ordered = parts if len(parts) > 2 else ["", "", ""]
    inner = [type_from_json({"type": each}) for each in (":".join(value), index)]
    if any(each.keys() != {"type"} for each in inner):
        raise unsupported(
            f"A column cannot be changed to a dictionary of {':'.join(value)[:60]}: the protocol "
            "cannot express it"
        )
    values, indices = (each["type"] for each in inner)
    return {"type": f"dictionary<values={values}, indices={indices}, ordered=0>"}


def _fields_from_json(fields: Any) -> list[Json]:
    found: list[Any] = fields if isinstance(fields, list) else [None]
    if not all(isinstance(each, dict) and isinstance(each.get("type"), dict) for each in found):
        raise invalid("The `fields` of a data_type must be a list of fields, each with its `type`")
    return [{**each, "type": type_from_json(each["type"])} for each in found]


def _decimal_from_json(parts: list[str]) -> Json:
    try:
        bits, precision, scale = (int(each) for each in parts)
    except ValueError:
        raise invalid(f"data_type 'decimal:{':'.join(parts)[:60]}' is not valid") from None
    return {"type": f"decimal{bits}", "length": precision * 1000 + scale}


# -- types in SQL ----------------------------------------------------------------------------------


_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_NO_CAST = ("null", "utf8_view", "binary_view")
"""Types that Lance cannot store, or that a cast of null does not make."""


def cast_type(dtype: pa.DataType) -> str | None:
    """Return a type as ``arrow_cast`` of Lance's SQL takes it, or None if it cannot."""
    plain = plain_type(dtype)
    if plain is not None:
        return None if plain.name in _NO_CAST else _cast_name(plain.name)
    return _type_with_parameters(dtype) or _nested_type(dtype)


def _cast_name(name: str) -> str:
    """Return the name of a variant of Rust's ``DataType``: ``LargeUtf8`` of ``large_utf8``."""
    words = name.title().replace("_", "").replace("Uint", "UInt")
    return "Boolean" if words == "Bool" else words


def _type_with_parameters(dtype: pa.DataType) -> str | None:
    if pa.types.is_timestamp(dtype):
        zone = "None" if not dtype.tz else 'Some("' + dtype.tz.replace("'", "''") + '")'
        return f"Timestamp({_UNITS[dtype.unit]}, {zone})"
    if pa.types.is_duration(dtype):
        return f"Duration({_UNITS[dtype.unit]})"
    if pa.types.is_time(dtype):
        return f"Time{dtype.bit_width}({_UNITS[dtype.unit]})"
    if pa.types.is_decimal(dtype):
        return f"Decimal{dtype.bit_width}({dtype.precision}, {dtype.scale})"
    return None


def _nested_type(dtype: pa.DataType) -> str | None:
    if pa.types.is_dictionary(dtype):
        types = [cast_type(each) for each in (dtype.index_type, dtype.value_type)]
        return None if None in types else f"Dictionary({', '.join(map(str, types))})"
    is_list, is_fixed = pa.types.is_list(dtype), pa.types.is_fixed_size_list(dtype)
    if not (is_list or is_fixed) or dtype.value_field.name != "item":
        return None
    inner = cast_type(dtype.value_type)
    if inner is None:
        return None
    return f"FixedSizeList({dtype.list_size}, {inner})" if is_fixed else f"List({inner})"
