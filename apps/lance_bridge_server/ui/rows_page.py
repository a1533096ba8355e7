"""The page of a table's rows, their download as a file, and the images in their cells."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError
from pyarrow import csv, parquet
from starlette.responses import Response

from lance_bridge.arrow_values import to_values
from lance_bridge.dotted_names import written
from lance_bridge.errors import invalid
from lance_bridge.values import to_text

from .rendering import (
    LARGEST_MEDIA,
    PRIVATE_HEADERS,
    SECURITY_HEADERS,
    Blob,
    Cell,
    ColumnLine,
    address,
    column_lines,
    make_cell,
    temporal_text,
    type_of_media,
)
from .request import Result, UiRequest, gather
from .row_queries import (
    METRICS,
    ROW_ID,
    SIZES,
    Heads,
    Outcome,
    RowQuery,
    Sample,
    State,
    find_rows,
    read_heads,
    read_image,
    read_sample,
    read_value,
    requested_rows,
    requested_state,
)
from .table_page import count_of, describe, load_references
from .tree import load_tree

# -- images ----------------------------------------------------------------------------------------


_HEADERS = {**PRIVATE_HEADERS, "Content-Security-Policy": "default-src 'none'; sandbox"}


async def send_image(ui: UiRequest) -> Response:
    """Return the image, audio or video in a cell of a table.

    Raises:
        InvalidInputError: (13) the row, or an image, audio or video in its column, does not exist.
        LanceNamespaceError: The query's own.
    """
    path, column, row = ui.names, ui.text("column"), ui.text("row")
    state = await requested_state(ui, path)
    data = await read_value(ui, state, column, row)
    if isinstance(data, dict):  # of a blob, a query has a description
        data = await read_image(ui, state, column, int(row))
    is_small = isinstance(data, bytes) and len(data) <= LARGEST_MEDIA
    media_type = type_of_media(data) if data and is_small else None
    if media_type is None:
        raise InvalidInputError(
            f"Row {row} has no image, audio or video in column '{column[:100]}'"
        )
    return Response(data, headers=_HEADERS, media_type=media_type)


# -- downloads -------------------------------------------------------------------------------------


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
        lines = column_lines((await describe(ui, path, state)).var_schema)
        vectors = [each.path for each in lines if each.kind == "vector"]
    read = partial(_to_file, format_, query.columns)
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


def _to_file(format_: str, columns: Sequence[str], result: Any) -> bytes:
    """Return the rows of a query as a file. Args: columns: The chosen columns; empty for all."""
    sample = read_sample(result, _MAX_BYTES)
    names = [each for each in sample.table.column_names if each in columns]
    if names:
        sample = replace(sample, table=sample.table.select(names))
    if sample.message:
        raise invalid(
            f"The rows exceed {_MAX_BYTES >> 20} MiB, or took too long to read; choose fewer rows"
        )
    try:
        return _WRITERS[format_](sample.table)
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
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _without_formulas(column)
    is_finite = pa.types.is_floating(type_) and pc.all(pc.is_finite(column)).as_py()
    if pa.types.is_integer(type_) or is_finite:
        return column
    texts = [None if each is None else to_text(each) for each in to_values(column, field)]
    return pa.array(texts, pa.large_string())


def _without_formulas(texts: Any) -> Any:
    """Return texts with an apostrophe before those that a spreadsheet would run as formulas."""
    is_formula = pc.match_substring_regex(texts, r"^[=+\-@\t\r]")
    mark, nothing = (pa.scalar(each, texts.type) for each in ("'", ""))
    return pc.if_else(is_formula, pc.binary_join_element_wise(mark, texts, nothing), texts)


_WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "parquet": _to_parquet,
    "csv": _to_csv,
    "arrow": _to_arrow,
}
_FAILURES = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for values that a format lacks."""


# -- page ------------------------------------------------------------------------------------------


