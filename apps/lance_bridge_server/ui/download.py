"""Downloads the rows of the page of rows as a Parquet, CSV or Arrow file."""

from __future__ import annotations

import base64
import io
import json
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet
from starlette.responses import Response

from lance_bridge.errors import invalid

from .columns import column_lines
from .rendering import SECURITY_HEADERS
from .row_query import requested_rows
from .row_reader import read_sample
from .row_search import find_rows
from .table_page import describe
from .time_travel import requested_state
from .ui_request import UiRequest

FORMATS = ("parquet", "csv", "arrow")
_MEDIA_TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.file",
}
_MAX_BYTES = 64 << 20


async def send_rows(ui: UiRequest) -> Response:
    """Return the rows of a query as a file: the same rows that the page of rows shows.

    Raises:
        InvalidInputError: (13) the format is unknown, or the rows are too large or take too long
            to read.
        LanceNamespaceError: The query's own.
    """
    path, format_ = ui.names, ui.text("format")
    if format_ not in FORMATS:
        raise invalid(f"`format` must be one of {', '.join(FORMATS)}")
    state = await requested_state(ui, path)
    query = requested_rows(ui)
    vectors: list[str] = []
    if query.near:
        table = await describe(ui, path, state)
        lines = column_lines(table.var_schema.fields) if table.var_schema else []
        vectors = [each.path for each in lines if each.kind == "vector"]
    read = partial(_to_file, format_)
    outcome = await find_rows(ui, state, query, vectors, read, count=query.size)
    headers = {
        **SECURITY_HEADERS,
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{_file_name(path[-1])}.{format_}"',
    }
    return Response(outcome.found.require(), headers=headers, media_type=_MEDIA_TYPES[format_])


def _file_name(table: str) -> str:
    """Return a table's name in a form that is a valid file name on every system."""
    plain = "".join(each if each.isascii() and each.isalnum() else "_" for each in table)
    return plain[:80] or "rows"


def _to_file(format_: str, result: Any) -> bytes:
    sample = read_sample(result, _MAX_BYTES)
    if sample.message:
        raise invalid(
            f"The rows exceed {_MAX_BYTES >> 20} MiB, or took too long to read; choose fewer rows"
        )
    sink = io.BytesIO()
    try:
        if format_ == "parquet":
            parquet.write_table(sample.table, sink)
        elif format_ == "csv":
            csv.write_csv(_flatten(sample.table), sink)
        else:
            with pa.ipc.new_file(sink, sample.table.schema) as writer:
                writer.write_table(sample.table)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise invalid(f"The rows cannot be written as {format_}: {error}") from error
    return sink.getvalue()


def _flatten(table: pa.Table) -> pa.Table:
    """Return a table that CSV can represent: lists and structs as JSON, bytes in Base64."""
    columns = [
        pa.array([_as_text(each.as_py()) for each in column], pa.string())
        if pa.types.is_nested(column.type) or _is_bytes(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _base64(value) if isinstance(value, bytes) else json.dumps(value, default=_json_default)


def _json_default(value: Any) -> str:
    return _base64(value) if isinstance(value, bytes) else str(value)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
