"""Partial aggregates: one row of counts, sums and extremes for the fragments of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from lance_bridge.errors import invalid
from lance_bridge.tables import expressions

from . import planning
from .requests import Aggregate

_LIMIT = 2**63
FUNCTIONS = ("count", "sum", "min", "max")


def check(wanted: Sequence[Aggregate]) -> None:
    """Raise InvalidInput (13) for a function that is none of `FUNCTIONS`."""
    for each in wanted:
        if each.function not in FUNCTIONS:
            raise invalid(f"Aggregate '{each.function}' is none of {', '.join(FUNCTIONS)}")


def columns_of(wanted: Sequence[Aggregate], groups: Sequence[str] = ()) -> list[str]:
    """Return the columns to read, each once: those of the groups come first."""
    aggregated = (each.column for each in wanted if each.column is not None)
    return list(dict.fromkeys([*groups, *aggregated]))


def partial(
    dataset: lance.LanceDataset,
    ids: Sequence[int] | None,
    predicate: str | None,
    wanted: Sequence[Aggregate],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Return one row with the aggregates of some fragments, in the order asked for.

    Of no rows, a count is 0 and everything else null. Sums of integers are checked: one that does
    not fit into 64 bits fails.

    Args:
        schema: Whose types the answer has.

    Raises:
        InvalidInputError: (13) a function that is none of `FUNCTIONS`, or a sum that overflows.
        ServiceUnavailableError: (17)
    """
    check(wanted)
    states = [_State(each) for each in wanted]
    columns = columns_of(wanted)
    with expressions.running("The table could not be aggregated"):
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
    """An aggregate as far as it has come."""

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
        found = _of(self._wanted.function, values)
        self._found = found if self._found is None else self._joined(self._found, found)

    def _joined(self, one: Any, other: Any) -> Any:
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


def _of(function: str, values: pa.Array) -> Any:
    if function == "min":
        return pc.min(values).as_py()
    if function == "max":
        return pc.max(values).as_py()
    if pa.types.is_floating(values.type):
        return pc.sum(values.cast(pa.float64())).as_py()
    return _exact_sum(values)


def _exact_sum(values: pa.Array) -> int:
    """Return a sum that does not wrap around, as Arrow's own does."""
    least, most = pc.min_max(values).values()
    if max(abs(least.as_py()), abs(most.as_py())) * len(values) < _LIMIT:
        return int(pc.sum(values).as_py())
    return sum(each for each in values.to_pylist() if each is not None)