_SORTED_KINDS = ("text", "number", "other")
_CUT_KINDS = ("image", "audio", "video", "binary", "vector")
_RANKS = ("_distance", "_score", "_relevance_score")
"""Columns that a search adds; they are shown first."""
_MOST_BYTES = 105_000
"""The largest size of a page's cells."""
_MOST_COLUMNS = 50
_MOST_CHOICES = 200
"""Columns that the form offers to show; the page has links to all of them."""
_COUNT_SECONDS = 5.0
"""How long the rows that match may be counted."""
_DASH = "\N{EN DASH}"
_MOST_SORTED = 100
"""Columns that the form offers to sort by; headings have links."""


@dataclass(frozen=True)
class Heading:
    """A column of the table of rows."""

    name: str
    type: str
    sort_address: str = ""
    """The address of the page sorted by it; empty if that is not possible."""
    order: str = ""
    """``ascending`` or ``descending`` if rows are sorted by it."""
    about: str = ""
    """The address of the statistics of the column."""
    is_number: bool = False


@dataclass(frozen=True)
class RowsView:
    """The links and the displayed rows of a query's page."""

    path: list[str]
    state: State
    query: RowQuery
    columns: dict[str, ColumnLine]
    """The table's top-level columns by name."""
    version: int | None
    """The table's version in the state."""
    sample: Sample | None = None
    lines: list[list[Cell]] = field(default_factory=list)
    """The cells of each row, for as many rows as fit on a page, but at least one."""
    heads: Heads = field(default_factory=dict)
    blob_message: str = ""
    """Why the bytes of blobs are missing."""

    def with_rows(self, result: Any) -> RowsView:
        """Return the view with the rows of a query's result. Slow: call in a thread.

        Raises:
            LanceNamespaceError: The reader's own.
        """
        view = replace(self, sample=read_sample(result))
        return replace(view, lines=view.make_lines())

    def with_heads(self, heads: Heads) -> RowsView:
        """Return the view with the first bytes of its blobs. Slow: call in a thread."""
        view = replace(self, heads=heads)
        return replace(view, lines=view.make_lines())

    @property
    def blobs(self) -> dict[str, list[int]]:
        """The row identifiers of the blobs on the page, by column."""
        if self.sample is None or ROW_ID not in self.sample.table.column_names:
            return {}
        table = self.sample.table.slice(0, len(self.lines))
        names = [name for name in self._names if self._kind(name) == "blob"]
        ids = table.column(ROW_ID)
        rows = {name: ids.filter(table.column(name).is_valid()).to_pylist() for name in names}
        return {name: each for name, each in rows.items() if each}

    def page_of(self, query: RowQuery) -> str:
        """Return the address of the page of another query."""
        return address("rows", self.path, at=self.state.text, **query.parameters)

    @property
    def downloads(self) -> list[tuple[str, str]]:
        """The file formats, each with the address of the download."""
        given = {"at": self.state.text, **self.query.parameters}
        return [(each, address("download", self.path, format=each, **given)) for each in FORMATS]

    @property
    def previous_page(self) -> str:
        """The address of the previous rows; empty if there are none."""
        query = self.query
        return self.page_of(query.at_offset(query.offset - query.size)) if query.offset else ""

    @property
    def next_page(self) -> str:
        """The address of the next rows; empty if there are none."""
        query = self.query
        shown = len(self.lines)
        has_more = self.sample is not None and self.sample.table.num_rows > shown
        return self.page_of(query.at_offset(query.offset + shown)) if shown and has_more else ""

    @property
    def headings(self) -> list[Heading]:
        """The columns of the rows."""
        return [self._heading(name) for name in self._names]

    def make_lines(self) -> list[list[Cell]]:
        """Return the cells of the sample, see `lines`."""
        if self.sample is None:
            return []
        table = self.sample.table.slice(0, self.query.size)
        cells = [self._cells(table, name) for name in self._names]
        lines: list[list[Cell]] = []
        weight = 0
        for line in zip(*cells, strict=True):
            weight += sum(each.weight for each in line)
            if lines and weight > _MOST_BYTES:
                break
            lines.append(list(line))
        return lines

    @property
    def notes(self) -> list[str]:
        """Notes about rows and columns that do not fit on the page."""
        notes = [f"Of blobs, only sizes are shown: {self.blob_message}"] * bool(self.blob_message)
        if self.sample and len(self.lines) < min(self.sample.table.num_rows, self.query.size):
            notes.append("A page has no room for more of these rows")
        return notes

    @property
    def column_range(self) -> str:
        """Which of the columns are shown; empty if all of them are."""
        shown, count = len(self._shown), len(self._own_names)
        if shown == count:
            return ""
        if self.query.columns:
            return f"{shown} of {count} columns"
        first = self._first_column + 1
        return f"Columns {first}{_DASH}{first + shown - 1} of {count}"

    @property
    def previous_columns(self) -> str:
        """The address of the page with the columns before; empty if there are none."""
        first = self._first_column
        query = self.query.from_column(first - _MOST_COLUMNS)
        return self.page_of(query) if first and not self.query.columns else ""

    @property
    def next_columns(self) -> str:
        """The address of the page with the columns after; empty if there are none."""
        end = self._first_column + _MOST_COLUMNS
        has_more = end < len(self._own_names) and not self.query.columns
        return self.page_of(self.query.from_column(end)) if has_more else ""

    @property
    def choices(self) -> list[tuple[str, bool]]:
        """The columns that the form offers, each with whether it is shown."""
        shown = set(self._shown)
        return [(name, name in shown) for name in islice(self.columns, _MOST_CHOICES)]

    @property
    def _first_column(self) -> int:
        first = self.query.first_column
        return first if first < len(self._own_names) else 0

    @property
    def _names(self) -> list[str]:
        names = self.sample.table.column_names if self.sample else []
        return [*(each for each in _RANKS if each in names), *self._shown]

    @cached_property
    def _shown(self) -> list[str]:
        """The columns of the table that are shown."""
        names = self._own_names
        chosen = [each for each in names if each in self.query.columns]
        return (chosen or names[self._first_column :])[:_MOST_COLUMNS]

    @cached_property
    def _own_names(self) -> list[str]:
        """The columns of the rows, without those that a search adds."""
        names = self.sample.table.column_names if self.sample else []
        return [each for each in names if each not in (ROW_ID, *_RANKS)]

    def _heading(self, name: str) -> Heading:
        column = self.columns.get(name)
        if column is None or self.sample is None:
            return Heading(name.removeprefix("_").replace("_", " "), "", is_number=True)
        is_sorted = column.kind in _SORTED_KINDS
        link = self.page_of(self.query.sorted_by(name)) if is_sorted else ""
        type_ = temporal_text(self.sample.table.schema.field(name).type) or column.type
        about = address("column", self.path, at=self.state.text, column=name)
        order, is_number = self.query.order_of(name), column.kind == "number"
        return Heading(name, type_, link, order, about, is_number)

    def _cells(self, table: pa.Table, name: str) -> Iterable[Cell]:
        kind = self._kind(name)
        rows = table.column(ROW_ID).to_pylist() if ROW_ID in table.column_names else []
        for index, value in enumerate(_values(table, name, is_vector=kind == "vector")):
            is_searched = kind == "vector" and rows and value is not None
            near = self.query.near_row(rows[index], name) if is_searched else None
            shown = self._blob(value, rows, index, name) if kind == "blob" else value
            may_be_media = rows and isinstance(shown, (bytes, Blob))
            source = self._cell_address("image", rows[index], name) if may_be_media else ""
            cell = make_cell(shown, kind, self.page_of(near) if near else "", source)
            is_cut = cell.rest or cell.kind in _CUT_KINDS
            link = self._cell_address("value", rows[index], name) if rows and is_cut else ""
            yield replace(cell, link=link) if link else cell

    def _kind(self, name: str) -> str:
        return self.columns[name].kind if name in self.columns else "number"

    def _blob(self, value: Any, rows: Sequence[int], index: int, name: str) -> Any:
        """Return the blob that a query describes; files of version 2.0 describe nulls, too."""
        if not isinstance(value, dict):
            return value
        heads = self.heads.get(name, {})
        if not rows or rows[index] not in heads:
            return Blob(value.get("size") or 0)
        head = heads[rows[index]]
        return None if head is None else Blob(value.get("size") or 0, head)

    def _cell_address(self, page: str, row: int, column: str) -> str:
        # Row identifiers differ between versions.
        is_fixed = self.version is not None and self.state.branch is None
        at = f"v{self.version}" if is_fixed else self.state.text
        return address(page, self.path, at=at, column=column, row=str(row))


