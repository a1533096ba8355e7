"""The pages of one column, with its statistics, and of one value, in full."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from lance_bridge.arrow_values import to_values
from lance_bridge.errors import invalid
from lance_bridge.values import to_text

from .rendering import (
    BAR_HEIGHT,
    LARGEST_MEDIA,
    Bar,
    address,
    column_lines,
    format_bytes,
    share_percent,
    temporal_text,
    type_of_media,
)
from .request import UiRequest, gather
from .row_queries import State, read_image, read_rows_of, read_sample, requested_state
from .table_page import count_of, describe
from .tree import load_tree

# -- statistics ------------------------------------------------------------------------------------


SAMPLE = 10_000
"""Rows that the statistics of a column are of, at most."""
_BINS = 24
_MOST_COMMON = 10
_LONGEST = 60

Fact = tuple[str, str]
"""A name and a value."""


@dataclass(frozen=True)
class Statistics:
    """What the first rows of a column say."""

    rows: int
    nulls: int
    facts: list[Fact] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    """The histogram of numbers and times; empty for other types."""
    ends: tuple[str, str] = ("", "")
    """The least and the greatest value of the histogram."""
    common: list[tuple[str, int]] = field(default_factory=list)
    """The most frequent values with their counts; empty if no value is frequent."""
    message: str = ""
    """Why there are fewer rows than asked for."""

    @property
    def null_percent(self) -> float:
        """The percentage of nulls."""
        return share_percent(self.nulls, self.rows - self.nulls)


def statistics_of(result: Any) -> Statistics:
    """Return the statistics of the only column of a query's result. Slow: call in a thread.

    Raises:
        LanceNamespaceError: The reader's own.
    """
    sample = read_sample(result)
    column = sample.table.column(0)
    found = Statistics(len(column), column.null_count, message=sample.message)
    try:
        return _describe(found, column)
    except pa.ArrowNotImplementedError:  # of nested types and extension types
        return found


def _describe(found: Statistics, column: pa.ChunkedArray) -> Statistics:
    """Return the statistics with what the values say."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    present = column.drop_null().combine_chunks()
    facts = [("Distinct", f"{pc.count_distinct(present).as_py():,}"), *_extent(present)]
    bars, ends = _histogram(present)
    return replace(found, facts=facts, bars=bars, ends=ends, common=_common(present))


def _extent(values: pa.Array) -> list[Fact]:
    """Return the least and the greatest value, or length."""
    type_ = values.type
    if not len(values):
        return []
    if _is_text(type_) or _is_binary(type_):
        lengths = pc.utf8_length(values) if _is_text(type_) else pc.binary_length(values)
        found = pc.min_max(lengths).as_py()
        show = format_bytes if _is_binary(type_) else "{:,} characters".format
        return [("Shortest", show(found["min"])), ("Longest", show(found["max"]))]
    if not _is_ordered(type_):
        return []
    ends = [f"{each}" for each in _ends(values)]
    mean = []
    if not pa.types.is_temporal(type_):
        mean = [("Mean", f"{pc.mean(values.cast(pa.float64(), safe=False)).as_py():.6g}")]
    return [("Min", ends[0]), ("Max", ends[1]), *mean]


def _ends(values: pa.Array) -> list[str]:
    found = pc.min_max(values)
    return [to_text(to_values(pa.array([found[key]], values.type))[0]) for key in ("min", "max")]


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _is_ordered(type_: pa.DataType) -> bool:
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    return bool(is_number or pa.types.is_decimal(type_) or pa.types.is_temporal(type_))


def _histogram(values: pa.Array) -> tuple[list[Bar], Fact]:
    """Return the counts of values in bins of equal width, and the ends of the bins."""
    if not _is_ordered(values.type) or not len(values):
        return [], ("", "")
    numbers = [each for each in _numbers(values) if math.isfinite(each)]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if low == high or not math.isfinite(high - low):
        return [], ("", "")
    counts = [0] * _BINS
    for each in numbers:
        counts[min(_BINS - 1, int((each - low) / (high - low) * _BINS))] += 1
    largest = max(counts)
    bars = [Bar("", n, max(1.0, n / largest * BAR_HEIGHT) if n else 0.0) for n in counts]
    return bars, (_ends(values)[0], _ends(values)[1])


def _numbers(values: pa.Array) -> list[float]:
    """Return numbers, or times as numbers."""
    if pa.types.is_temporal(values.type):
        is_short = values.type.bit_width == 32
        values = values.view(pa.int32() if is_short else pa.int64())
    found: list[float] = values.cast(pa.float64(), safe=False).to_pylist()
    return found


