"""Reading a table: its tasks, their rows and partial aggregates, as Arrow batches of Spark's types.

A scan is split into groups of fragments of about equal size, one for each task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow
from lance.dataset import ColumnOrdering
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lance_bridge import blobs
from lance_bridge.dataset import (
    BATCH_ROWS,
    SCAN_BYTES,
    columns_read,
    in_brackets,
    large_row_bytes,
    scan_limits,
    split_scan,
    translate_query_errors,
)
from lance_bridge.errors import invalid

from ..addresses import Access
from ..schemas import ROW_ADDRESS, ROW_ID, batch_schema
from . import conversion
from .options import TASK_BYTES, Aggregate, ReadOptions, Scan, Search
from .worker_calls import spark_call

# -- scans -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """What tasks need to read their fragments. Pickles, with the credentials."""

    access: Access
    schema: StructType
    scan: Scan
    options: ReadOptions
    search: Search | None = None
    width: int = 1
    """Estimated bytes of a row."""
    memory: int = SCAN_BYTES
    """About how many bytes the scan of a task may hold."""

    def with_width(self, dataset: lance.LanceDataset) -> Reading:
        """Return a copy with the width of the columns that are read from a dataset."""
        stored = large_row_bytes(dataset, self.schema.fieldNames()) or 0
        return replace(self, width=max(self._width_of_types(dataset), stored))

    def _width_of_types(self, dataset: lance.LanceDataset) -> int:
        names = set(self.schema.fieldNames())
        return width_of(f.type for f in dataset.schema if f.name in names)

    @property
    def sizes(self) -> Sizes:
        """How much one task should read."""
        options = self.options
        return Sizes(options.rows_per_task, options.bytes_per_task, self.scan.parallelism)

    @property
    def filter(self) -> str | None:
        """The SQL catalog's condition and the user's own, joined by AND."""
        given = [each for each in (self.scan.filter, self.options.filter) if each]
        return " AND ".join(map(in_brackets, given)) or None

    def plan(self, dataset: lance.LanceDataset) -> list[Fragments]:
        """Return the tasks, at least one."""
        limit = self.options.limit
        if self.search is not None:
            # Only a task that reads all rows knows the best ones.
            return [Fragments(self.scan.fragments, limit)]
        if limit is not None and self.filter:
            return [Fragments(self.scan.fragments, limit)]
        width = self.with_width(dataset).width
        if self.filter and _fits_one_task(dataset, self.filter, width):
            return [Fragments(self.scan.fragments)]
        rows = rows_of(dataset, self.scan.fragments)
        tasks = group_fragments(rows, width, self.sizes)
        if limit is not None:
            tasks = cut_tasks(tasks, rows, 0, limit)
        elif self.scan.offset is not None:
            tasks = cut_tasks(tasks, rows, self.scan.offset, self.scan.limit)
        return tasks or [Fragments(())]

    def read(self, part: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, in the schema that Spark expects."""
        yield from self.read_from(self.access.open(), part)

    def read_from(self, dataset: lance.LanceDataset, part: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments of an open dataset, as `read` does."""
        expected = batch_schema(self.schema)
        if self.scan.aggregate is not None:
            yield from self._aggregate(dataset, part, self.scan.aggregate, expected)
            return
        if part.ids == ():
            return
        what = f"Table '{self.access.address.name}' could not be read"
        with translate_query_errors(what):
            for batch in self._batches(dataset, part, expected.names):
                yield conversion.to_spark(batch, expected)

    def _aggregate(
        self,
        dataset: lance.LanceDataset,
        part: Fragments,
        wanted: tuple[Aggregate, ...],
        schema: pa.Schema,
    ) -> Iterator[pa.RecordBatch]:
        groups = self.scan.groups
        if not groups:
            given = part.ids, self.filter, wanted, schema
            yield partial_aggregates(dataset, *given, memory=self.memory)
        elif part.ids != ():
            batches = self._batches(dataset, part, columns_of(wanted, groups))
            with translate_query_errors("The table could not be aggregated"):
                yield from partial_by_group(batches, groups, wanted, schema)

    def _batches(
        self, dataset: lance.LanceDataset, part: Fragments, names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        columns = [name for name in names if name not in (ROW_ID, ROW_ADDRESS)]
        for fragments, limits in self._runs(dataset, part, columns):
            scanner = self._scanner(dataset, part, names, fragments, limits)
            yield from scanner.to_batches()

    def _scanner(
        self,
        dataset: lance.LanceDataset,
        part: Fragments,
        names: list[str],
        fragments: Sequence[lance.LanceFragment] | None,
        limits: dict[str, Any],
    ) -> lance.LanceScanner:
        columns = [name for name in names if name not in (ROW_ID, ROW_ADDRESS)]
        return dataset.scanner(
            columns=columns,
            # A scan without columns counts rows by their ids.
            with_row_id=ROW_ID in names or not names,
            with_row_address=ROW_ADDRESS in names,
            # Lance reads the columns that it does not sort by after the sort only with a filter.
            filter=self.filter or ("true" if self.scan.order else None),
            limit=self._limit(part),
            offset=part.offset,
            fragments=fragments,
            scan_in_order=part.limit is not None or part.offset is not None,
            **limits,
            **blobs.scan_arguments(dataset.schema, columns),
            **self._search_arguments(),
            **self._sort_arguments(columns),
        )

    def _runs(
        self, dataset: lance.LanceDataset, part: Fragments, columns: list[str]
    ) -> list[tuple[Sequence[lance.LanceFragment] | None, dict[str, Any]]]:
        """Return groups of fragments that one scan can read, and its limits."""
        fragments = fragments_of(dataset, part.ids)
        if self.options.batch_size is not None:
            return [(fragments, {"batch_size": self.options.batch_size})]
        read = columns_read(dataset.schema.names, columns, self.filter)
        limits: dict[str, Any] = {
            "fragments": fragments,
            "most_rows": self._most_rows(dataset, columns, fragments),
            "memory": self.memory,
        }
        is_whole = self.search is not None or bool(self.scan.order)
        if not is_whole and self._limit(part) is None and part.offset is None:
            return split_scan(dataset, read, **limits)
        found = self._limit(part) if is_whole else None
        return [(fragments, scan_limits(dataset, read, found=found, **limits))]

    def _most_rows(
        self,
        dataset: lance.LanceDataset,
        columns: list[str],
        fragments: Sequence[lance.LanceFragment] | None,
    ) -> int:
        """Return the rows of a batch if all but their blobs are small."""
        with_blobs = blobs.columns_with_blobs(dataset.schema, columns)
        if with_blobs and self.search is not None:
            return blobs.FEW_ROWS
        if with_blobs:
            chosen = {"filter": self.filter, "fragments": fragments}
            return blobs.batch_rows(dataset, with_blobs, BATCH_ROWS, **chosen)
        if self.filter is not None or self.search is not None:
            # Lance reads the columns of a filter in batches of the same number of rows.
            return BATCH_ROWS
        known = {field.name: field.type for field in dataset.schema}
        return batch_rows(known.get(name, pa.null()) for name in columns)

    def _limit(self, part: Fragments) -> int | None:
        limits = [part.limit, self.scan.limit, self.search.rows if self.search else None]
        given = [each for each in limits if each is not None]
        return min(given) if given else None

    def _sort_arguments(self, columns: list[str]) -> dict[str, Any]:
        keys = self.scan.order
        if not keys:
            return {}
        return {
            "order_by": [ColumnOrdering(k.column, not k.descending, k.nulls_first) for k in keys],
            "late_materialization": list({*columns} - {key.column for key in keys}),
        }

    def _search_arguments(self) -> dict[str, Any]:
        if self.search is None:
            return {}
        # Lance should add the score or distance only if it is requested.
        return {**self.search.options, "disable_scoring_autoprojection": True}

    # -- rows for the driver -----------------------------------------------------------------------

    def rows_to_read(self, dataset: lance.LanceDataset) -> int | None:
        """Return the maximum number of rows to scan, or None if it is unknown."""
        if self.scan.fragments is not None:
            return None
        everything = looked_at = int(dataset.count_rows())
        if self.filter is not None:
            by_index = rows_by_index(dataset, self.filter)
            looked_at = everything if by_index is None else by_index
        if self.search is not None:
            if looked_at == everything and self.filter is not None:
                return everything
            found = self.search.most_rows
            unindexed = rows_not_indexed(dataset, self.search)
            return everything if found is None else found + unindexed
        if self.filter is None and not self.scan.aggregate and not self.scan.order:
            looked_at = max(looked_at - (self.scan.offset or 0), 0)
            limits = [self.options.limit, self.scan.limit]
            looked_at = min([looked_at, *(each for each in limits if each is not None)])
        return looked_at

    def read_all(self, dataset: lance.LanceDataset, rows: int, most: int) -> pa.Table | None:
        """Return all rows, in the schema that Spark expects; None if they exceed ``most`` bytes.

        Args:
            rows: The maximum number of rows to scan.

        Raises:
            LanceNamespaceError: The same errors as in a task that reads them.
        """
        if rows * self._largest_width(dataset) > most:
            return None
        found, size = list[pa.RecordBatch](), 0
        everything = Fragments(None, self.options.limit, self.scan.offset)
        for batch in self.read_from(dataset, everything):
            found.append(batch)
            size += batch.nbytes
            if size > most:
                # The estimate was too low: the stored values are compressed.
                return None
        return pa.Table.from_batches(found, batch_schema(self.schema))

    def _largest_width(self, dataset: lance.LanceDataset) -> int:
        """Return the estimated bytes of a row, by its types or its files, whichever is larger."""
        rows = max(int(dataset.count_rows()), 1)
        return max(self._width_of_types(dataset), stored_bytes(dataset) // rows)


# -- reader ----------------------------------------------------------------------------------------


class LanceReader(DataSourceReader):
    """Reads one version of a table; created on the driver and sent to the tasks."""

    def __init__(self, reading: Reading, dataset: lance.LanceDataset) -> None:
        self._reading = reading
        self._dataset: lance.LanceDataset | None = dataset

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open dataset: tasks open their own."""
        return {**self.__dict__, "_dataset": None}

    def rows_to_read(self) -> int | None:
        """Return the maximum number of rows to scan, or None if it is unknown."""
        with spark_call():
            return self._reading.rows_to_read(self._open())

    def read_all(self, rows: int, most: int) -> pa.Table | None:
        """Return the rows that tasks would read, or None if they exceed ``most`` bytes."""
        with spark_call():
            return self._reading.read_all(self._open(), rows, most)

    def partitions(self) -> list[InputPartition]:
        with spark_call():
            return list(self._reading.plan(self._open()))

    def _open(self) -> lance.LanceDataset:
        return self._dataset or self._reading.access.open()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with spark_call():
            yield from self._reading.read(cast("Fragments", partition))


# -- tasks of a scan -------------------------------------------------------------------------------

LEAST_BYTES = 4 * 1024 * 1024
"""A task that reads less than this takes longer to start than it saves."""
_VARIABLE_BYTES = 32
"""The assumed size of a string or binary value."""
_BATCH_BYTES = 8 * 1024 * 1024
_MOST_BATCH_ROWS = 131_072
_LEAST_BATCH_ROWS = 1024
_BY_INDEX = "LanceRead:"
"""The first operator of a plan that reads no column, so that it evaluates no filter on rows."""


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


def group_fragments(rows: Sequence[tuple[int, int]], width: int, sizes: Sizes) -> list[Fragments]:
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


def stored_bytes(dataset: lance.LanceDataset) -> int:
    """Return the size of a version's data files."""
    files = [file for each in dataset.get_fragments() for file in each.metadata.files]
    return sum(file.file_size_bytes or 0 for file in files)


def rows_by_index(dataset: lance.LanceDataset, predicate: str) -> int | None:
    """Return how many rows match a predicate, or None if indices cannot count them.

    Indices can if they evaluate the whole predicate for all rows of the table.
    """
    used = [each for each in dataset.describe_indices() if _may_use(each, predicate)]
    everything = sum(each.physical_rows for each in dataset.get_fragments())
    if not used or any(each.num_rows_indexed < everything for each in used):
        return None
    scanner = dataset.scanner(columns=[], with_row_id=True, filter=predicate)
    # A plan also contains text of users: names of indices and literals. Its first word does not.
    is_by_index = scanner.explain_plan().startswith(_BY_INDEX)
    return int(scanner.count_rows()) if is_by_index else None


def _fits_one_task(dataset: lance.LanceDataset, predicate: str, width: int) -> bool:
    """Return whether indices show that so few rows match that one task is enough."""
    rows = rows_by_index(dataset, predicate)
    return rows is not None and rows * width <= LEAST_BYTES


def _may_use(index: Any, predicate: str) -> bool:
    """Return whether the predicate may name a column of an index, or a field in one."""
    names = (name.rpartition(".")[2].casefold() for name in index.field_names)
    return any(name in predicate.casefold() for name in names)


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


def cut_tasks(
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


# -- aggregates ------------------------------------------------------------------------------------

_LIMIT = 2**63
FUNCTIONS = ("count", "sum", "min", "max")


def _check_functions(wanted: Sequence[Aggregate]) -> None:
    """Raise InvalidInput (13) for a function that is not one of `FUNCTIONS`."""
    for each in wanted:
        if each.function not in FUNCTIONS:
            raise invalid(f"Aggregate '{each.function}' must be one of {', '.join(FUNCTIONS)}")


def columns_of(wanted: Sequence[Aggregate], groups: Sequence[str] = ()) -> list[str]:
    """Return the columns to read without duplicates, with the group columns first."""
    aggregated = (each.column for each in wanted if each.column is not None)
    return list(dict.fromkeys([*groups, *aggregated]))


def partial_aggregates(
    dataset: lance.LanceDataset,
    ids: Sequence[int] | None,
    predicate: str | None,
    wanted: Sequence[Aggregate],
    schema: pa.Schema,
    *,
    memory: int = SCAN_BYTES,
) -> pa.RecordBatch:
    """Return one row with the aggregates of some fragments, in the requested order.

    Without rows, a count is 0 and every other aggregate is null. A sum of integers that does not
    fit into 64 bits raises an error.

    Args:
        schema: The schema of the result.
        memory: About how many bytes the scan may hold.

    Raises:
        InvalidInputError: (13) a function is not one of `FUNCTIONS`, or a sum overflows.
        ServiceUnavailableError: (17)
    """
    _check_functions(wanted)
    states = [_State(each) for each in wanted]
    columns = columns_of(wanted)
    with translate_query_errors("The table could not be aggregated"):
        if not columns and predicate is None:
            rows = sum(count for _, count in rows_of(dataset, ids))
            for state in states:
                state.rows += rows
        elif ids != ():
            for batch in _batches_of(dataset, ids, columns, predicate, memory):
                for state in states:
                    state.add(batch)
    values = [pa.array([s.value()], f.type) for s, f in zip(states, schema, strict=True)]
    return pa.RecordBatch.from_arrays(values, schema=schema)


def _batches_of(
    dataset: lance.LanceDataset,
    ids: Sequence[int] | None,
    columns: list[str],
    predicate: str | None,
    memory: int,
) -> Iterator[pa.RecordBatch]:
    read = columns_read(dataset.schema.names, columns, predicate)
    fragments, most = fragments_of(dataset, ids), BATCH_ROWS
    for run, limits in split_scan(
        dataset, read, fragments=fragments, most_rows=most, memory=memory
    ):
        scanner = dataset.scanner(
            columns=columns,
            filter=predicate,
            fragments=run,
            with_row_id=not columns,
            scan_in_order=False,
            **({} if limits["batch_size"] == most else limits),
        )
        yield from scanner.to_batches()


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
    _check_functions(wanted)
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
