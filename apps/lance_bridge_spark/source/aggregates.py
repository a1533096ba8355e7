"""Partial aggregates of a task's fragments: count, sum, min and max, optionally by group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from lance_bridge.dataset import translate_query_errors
from lance_bridge.errors import invalid

from . import planning
from .requests import Aggregate

_LIMIT = 2**63
FUNCTIONS = ("count", "sum", "min", "max")


def check(wanted: Sequence[Aggregate]) -> None:
    """Raise InvalidInput (13) for a function that is not one of `FUNCTIONS`."""
    for each in wanted:
        if each.function not in FUNCTIONS:
            raise invalid(f"Aggregate '{each.function}' must be one of {', '.join(FUNCTIONS)}")


def columns_of(wanted: Sequence[Aggregate], groups: Sequence[str] = ()) -> list[str]:
    """Return the columns to read without duplicates, with the group columns first."""
    aggregated = (each.column for each in wanted if each.column is not None)
    return list(dict.fromkeys([*groups, *aggregated]))


def partial(
    dataset: lance.LanceDataset,
    ids: Sequence[int] | None,
    predicate: str | None,
    wanted: Sequence[Aggregate],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Return one row with the aggregates of some fragments, in the requested order.

    Without rows, a count is 0 and every other aggregate is null. A sum of integers that does not
    fit into 64 bits raises an error.

    Args:
        schema: The schema of the result.

    Raises:
        InvalidInputError: (13) a function is not one of `FUNCTIONS`, or a sum overflows.
        ServiceUnavailableError: (17)
    """
    check(wanted)
    states = [_State(each) for each in wanted]
    columns = columns_of(wanted)
    with translate_query_errors("The table could not be aggregated"):
        if not columns and predicate is None:
            rows = _count(dataset, ids)
            for state in states:
                state.rows += rows
        elif ids != ():
            _scan(dataset, ids, predicate, columns, states)
    values = [pa.array([s.value()], f.type) for s, f in zip(states, schema, strict=True)]
    return pa.RecordBatch.from_arrays(values, schema=schema)


def _count(dataset: lance.LanceDataset, ids: Sequence[int] | None) -> int:
    fragments = planning.fragments_of(dataset, ids)
    if fragments is None:
        return int(dataset.count_rows())
    return sum(int(each.count_rows()) for each in fragments)


def _scan(
    dataset: lance.LanceDataset,
    ids: Sequence[int] | None,
    predicate: str | None,
    columns: list[str],
    states: Sequence[_State],
) -> None:
    scanner = dataset.scanner(
        columns=columns,
        filter=predicate,
        fragments=planning.fragments_of(dataset, ids),
        with_row_id=not columns,
        scan_in_order=False,
    )
    for batch in scanner.to_batches():
        for state in states:
            state.add(batch)


class _State:
    """The running state of an aggregate."""

    def __init__(self, wanted: Aggregate) -> None:
        self._wanted = wanted
        self.rows = 0
        self._found: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        column = self._wanted.column
        if column is None:
            self.rows += batch.num_rows
            return
        values = batch.column(column)
        self.rows += len(values) - values.null_count
        if self._wanted.function == "count" or values.null_count == len(values):
            return
        found = _compute(self._wanted.function, values)
        self._found = found if self._found is None else self._combine(self._found, found)

    def _combine(self, one: Any, other: Any) -> Any:
        if self._wanted.function == "sum":
            return one + other
        return min(one, other) if self._wanted.function == "min" else max(one, other)

    def value(self) -> Any:
        if self._wanted.function == "count":
            return self.rows
        is_sum = self._wanted.function == "sum" and isinstance(self._found, int)
        if is_sum and not -_LIMIT <= self._found < _LIMIT:
            raise invalid(f"The sum of column '{self._wanted.column}' overflows 64 bits")
        return self._found


def _compute(function: str, values: pa.Array) -> Any:
    if function == "min":
        return pc.min(values).as_py()
    if function == "max":
        return pc.max(values).as_py()
    if pa.types.is_floating(values.type):
        return pc.sum(values.cast(pa.float64())).as_py()
    return _exact_sum(values)


def _exact_sum(values: pa.Array) -> int:
    """Return a sum that, unlike Arrow's, does not wrap around."""
    least, most = pc.min_max(values).values()
    if max(abs(least.as_py()), abs(most.as_py())) * len(values) < _LIMIT:
        return int(pc.sum(values).as_py())
    return sum(each for each in values.to_pylist() if each is not None)


_ROWS = 1 << 20
_BYTES = 64 << 20
"""Rows are aggregated by group when this many rows or bytes have been read."""


def partial_by_group(
    batches: Iterable[pa.RecordBatch],
    groups: Sequence[str],
    wanted: Sequence[Aggregate],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield aggregates by group: a group's values, then its aggregates, in the requested order.

    A group may be yielded several times; the reader combines its parts.

    Args:
        batches: Rows, with the columns of `columns_of`.
        groups: The columns to group by; null is a value.
        schema: The schema of the result.

    Raises:
        InvalidInputError: (13) a function is not one of `FUNCTIONS`, or a sum of 64-bit integers,
            which may overflow.
    """
    check(wanted)
    for rows in _split_rows(batches):
        _check_sums(wanted, rows.schema)
        yield _aggregate_by_group(rows, groups, wanted, schema)


def _check_sums(wanted: Sequence[Aggregate], schema: pa.Schema) -> None:
    for each in wanted:
        if each.function == "sum" and schema.field(each.column).type == pa.int64():
            raise invalid(f"A sum of column '{each.column}' by group may overflow 64 bits")


def _split_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _aggregate_by_group(
    rows: pa.Table, groups: Sequence[str], wanted: Sequence[Aggregate], schema: pa.Schema
) -> pa.RecordBatch:
    asked = [
        ([], "count_all") if each.column is None else (each.column, each.function)
        for each in wanted
    ]
    # Spark runs tasks in parallel, so that more threads would compete with them.
    found = rows.group_by(list(groups), use_threads=False).aggregate(asked).combine_chunks()
    columns = [column.cast(field.type) for column, field in zip(found.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema).to_batches()[0]
