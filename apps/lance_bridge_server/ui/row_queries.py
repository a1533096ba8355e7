"""Rows of a table as the address of a page asks for them: its state, query, blobs and vectors.

In an address, the state is the parameter ``at``: ``v5``, ``tag:stable`` or ``branch:trial``.
"""

from __future__ import annotations

import io
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableColumnNotFoundError,
)

from lance_bridge import LanceBridgeNamespace, blobs
from lance_bridge.arrow_values import to_values
from lance_bridge.dataset import canonical
from lance_bridge.errors import invalid, translate_lance_errors
from lance_bridge.requests import Ref

from .caches import catalog_at
from .rendering import HEAD_BYTES, LARGEST_MEDIA
from .request import Result, UiRequest

# -- version ---------------------------------------------------------------------------------------


_VERSION = re.compile(r"v?([0-9]{1,18})")


@dataclass(frozen=True)
class State:
    """A state of a table."""

    text: str = ""
    """The value in an address; empty for the latest."""
    version: int | None = None
    branch: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of requests that read the state."""
        return {"version": self.version, "branch": self.branch}

    @property
    def is_latest(self) -> bool:
        """Whether it is the latest version of the main branch."""
        return self.version is None and self.branch is None


async def requested_state(ui: UiRequest, path: Sequence[str]) -> State:
    """Return the state of a table that the address of a page names.

    Raises:
        InvalidInputError: (13) it has none of the forms.
        TableTagNotFoundError: (8)
    """
    text = ui.text("at")
    kind, _, name = text.partition(":")
    if kind == "tag" and name:
        found = await ui.call("get_table_tag_version", {"id": list(path), "tag": name})
        return State(text, found.version, found.branch)
    if kind == "branch" and name:
        return State(text, branch=name)
    if not text:
        return State()
    version = _VERSION.fullmatch(text)
    if not version:
        raise invalid("`at` is a version, such as v5, or tag:NAME, or branch:NAME")
    return State(f"v{int(version[1])}", int(version[1]))


# -- query -----------------------------------------------------------------------------------------


SIZES = (10, 20, 50, 100)
METRICS = ("l2", "cosine", "dot", "hamming")


@dataclass(frozen=True)
class RowQuery:
    """The rows to read, and their order."""

    filter: str = ""
    """An SQL predicate."""
    text: str = ""
    """Words for a full-text search."""
    near: str = ""
    """A vector to search for the nearest rows, or ``row:ID`` for the vector of a row."""
    column: str = ""
    """The vector column to search; empty for the default."""
    metric: str = ""
    """The distance metric; empty for the default."""
    sort: str = ""
    """A column, with ``-`` before it for a descending order."""
    size: int = 20
    offset: int = 0
    columns: tuple[str, ...] = ()
    """The columns to show; empty for as many as a page has."""
    first_column: int = 0
    """The position of the first column to show, if none are chosen."""

    @property
    def is_search(self) -> bool:
        """Whether it searches by a vector or a text."""
        return bool(self.text or self.near)

    @property
    def parameters(self) -> dict[str, Any]:
        """The query as parameters of an address."""
        size = None if self.size == RowQuery.size else self.size
        given = {name: getattr(self, name) for name in _TEXTS}
        return {
            **given,
            "size": size,
            "offset": self.offset or None,
            "columns": list(self.columns) or None,
            "first_column": self.first_column or None,
        }

    def fields(self, vector: Sequence[float] | None, count: int) -> dict[str, Any]:
        """Return the fields of QueryTable.

        Args:
            vector: The vector of `near`.
            count: How many rows to read.
        """
        fields: dict[str, Any] = {"k": count, "offset": self.offset, "vector": {}}
        if self.filter:
            fields |= {"filter": self.filter, "prefilter": True}
        if vector is not None:
            fields["vector"] = {"single_vector": list(vector)}
            fields["vector_column"] = self.column or None
            fields["distance_type"] = self.metric or None
        if self.text:
            fields["full_text_query"] = {"string_query": {"query": self.text}}
        if self.sort:
            name, ascending = self.sort.removeprefix("-"), not self.sort.startswith("-")
            fields["order_by"] = [{"column_name": name, "ascending": ascending}]
        return fields

    def order_of(self, column: str) -> str:
        """Return the value of ``aria-sort`` for a column; empty if it is not sorted."""
        if self.sort == column:
            return "ascending"
        return "descending" if self.sort == f"-{column}" else ""

    def sorted_by(self, column: str) -> RowQuery:
        """Return the query sorted by a column, descending if it is already sorted ascending."""
        return replace(self, sort=f"-{column}" if self.sort == column else column, offset=0)

    def at_offset(self, offset: int) -> RowQuery:
        """Return the query with another offset."""
        return replace(self, offset=max(0, offset))

    def from_column(self, position: int) -> RowQuery:
        """Return the query with the columns from a position on."""
        return replace(self, first_column=max(0, position))

    def near_row(self, row: int, column: str) -> RowQuery:
        """Return the query for the rows nearest to a row of the table."""
        return replace(self, near=f"row:{row}", column=column, text="", sort="", offset=0)


_TEXTS = ("filter", "text", "near", "column", "metric", "sort")


def requested_rows(ui: UiRequest) -> RowQuery:
    """Return the query in the address of a page. The size is rounded up to one of `SIZES`."""
    given: dict[str, Any] = {name: ui.text(name) for name in _TEXTS}
    return replace(
        RowQuery(**given),
        size=_size(ui.text("size")),
        offset=_number(ui.text("offset")),
        columns=tuple(dict.fromkeys(ui.http.query_params.getlist("columns"))),
        first_column=_number(ui.text("first_column")),
    )


def _size(text: str) -> int:
    wanted = _number(text) or RowQuery.size
    return next((each for each in SIZES if each >= wanted), SIZES[-1])


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


# -- blobs -----------------------------------------------------------------------------------------


_THREADS = 8
"""Blobs that are read at once."""
Heads = Mapping[str, Mapping[int, bytes | None]]
"""The first bytes of blobs, by column and row identifier; None for null."""


async def read_heads(
    ui: UiRequest, state: State, wanted: Mapping[str, Sequence[int]], read: Callable[[Heads], Any]
) -> Result[Any]:
    """Return the result of a function on the first bytes of some blobs.

    Blobs that are references to files elsewhere are left out, and so are all blobs of a catalog of
    another library.

    Args:
        wanted: The identifiers of rows, by column.
        read: Gets `Heads`, in the operation's thread.
    """
    method = partial(_read_heads, wanted=wanted, count=HEAD_BYTES)
    return await ui.attempt("query_table", _one_row(ui, state), read, method=method)


async def read_image(ui: UiRequest, state: State, column: str, row: int) -> bytes | None:
    """Return a blob that is small enough for an image, audio or video, or None.

    Raises:
        LanceNamespaceError: The query's own.
    """
    # One byte more shows that it is too large.
    method = partial(_read_heads, wanted={column: [row]}, count=LARGEST_MEDIA + 1)
    found: Heads = await ui.call("query_table", _one_row(ui, state), method=method)
    return found.get(column, {}).get(row)


def _one_row(ui: UiRequest, state: State) -> dict[str, Any]:
    return {"id": ui.names, "k": 1, "vector": {}, **state.fields}


def _read_heads(
    namespace: LanceNamespace, request: Any, wanted: Mapping[str, Sequence[int]], count: int
) -> Heads:
    child, names = catalog_at(namespace, request.id)
    if not isinstance(child, LanceBridgeNamespace):
        return {}
    table = child.tables.load_by_id(names)
    dataset = table.open(Ref.of(request.version, branch=request.branch))
    with translate_lance_errors(f"The blobs of '{table.name}' could not be read"):
        return {
            column: _heads_of(dataset, column, rows, count)
            for column, rows in wanted.items()
            if column in dataset.schema.names and blobs.is_blob(dataset.schema.field(column))
        }


def _heads_of(
    dataset: lance.LanceDataset, column: str, rows: Sequence[int], count: int
) -> dict[int, bytes | None]:
    inside = blobs.rows_inside(dataset, column, rows)
    files = dataset.take_blobs(canonical((column,)), ids=inside) if inside else []
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(inside, pool.map(partial(_head_of, count=count), files), strict=True))


def _head_of(file: Any, count: int) -> bytes | None:
    return None if file is None else bytes(file.read_range(0, min(count, file.size())))


# -- reader ----------------------------------------------------------------------------------------


ROW_ID = "_rowid"
"""The column of row identifiers, in filters and results."""

MAX_BYTES = 8 << 20
"""The largest size of a page's rows in memory."""
_SECONDS = 15.0