async def show_rows(ui: UiRequest) -> Response:
    """Return the page of rows. If the query fails, the page shows its form and the error."""
    path = ui.names
    state = await requested_state(ui, path)
    query = requested_rows(ui)
    tree, table, references = await gather(
        load_tree(ui, path, is_table=True), describe(ui, path, state), load_references(ui, path)
    )
    lines = column_lines(table.var_schema)
    vectors = [each.path for each in lines if each.kind == "vector"]
    columns = {each.name: each for each in lines if each.depth == 0}
    sortable = (each for each in columns.values() if each.kind in _SORTED_KINDS)
    view, outcome = RowsView(path, state, query, columns, table.version), Outcome(Result())
    total: Result[int] = Result()
    if lines:
        found = find_rows(
            ui, state, query, vectors, view.with_rows, count=query.size + 1, with_row_id=True
        )
        outcome, total = await gather(found, _count_rows(ui, state, query))
    view = await _add_heads(ui, state, outcome.found.value or view)
    return ui.page(
        "rows.html",
        tree=tree,
        path=path,
        tab="rows",
        state=state,
        table=table,
        has_data=bool(lines),
        filter_columns=[written([name]) for name in islice(columns, _MOST_CHOICES)],
        sort_columns=list(islice(sortable, _MOST_SORTED)),
        vector_columns=vectors,
        references=references,
        query=query,
        sizes=SIZES,
        metrics=METRICS,
        error=outcome.message or (view.sample.message if view.sample else ""),
        error_field=outcome.field,
        view=view,
        row_range=_row_range(view, total.value),
    )


