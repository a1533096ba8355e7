"""SQL names of Arrow types, rows of Arrow batches, and schemas in files, for commands of tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import types

from lance_bridge.arrow_types import plain_type, schema_from_json
from lance_bridge.arrow_values import to_values
from lance_bridge.errors import first_line, invalid, unsupported

_MAGIC_BYTES = 16


def sql_type(type_: pa.DataType) -> str:
    """Return a type's SQL name, such as ``decimal(10,2)``, ``array<int>`` or ``float[128]``."""
    if isinstance(type_, pa.BaseExtensionType):
        return f"{sql_type(type_.storage_type)} ({type_.extension_name})"
    if plain := plain_type(type_):
        return plain.sql
    return next((form(type_) for applies, form in _FORMS if applies(type_)), str(type_))


def _timestamp(type_: pa.DataType) -> str:
    return f"timestamp({type_.unit}, {type_.tz})" if type_.tz else f"timestamp({type_.unit})"


def _array(type_: pa.DataType) -> str:
    return f"array<{sql_type(type_.value_type)}>"


def _struct(type_: pa.DataType) -> str:
    fields = (type_.field(position) for position in range(type_.num_fields))
    return f"struct<{', '.join(f'{each.name}: {sql_type(each.type)}' for each in fields)}>"


_FORMS: tuple[tuple[Callable[[Any], bool], Callable[[Any], str]], ...] = (
    (types.is_dictionary, lambda type_: sql_type(type_.value_type)),
    (types.is_decimal, lambda type_: f"decimal({type_.precision},{type_.scale})"),
    (types.is_timestamp, _timestamp),
    (types.is_time, lambda type_: f"time({type_.unit})"),
    (types.is_duration, lambda type_: f"duration({type_.unit})"),
    (types.is_fixed_size_binary, lambda type_: f"binary({type_.byte_width})"),
    (types.is_fixed_size_list, lambda type_: f"{sql_type(type_.value_type)}[{type_.list_size}]"),
    (types.is_list, _array),
    (types.is_large_list, _array),
    (types.is_map, lambda type_: f"map<{sql_type(type_.key_type)}, {sql_type(type_.item_type)}>"),
    (types.is_struct, _struct),
)


# -- rows ------------------------------------------------------------------------------------------


Row = dict[str, Any]


def batch_to_rows(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch, with values as `lance_bridge.arrow_values` makes them.

    Raises:
        UnsupportedOperationError: (0) a value cannot be represented.
    """
    names = batch.schema.names
    columns = [_values(*each) for each in zip(batch.schema, batch.columns, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(field: pa.Field, column: pa.Array) -> list[Any]:
    try:
        return to_values(column, field)
    except ValueError as error:
        raise unsupported(
            f"Column '{field.name}' has a value of type {sql_type(field.type)} that cannot be "
            f"shown ({error}): leave it out with --column, or read the table in Python"
        ) from error


# -- schemas in files ------------------------------------------------------------------------------


def read_schema(path: Path) -> pa.Schema:
    """Return the columns in a file: of Parquet, of Arrow IPC, or as `schema_from_json` reads them.

    Other metadata of the file is left out.

    Raises:
        InvalidInputError: (13) it cannot be read, or is of another format.
    """
    try:
        with path.open("rb") as file:
            beginning = file.read(_MAGIC_BYTES)
        found = _read(path, beginning)
    except OSError as error:
        raise invalid(f"{path} cannot be read: {error.strerror or error}") from error
    except (pa.ArrowException, ValueError) as error:
        raise invalid(
            f"{path} has no schema that can be read: it must be a file of Parquet, of Arrow IPC, "
            f"or of JSON as `table schema --output json` prints it ({first_line(error)})"
        ) from error
    return pa.schema(list(found))


def _read(path: Path, beginning: bytes) -> pa.Schema:
    if beginning.startswith(b"PAR1"):
        from pyarrow import parquet  # noqa: PLC0415 - only for files of Parquet

        return parquet.read_schema(path)
    if beginning.startswith(b"ARROW1"):
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            return reader.schema
    if beginning.lstrip()[:1] in (b"{", b"["):
        content = json.loads(path.read_text(encoding="utf-8"))
        return schema_from_json({"fields": content} if isinstance(content, list) else content)
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        return reader.schema


def empty_stream(schema: pa.Schema) -> bytes:
    """Return an Arrow IPC stream without rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return bytes(sink.getvalue())