@dataclass(frozen=True)
class Sample:
    """Rows that were read."""

    table: pa.Table
    message: str = ""
    """Why rows are missing."""


def read_sample(result: Any, max_bytes: int = MAX_BYTES) -> Sample:
    """Return the rows of a query's result, or fewer if they are too large or take too long.

    Args:
        result: A reader, the response of another library's namespace, or its bytes.
        max_bytes: The size of the rows in memory.

    Raises:
        LanceNamespaceError: The reader's own.
    """
    deadline = time.monotonic() + _SECONDS
    reader = as_reader(result)
    kept: list[pa.RecordBatch] = []
    size, message = 0, ""
    for batch in reader:
        room = max_bytes - size
        if batch.nbytes > room:
            batch = batch.slice(0, _rows_that_fit(batch, room))  # noqa: PLW2901
            message = f"The rows exceed {max_bytes >> 20} MiB: only the first are shown"
        kept.append(batch)
        size += batch.nbytes
        if message or time.monotonic() > deadline:
            message = message or f"Only the rows read within {_SECONDS:.0f} seconds are shown"
            break
    return Sample(pa.Table.from_batches(kept, reader.schema), message)


def _rows_that_fit(batch: pa.RecordBatch, room: int) -> int:
    """Return approximately how many rows of a batch fit in ``room`` bytes; at least one."""
    return max(1, int(batch.num_rows * room / max(batch.nbytes, 1)))


