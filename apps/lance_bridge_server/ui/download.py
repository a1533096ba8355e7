"""Downloads the rows of the page of rows as a Parquet, CSV or Arrow file."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError
from pyarrow import csv, parquet
from starlette.responses import Response

from lance_bridge.arrow_values import to_values
from lance_bridge.errors import invalid
from lance_bridge.values import to_text

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
            to read, or a column has values that the format lacks.
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
    write = _WRITERS[format_]
    try:
        return write(sample.table)
    except _FAILURES as error:
        raise _explain(format_, sample.table) from error


def _explain(format_: str, table: pa.Table) -> InvalidInputError:
    """Return the error for a table that a format cannot represent, which names a column."""
    for each in table.schema:
        try:
            _WRITERS[format_](table.select([each.name]))
        except _FAILURES:
            others = " or ".join(each for each in FORMATS if each != format_)
            return invalid(
                f"Column '{each.name}' of type {each.type} has values that a {format_} file "
                f"cannot represent: download {others}"
            )
    return invalid(f"The rows cannot be written as {format_}")


def _to_arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _to_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    table = table.cast(pa.schema([_with_nulls(field) for field in table.schema]))
    parquet.write_table(table, sink)
    for each in table.schema:
        if "date64" in str(each.type):  # Parquet has whole days in 32 bits: pyarrow cuts others
            [written] = parquet.read_table(sink, columns=[each.name]).columns
            if to_values(written) != to_values(table[each.name]):
                raise ValueError("a date is not a whole day, or too far")
    return sink.getvalue()


def _with_nulls(field: pa.Field) -> pa.Field:
    """Return a field whose inner fields may be null, as they are below a struct that is null.

    pyarrow does not write these nulls otherwise. The description of a blob has such fields.
    """
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct([_with_nulls(each).with_nullable(True) for each in type_])
    elif pa.types.is_list(type_):
        type_ = pa.list_(_with_nulls(type_.value_field))
    return field.with_type(type_)


def _to_csv(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    columns = [
        _as_texts(column, field) for column, field in zip(table.columns, table.schema, strict=True)
    ]
    csv.write_csv(pa.table(columns, names=table.column_names), sink)
    return sink.getvalue()


def _as_texts(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    """Return a column as text, unless pyarrow writes it as `to_text` would."""
    type_ = column.type
    is_whole = pa.types.is_integer(type_) or pa.types.is_string(type_)
    if is_whole or (pa.types.is_floating(type_) and pc.all(pc.is_finite(column)).as_py()):
        return column
    texts = [None if each is None else to_text(each) for each in to_values(column, field)]
    return pa.array(texts, pa.large_string())


_WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "parquet": _to_parquet,
    "csv": _to_csv,
    "arrow": _to_arrow,
}
_FAILURES = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for values that a format lacks."""
