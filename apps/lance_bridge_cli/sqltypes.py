"""Types of columns as SQL writes them, with what Arrow knows beside: units, zones and lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types

_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "tinyint unsigned",
    "uint16": "smallint unsigned",
    "uint32": "int unsigned",
    "uint64": "bigint unsigned",
    "halffloat": "float16",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
    "date32[day]": "date",
    "date64[ms]": "date",
}


def sql_type(kind: pa.DataType) -> str:
    """Return ``decimal(10,2)``, ``timestamp(us, UTC)``, ``array<int>`` or ``float[128]``."""
    if isinstance(kind, pa.BaseExtensionType):
        return f"{sql_type(kind.storage_type)} ({kind.extension_name})"
    for applies, form in _FORMS:
        if applies(kind):
            return form(kind)
    return _NAMES.get(str(kind), str(kind))


def _timestamp(kind: pa.DataType) -> str:
    return f"timestamp({kind.unit}, {kind.tz})" if kind.tz else f"timestamp({kind.unit})"


def _array(kind: pa.DataType) -> str:
    return f"array<{sql_type(kind.value_type)}>"


def _struct(kind: pa.DataType) -> str:
    fields = (kind.field(position) for position in range(kind.num_fields))
    return f"struct<{', '.join(f'{each.name}: {sql_type(each.type)}' for each in fields)}>"


_FORMS: tuple[tuple[Callable[[Any], bool], Callable[[Any], str]], ...] = (
    (types.is_dictionary, lambda kind: sql_type(kind.value_type)),
    (types.is_decimal, lambda kind: f"decimal({kind.precision},{kind.scale})"),
    (types.is_timestamp, _timestamp),
    (types.is_time, lambda kind: f"time({kind.unit})"),
    (types.is_duration, lambda kind: f"duration({kind.unit})"),
    (types.is_fixed_size_binary, lambda kind: f"binary({kind.byte_width})"),
    (types.is_fixed_size_list, lambda kind: f"{sql_type(kind.value_type)}[{kind.list_size}]"),
    (types.is_list, _array),
    (types.is_large_list, _array),
    (types.is_map, lambda kind: f"map<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"),
    (types.is_struct, _struct),
)
