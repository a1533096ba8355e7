"""Columns of nulls, for which LanceDB's client sends an Arrow schema."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from lance_bridge.errors import invalid

NEW_COLUMNS = "alter_table_add_columns"
"""The operation that accepts a schema as well as JSON."""

_NAMES = {
    "bool": "Boolean",
    "halffloat": "Float16",
    "float": "Float32",
    "double": "Float64",
    "string": "Utf8",
    "large_string": "LargeUtf8",
    "binary": "Binary",
    "large_binary": "LargeBinary",
    "date32[day]": "Date32",
    "date64[ms]": "Date64",
    **{f"{sign}int{bits}": f"{sign.upper()}Int{bits}"
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def new_columns(body: bytes) -> dict[str, Any]:
    """Return the request fields that add the columns of a schema, given as an Arrow IPC stream.

    They have the schema for lance-bridge's own catalogs, and expressions for others, which ignore
    it: none, if an expression cannot make one of the columns.

    Raises:
        InvalidInputError: (13) the body is not a schema.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(body))
    except (pa.ArrowException, OSError) as error:
        raise invalid(f"The body is not an Arrow schema: {error}") from None
    entries = [_entry(field) for field in schema]
    return {
        "new_columns": [] if None in entries else entries,
        "arrow_schema": base64.b64encode(body).decode(),
    }


def _entry(field: pa.Field) -> dict[str, str] | None:
    """Return the entry of a column with the expression that makes it; None if there is none."""
    dtype = _type(field.type)
    if dtype is None or field.metadata or not field.nullable:
        return None
    return {"name": field.name, "expression": f"arrow_cast(NULL, '{dtype}')"}


def _type(dtype: pa.DataType) -> str | None:
    """Return a type as Lance's SQL writes it."""
    return _NAMES.get(str(dtype)) or _type_with_parameters(dtype) or _nested_type(dtype)


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
        types = [_type(each) for each in (dtype.index_type, dtype.value_type)]
        return None if None in types else f"Dictionary({', '.join(map(str, types))})"
    is_list, is_fixed = pa.types.is_list(dtype), pa.types.is_fixed_size_list(dtype)
    if not (is_list or is_fixed) or dtype.value_field.name != "item":
        return None
    inner = _type(dtype.value_type)
    if inner is None:
        return None
    return f"FixedSizeList({dtype.list_size}, {inner})" if is_fixed else f"List({inner})"