async def _count_rows(ui: UiRequest, state: State, query: RowQuery) -> Result[int]:
    """Return how many rows match; no value for a search, which orders all rows."""
    if query.is_search:
        return Result()
    fields = {"id": ui.names, "predicate": query.filter or None, **state.fields}
    return await ui.attempt("count_table_rows", fields, count_of, seconds=_COUNT_SECONDS)


def _row_range(view: RowsView, total: int | None) -> str:
    """Return which rows the page shows: ``Rows 21 to 40 of 60``, with a dash."""
    if not view.lines:
        return "No rows"
    first = view.query.offset + 1
    of_all = "" if total is None else f" of {total:,}"
    if len(view.lines) == 1:
        return f"Row {first:,}{of_all}"
    return f"Rows {first:,}{_DASH}{first + len(view.lines) - 1:,}{of_all}"


async def _add_heads(ui: UiRequest, state: State, view: RowsView) -> RowsView:
    """Return the view with the first bytes of its blobs, or as it is if they cannot be read."""
    if not view.blobs:
        return view
    if view.version is not None and state.branch is None:
        state = replace(state, version=view.version)  # row identifiers differ between versions
    found = await read_heads(ui, state, view.blobs, view.with_heads)
    return found.value or replace(view, blob_message=found.message)


def _values(table: pa.Table, name: str, *, is_vector: bool) -> list[Any]:
    """Return the values of a column, with vectors as arrays."""
    column, field = table.column(name), table.schema.field(name)
    if is_vector and pa.types.is_fixed_size_list(column.type):
        return [each.values for each in column]
    try:
        return to_values(column, field)
    except ValueError as error:
        return [f"cannot be shown: {error}"] * len(column)
