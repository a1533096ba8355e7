"""Columns of nulls, for which LanceDB's client sends an Arrow schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lance_bridge.errors import invalid, unsupported

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

    Raises:
        InvalidInputError: (13) the body is not a schema, or a column may not be null.
        UnsupportedOperationError: (0) a column has metadata, or a type that no expression has.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(body))
    except (pa.ArrowException, OSError) as error:
        raise invalid(f"The body is not an Arrow schema: {error}") from None
    return {"new_columns": [_entry(field) for field in schema]}


def _entry(field: pa.Field) -> dict[str, str]:
    if not field.nullable:
        raise invalid(
            f"Column '{field.name}' may not be null, so it needs values: give expressions"
        )
    if field.metadata:
        raise unsupported(f"Column '{field.name}' has metadata, which cannot be added with it")
    return {
        "name": field.name,
        "expression": f"arrow_cast(NULL, '{_type(field.name, field.type)}')",
    }


def _type(column: str, dtype: pa.DataType) -> str:
    """Return a type as Lance's SQL writes it."""
    name = _NAMES.get(str(dtype)) or _type_with_parameters(dtype) or _nested_type(column, dtype)
    if name is None:
        raise unsupported(
            f"Column '{column}' of nulls cannot be of type {dtype}: give it an expression"
        )
    return name


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


def _nested_type(column: str, dtype: pa.DataType) -> str | None:
    if pa.types.is_dictionary(dtype):
        types = [_type(column, each) for each in (dtype.index_type, dtype.value_type)]
        return f"Dictionary({', '.join(types)})"
    if pa.types.is_fixed_size_list(dtype) and dtype.value_field.name == "item":
        return f"FixedSizeList({dtype.list_size}, {_type(column, dtype.value_type)})"
    if pa.types.is_list(dtype) and dtype.value_field.name == "item":
        return f"List({_type(column, dtype.value_type)})"
    return None
