"""Partial aggregates by group: of as many rows as fit into bounded memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from lance_bridge.errors import invalid

from .aggregates import check
from .requests import Aggregate

_ROWS = 1 << 20
_BYTES = 64 << 20
"""What is held of a table at a time: it is grouped as soon as it is as many rows, or as large."""


def partial(
    batches: Iterable[pa.RecordBatch],
    groups: Sequence[str],
    wanted: Sequence[Aggregate],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield aggregates by group: a group's values, then its aggregates, in the order asked for.

    A group comes once for every so many rows, and whoever reads combines the parts.

    Args:
        batches: Rows, with the columns of `aggregates.columns_of`.
        groups: Columns of which each combination of values, null too, is a group.
        schema: Whose types the answer has.

    Raises:
        InvalidInputError: (13) a function that is none of `aggregates.FUNCTIONS`, or a sum of 64
            bits, which may overflow.
    """
    check(wanted)
    for rows in _portions(batches):
        _check_sums(wanted, rows.schema)
        yield _grouped(rows, groups, wanted, schema)


def _check_sums(wanted: Sequence[Aggregate], schema: pa.Schema) -> None:
    for each in wanted:
        if each.function == "sum" and schema.field(each.column).type == pa.int64():
            raise invalid(f"A sum of column '{each.column}' by group may overflow 64 bits")


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
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


def _grouped(
    rows: pa.Table, groups: Sequence[str], wanted: Sequence[Aggregate], schema: pa.Schema
) -> pa.RecordBatch:
    asked = [
        ([], "count_all") if each.column is None else (each.column, each.function)
        for each in wanted
    ]
    # The tasks of Spark are the threads.
    found = rows.group_by(list(groups), use_threads=False).aggregate(asked).combine_chunks()
    columns = [column.cast(field.type) for column, field in zip(found.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema).to_batches()[0]
