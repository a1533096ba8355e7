"""Write Avro files without a library, for the tests of what readers make of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

_MAGIC, _SYNC = b"Obj\x01", bytes(range(16))


def avro_file(rows: Sequence[dict[str, Any]], block: int = 100) -> bytes:
    """Return a file with rows, whose columns are those of the first row, and may all be null.

    Args:
        block: The number of rows in each block.
    """
    columns = {name: _type_of([row[name] for row in rows], name) for name in rows[0]}
    fields = [{"name": name, "type": ["null", of]} for name, of in columns.items()]
    schema = json.dumps({"type": "record", "name": "Row", "fields": fields})
    header = _number(1) + _text("avro.schema") + _text(schema) + _number(0)
    parts = [_MAGIC, header, _SYNC]
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        data = b"".join(_optional(row[name], of) for row in some for name, of in columns.items())
        parts += [_number(len(some)), _number(len(data)), data, _SYNC]
    return b"".join(parts)


def _type_of(values: Sequence[Any], path: str) -> Any:
    found = [each for each in values if each is not None]
    first = found[0] if found else ""
    if isinstance(first, dict):
        fields = [
            {
                "name": name,
                "type": ["null", _type_of([each[name] for each in found], f"{path}_{name}")],
            }
            for name in first
        ]
        return {"type": "record", "name": f"R_{path}", "fields": fields}
    if isinstance(first, list):
        items = [item for each in found for item in each]
        return {"type": "array", "items": ["null", _type_of(items, f"{path}_item")]}
    return {int: "long", float: "double", str: "string"}[type(first)]


def _optional(value: Any, of: Any) -> bytes:
    return _number(0) if value is None else _number(1) + _value(value, of)


def _value(value: Any, of: Any) -> bytes:
    if of == "long":
        return _number(value)
    if of == "double":
        return struct.pack("<d", value)
    if of == "string":
        return _text(value)
    if of["type"] == "array":
        items = b"".join(_optional(each, of["items"][1]) for each in value)
        return (_number(len(value)) + items if value else b"") + _number(0)
    return b"".join(_optional(value[each["name"]], each["type"][1]) for each in of["fields"])


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])