async def read_value(ui: UiRequest, state: State, column: str, row: str) -> Any:
    """Return a value of the page's table, or None if the row does not exist.

    Args:
        row: The identifier of the row.

    Raises:
        InvalidInputError: (13) the identifier is not a number.
        LanceNamespaceError: The query's own.
    """
    found = await read_rows_of(ui, state, column, row)
    return to_values(found.column(0), found.schema.field(0))[0] if found.num_rows else None


async def read_rows_of(ui: UiRequest, state: State, column: str, row: str) -> pa.Table:
    """Return one column of a row, or no rows if it does not exist. Raises as `read_value`."""
    if not (row.isascii() and row.isdigit() and len(row) <= 20):
        raise invalid("`row` is the identifier of a row, which is a number")
    only = {"columns": {"column_names": [column]}, "filter": f"{ROW_ID} = {row}"}
    found: pa.Table = await ui.call("query_table", _one_row(ui, state) | only, _read_all)
    return found


def _read_all(result: Any) -> pa.Table:
    return as_reader(result).read_all()


def as_reader(result: Any) -> pa.RecordBatchReader:
    """Return a query's result as a reader."""
    if isinstance(result, pa.RecordBatchReader):
        return result
    data = result if isinstance(result, bytes) else result.data
    file = pa.ipc.open_file(io.BytesIO(data))
    batches = (file.get_batch(i) for i in range(file.num_record_batches))
    return pa.RecordBatchReader.from_batches(file.schema, batches)


# -- search ----------------------------------------------------------------------------------------


_ROW = re.compile(r"row:([0-9]{1,20})")
_MOST_NUMBERS = 100_000
_QUERY_ERRORS = (InvalidInputError, TableColumnNotFoundError)
"""Errors that a change of the query can fix. Others are about no field of the form."""
_FIELDS = ("filter", "near", "text", "sort")
"""The fields of the form that can be wrong."""