def _common(values: pa.Array) -> list[tuple[str, int]]:
    """Return the most frequent texts, truth values or whole numbers that occur several times."""
    type_ = values.type
    if not (_is_text(type_) or pa.types.is_boolean(type_) or pa.types.is_integer(type_)):
        return []
    counts = pc.value_counts(values).sort(order="descending", by="counts")[:_MOST_COMMON]
    found = zip(to_values(counts.field(0)), counts.field(1).to_pylist(), strict=True)
    return [(to_text(value)[:_LONGEST], count) for value, count in found if count > 1]


async def show_column(ui: UiRequest) -> Response:
    """Return the page with the statistics of a column."""
    path, name = ui.names, ui.text("column")
    state = await requested_state(ui, path)
    columns = {"column_names": [name]}
    query = {"id": path, "k": SAMPLE, "vector": {}, "columns": columns, **state.fields}
    tree, table, rows, found = await gather(
        load_tree(ui, path, is_table=True),
        describe(ui, path, state),
        ui.attempt("count_table_rows", {"id": path, **state.fields}, count_of),
        ui.attempt("query_table", query, statistics_of),
    )
    lines = {each.name: each for each in column_lines(table.var_schema) if each.depth == 0}
    if name not in lines:
        raise invalid(f"The table has no column '{name[:100]}'")
    return ui.page(
        "column.html",
        tree=tree,
        path=path,
        tab="rows",
        state=state,
        table=table,
        column=lines[name],
        rows=rows,
        statistics=found,
    )


# -- values ----------------------------------------------------------------------------------------


_MOST_CHARACTERS = 200_000
_MOST_BYTES = 1_024


@dataclass(frozen=True)
class WholeValue:
    """A value of a row, as a page shows it in full."""

    type: str
    text: str
    rest: int = 0
    """Characters of the text, or bytes, that are left out."""
    size: str = ""
    """The size of bytes."""
    source: str = ""
    """The address of the image, audio or video that it is."""
    kind: str = ""
    """``image``, ``audio`` or ``video``."""


async def show_value(ui: UiRequest) -> Response:
    """Return the page of a value.

    Raises:
        InvalidInputError: (13) the row does not exist.
        LanceNamespaceError: The query's own.
    """
    path, column, row = ui.names, ui.text("column"), ui.text("row")
    state = await requested_state(ui, path)
    tree, table, found = await gather(
        load_tree(ui, path, is_table=True),
        describe(ui, path, state),
        read_rows_of(ui, state, column, row),
    )
    if not found.num_rows:
        raise invalid(f"Row {row} does not exist")
    lines = {each.name: each for each in column_lines(table.var_schema) if each.depth == 0}
    data = found.column(0)
    value = to_values(data, found.schema.field(0))[0]
    type_ = temporal_text(data.type) or (lines[column].type if column in lines else str(data.type))
    if isinstance(value, dict) and column in lines and lines[column].kind == "blob":
        value = await read_image(ui, state, column, int(row))
    return ui.page(
        "value.html",
        tree=tree,
        path=path,
        tab="rows",
        state=state,
        table=table,
        column=column,
        row=row,
        value=_whole(ui, state, type_, value),
    )


def _whole(ui: UiRequest, state: State, type_: str, value: Any) -> WholeValue:
    if isinstance(value, bytes):
        given = {"at": state.text, "column": ui.text("column"), "row": ui.text("row")}
        size, media = format_bytes(len(value)), type_of_media(value)
        if media is not None and len(value) <= LARGEST_MEDIA:
            source, kind = address("image", ui.names, **given), media.partition("/")[0]
            return WholeValue(type_, "", 0, size, source, kind)
        rest = max(0, len(value) - _MOST_BYTES)
        return WholeValue(type_, _hex_lines(value[:_MOST_BYTES]), rest, size)
    text = "null" if value is None else to_text(value)
    if isinstance(value, (dict, list)):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    rest = max(0, len(text) - _MOST_CHARACTERS)
    return WholeValue(type_, text[:_MOST_CHARACTERS], rest)


def _hex_lines(data: Sequence[int]) -> str:
    """Return bytes in lines of 16, with their characters of ASCII."""
    lines = []
    for start in range(0, len(data), 16):
        part = bytes(data[start : start + 16])
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{start:04x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)
