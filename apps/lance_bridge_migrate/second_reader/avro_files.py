"""Read the columns and the number of rows of Avro files from their headers, without a library.

A file begins with its schema, in JSON. Each block of rows says how many there are, and its size.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import pyarrow as pa

_MAGIC = b"Obj\x01"
_SYNC = 16
_SCHEMA = "avro.schema"
_LONGEST_NUMBER = 10
"""The bytes of a number of 64 bits."""
_LARGEST = 64 << 20
"""The largest value in a header; a larger size is that of a damaged file."""

_PLAIN: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_UNKNOWN = pa.null()
"""The type of what Spark alone knows: it is not compared."""


def read_columns(file: BinaryIO) -> pa.Schema:
    """Return the columns of a file, and read to the end of its header.

    Raises:
        ValueError: It is no Avro file, or is damaged.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is no Avro file")
    header = _map(file)
    file.seek(_SYNC, io.SEEK_CUR)
    return schema_of(json.loads(header[_SCHEMA]))


def count_rows(file: BinaryIO) -> int:
    """Return the number of rows of a file that was read to the end of its header.

    Raises:
        ValueError: It is damaged.
    """
    rows = 0
    while (count := _number(file, may_end=True)) is not None:
        size = _number(file)
        file.seek(size + _SYNC, io.SEEK_CUR)
        rows += count
    return rows


def schema_of(avro: Any) -> pa.Schema:
    """Return the columns of a schema of Avro, as Spark reads them."""
    found = _Types().of(avro)
    if not pa.types.is_struct(found):
        raise ValueError("its rows are no records")
    return pa.schema([*found])


def _map(file: BinaryIO) -> dict[str, bytes]:
    found = {}
    while count := _number(file):
        if count < 0:
            _number(file)
        for _ in range(abs(count)):
            key = _value(file).decode()
            found[key] = _value(file)
    if _SCHEMA not in found:
        raise ValueError("it has no schema")
    return found


def _value(file: BinaryIO) -> bytes:
    size = _number(file)
    data = file.read(size) if 0 <= size <= _LARGEST else b""
    if len(data) != size:
        raise ValueError("its header is damaged")
    return data


def _number(file: BinaryIO, *, may_end: bool = False) -> Any:
    """Return a number in Avro's encoding; None at the end of a file, if it may end."""
    found = 0
    for position in range(_LONGEST_NUMBER):
        [*byte] = file.read(1)
        if not byte:
            if may_end and not position:
                return None
            raise ValueError("it ends too early")
        found |= (byte[0] & 0x7F) << (7 * position)
        if byte[0] < 0x80:
            return (found >> 1) ^ -(found & 1)
    raise ValueError("it is damaged")


class _Types:
    """Arrow types of Avro's, with those that have a name."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}
        self._namespace = ""

    def of(self, avro: Any) -> pa.DataType:
        if isinstance(avro, list):
            return self._union(avro)
        if isinstance(avro, str):
            return _PLAIN.get(avro) or self._named.get(self._full_name(avro), _UNKNOWN)
        kind = avro["type"]
        made = self._NESTED.get(kind) if isinstance(kind, str) else None
        if made is not None:
            return made(self, avro)
        found = _logical(avro) or (_PLAIN.get(kind) if isinstance(kind, str) else None)
        found = found or self.of(kind)
        if "name" in avro:
            self._add(avro, found)
        return found

    def _add(self, avro: Any, found: pa.DataType) -> None:
        name = str(avro["name"])
        if avro.get("namespace") and "." not in name:
            name = f"{avro['namespace']}.{name}"
        self._named[self._full_name(name)] = found

    def _full_name(self, name: str) -> str:
        return name if "." in name or not self._namespace else f"{self._namespace}.{name}"

    def _union(self, avro: list[Any]) -> pa.DataType:
        found = [self.of(each) for each in avro if each != "null"]
        if len(found) == 1:
            return found[0]
        for numbers in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
            if found and {*found} == {*numbers}:
                return numbers[-1]
        return _UNKNOWN

    def _record(self, avro: Any) -> pa.DataType:
        self._add(avro, _UNKNOWN)  # until it is known, as in a type that contains itself
        outer = self._namespace
        self._namespace = avro.get("namespace") or str(avro["name"]).rpartition(".")[0] or outer
        found = pa.struct([(each["name"], self.of(each["type"])) for each in avro["fields"]])
        self._namespace = outer
        self._add(avro, found)
        return found

    def _array(self, avro: Any) -> pa.DataType:
        return pa.list_(self.of(avro["items"]))

    def _map(self, avro: Any) -> pa.DataType:
        return pa.map_(pa.string(), self.of(avro["values"]))

    _NESTED: Mapping[str, Callable[[_Types, Any], pa.DataType]] = {
        "record": _record,
        "array": _array,
        "map": _map,
    }


def _logical(avro: Any) -> pa.DataType | None:
    name = avro.get("logicalType")
    if name == "decimal":
        precision, scale = int(avro["precision"]), int(avro.get("scale", 0))
        return pa.decimal128(precision, scale) if precision <= 38 else _UNKNOWN
    return _LOGICAL.get(name)