@dataclass(frozen=True)
class Outcome:
    """The result of a query, or its error."""

    found: Result[Any]
    field: str = ""
    """The field of the form that the error is about; empty if it is about none of them."""

    @property
    def message(self) -> str:
        """The error's message; empty if there is no error."""
        return self.found.message


async def find_rows(
    ui: UiRequest,
    state: State,
    query: RowQuery,
    vector_columns: Sequence[str],
    read: Callable[[Any], Any],
    *,
    count: int,
    with_row_id: bool = False,
) -> Outcome:
    """Read the rows of a query on a page's table.

    Args:
        vector_columns: The table's vector columns.
        read: Converts the result, in the operation's thread.
        count: How many rows to read.
    """
    if query.near and not query.column:
        query = replace(query, column=_default_column(vector_columns))
    try:
        vector = await _vector_of(ui, state, query, vector_columns)
    except _QUERY_ERRORS as error:
        return Outcome(Result(error=error), "near")
    except LanceNamespaceError as error:
        return Outcome(Result(error=error))
    fields = {
        "id": ui.names,
        "with_row_id": with_row_id,
        **state.fields,
        **query.fields(vector, count),
    }
    found = await ui.attempt("query_table", fields, read)
    if not isinstance(found.error, _QUERY_ERRORS):
        return Outcome(found)
    return await _find_wrong_field(ui, fields, query, vector, found)


async def _find_wrong_field(
    ui: UiRequest,
    fields: Mapping[str, Any],
    query: RowQuery,
    vector: Sequence[float] | None,
    failed: Result[Any],
) -> Outcome:
    """Return a query's error with the wrong field: a query with only that field fails, too."""
    given = [each for each in _FIELDS if getattr(query, each)]
    if len(given) == 1:
        return Outcome(failed, given[0])
    kept = {key: value for key, value in fields.items() if key not in query.fields(vector, 1)}
    for name in given:
        others: dict[str, Any] = {each: "" for each in given if each != name}
        alone = replace(query, **others, offset=0)
        of_field = alone.fields(vector if name == "near" else None, 1)
        found = await ui.attempt("query_table", {**kept, **of_field}, _read_nothing)
        if isinstance(found.error, _QUERY_ERRORS):
            return Outcome(found, name)
    return Outcome(failed)


def _read_nothing(result: Any) -> None:
    as_reader(result).close()


def _default_column(columns: Sequence[str]) -> str:
    """Return the vector column that the API searches by default, or an empty string."""
    return "vector" if "vector" in columns else next(iter(columns), "")


async def _vector_of(
    ui: UiRequest, state: State, query: RowQuery, columns: Sequence[str]
) -> list[float] | None:
    """Return the vector to search for, or None.

    Raises:
        InvalidInputError: (13) it is not a vector, or its row does not exist or has no vector.
        LanceNamespaceError: The row cannot be read.
    """
    if not query.near:
        return None
    row = _ROW.fullmatch(query.near)
    if not row:
        return parse_vector(query.near)
    column = query.column
    if column not in columns:
        raise invalid(f"Column '{column}' holds no vectors")
    values = await read_value(ui, state, column, row[1])
    if values is None:
        raise invalid(f"Row {row[1]} does not exist, or has no vector in '{column}'")
    return [float(each) for each in values]


def parse_vector(text: str) -> list[float]:
    """Return the numbers in a text, as JSON or separated by commas or white space.

    Raises:
        InvalidInputError: (13) it contains anything else, or too many numbers.
    """
    inner = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    if not 0 < len(inner) <= _MOST_NUMBERS:
        raise invalid("A vector is numbers, such as [0.5, 1, -2]")
    try:
        numbers = [float(json.loads(each)) for each in inner]
    except (ValueError, TypeError):
        raise invalid("A vector is numbers, such as [0.5, 1, -2]") from None
    if not all(map(math.isfinite, numbers)):
        raise invalid("The numbers of a vector must be finite")
    return numbers
