"""Splitting a scan into tasks: groups of fragments of about equal size."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
import pyarrow.types as arrow
from pyspark.sql.datasource import InputPartition

from lance_bridge.errors import invalid

from .options import BATCH_ROWS, TASK_BYTES
from .search import Search

LEAST_BYTES = 4 * 1024 * 1024
"""A task that reads less than this takes longer to start than it saves."""
_VARIABLE_BYTES = 32
"""The assumed size of a string or binary value."""
_BATCH_BYTES = 8 * 1024 * 1024
_MOST_BATCH_ROWS = 131_072
_LEAST_BATCH_ROWS = 1024


_INDEX = re.compile(r"\]@(.+?)\(\w+\)")
_ALL_BY_INDEX = "refine_filter=--"
"""Lance's plans name the indices of a query, and say if no filter remains for the rows."""


@dataclass(frozen=True)
class Fragments(InputPartition):
    """The fragments that one task reads; None means all."""

    ids: tuple[int, ...] | None
    limit: int | None = None
    """The maximum number of rows that the task returns."""
    offset: int | None = None
    """How many rows the task skips first."""


@dataclass(frozen=True)
class Sizes:
    """How much one task should read, in rows or in bytes."""

    rows: int | None = None
    bytes: int = TASK_BYTES
    parallelism: int | None = None
    """How many tasks can run concurrently; by default the driver's number of processors."""


def grouped(rows: Sequence[tuple[int, int]], width: int, sizes: Sizes) -> list[Fragments]:
    """Return groups of neighbouring fragments.

    Args:
        rows: Each fragment's id and number of rows.
        width: Estimated bytes of a row.
    """
    most = sizes.rows or _rows_per_task(sum(n for _, n in rows), width, sizes)
    groups: list[list[int]] = []
    filled = 0
    for fragment, count in rows:
        # A group may exceed its size by half a fragment: it is closer to it than without it.
        if not groups or filled + count / 2 > most:
            groups.append([])
            filled = 0
        groups[-1].append(fragment)
        filled += count
    return [Fragments(tuple(group)) for group in groups]


def _rows_per_task(rows: int, width: int, sizes: Sizes) -> int:
    tasks = sizes.parallelism or os.cpu_count() or 1
    share = max(rows * width // tasks, LEAST_BYTES)
    return max(min(share, sizes.bytes) // width, 1)


def width_of(dtypes: Iterable[pa.DataType]) -> int:
    """Return the estimated bytes of a row of these types."""
    return max(sum(_width(dtype) for dtype in dtypes), 1)


def _width(dtype: pa.DataType) -> int:
    if arrow.is_fixed_size_list(dtype):
        return int(dtype.list_size) * _width(dtype.value_type)
    if dtype.num_fields:
        return sum(_width(dtype.field(i).type) for i in range(dtype.num_fields))
    try:
        return max(int(dtype.bit_width) // 8, 1)
    except ValueError:
        return _VARIABLE_BYTES


def batch_rows(types: Iterable[pa.DataType]) -> int:
    """Return the default number of rows in a batch of these columns.

    A few large batches cost less to transfer than many small ones. But the memory of a batch is
    known only for types of a fixed width.
    """
    dtypes = list(types)
    if not all(map(_is_fixed, dtypes)):
        return BATCH_ROWS
    width = max(sum(map(_width, dtypes)), 1)
    return min(max(_BATCH_BYTES // width, _LEAST_BATCH_ROWS), _MOST_BATCH_ROWS)


def _is_fixed(dtype: pa.DataType) -> bool:
    if arrow.is_fixed_size_list(dtype):
        return _is_fixed(dtype.value_type)
    return bool(
        arrow.is_primitive(dtype) or arrow.is_decimal(dtype) or arrow.is_fixed_size_binary(dtype)
    )


def rows_of(dataset: lance.LanceDataset, ids: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Return the ids of fragments and their numbers of rows, from metadata alone.

    Raises:
        InvalidInputError: (13) the version has no such fragment.
    """
    fragments = fragments_of(dataset, ids)
    found = dataset.get_fragments() if fragments is None else fragments
    return [(each.fragment_id, each.count_rows()) for each in found]


def rows_by_index(dataset: lance.LanceDataset, predicate: str) -> int | None:
    """Return how many rows match a predicate, or None if indices cannot count them.

    Indices can if they evaluate the whole predicate for all rows of the table.
    """
    known = {index.name: index.num_rows_indexed for index in dataset.describe_indices()}
    if not known:
        return None
    scanner = dataset.scanner(columns=[], with_row_id=True, filter=predicate)
    plan = scanner.explain_plan(True)
    used = _INDEX.findall(plan)
    if not used or _ALL_BY_INDEX not in plan:
        return None
    everything = sum(each.physical_rows for each in dataset.get_fragments())
    return int(scanner.count_rows()) if all(known[n] >= everything for n in used) else None


def rows_not_indexed(dataset: lance.LanceDataset, search: Search) -> int:
    """Return how many rows a search has to scan because no index covers them."""
    details = "VectorIndexDetails" if search.by_vector else "InvertedIndexDetails"
    indexed = [
        index.num_rows_indexed
        for index in dataset.describe_indices()
        if index.type_url.endswith(details)
        and (not search.searched or set(index.field_names) <= set(search.searched))
    ]
    everything = sum(each.physical_rows for each in dataset.get_fragments())
    if len(indexed) < max(len(search.searched), 1):
        return everything
    return max(everything - min(indexed), 0)


def cut(
    tasks: Sequence[Fragments], rows: Sequence[tuple[int, int]], offset: int, limit: int | None
) -> list[Fragments]:
    """Return tasks for ``limit`` rows after the first ``offset``, without those that have none.

    Args:
        rows: Each fragment's id and number of rows.
    """
    counts, found, left = dict(rows), list[Fragments](), limit
    for task in tasks:
        count = sum(counts[each] for each in task.ids or ())
        taken = max(count - offset, 0)
        if left is not None:
            taken = min(taken, left)
            left -= taken
        if taken:
            found.append(Fragments(task.ids, taken, offset))
        offset = max(offset - count, 0)
    return found


def fragments_of(
    dataset: lance.LanceDataset, ids: Sequence[int] | None
) -> list[lance.LanceFragment] | None:
    """Return fragments by their ids; None for all.

    Raises:
        InvalidInputError: (13) the version has no such fragment.
    """
    if ids is None:
        return None
    found = []
    for each in ids:
        fragment = dataset.get_fragment(each)
        if fragment is None:
            raise invalid(f"Version {dataset.version} has no fragment {each}")
        found.append(fragment)
    return found
