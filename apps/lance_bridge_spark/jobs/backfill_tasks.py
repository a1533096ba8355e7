"""The tasks of a backfill, which write new values of one column as files of each fragment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_bridge import blobs
from lance_bridge.dataset import translate_query_errors
from lance_bridge.errors import ErrorCapturingReader, invalid

from ..addresses import Access
from ..source.arrays import to_lance, to_spark
from ..source.types import ROW_ADDRESS, ROW_ID
from .tasks import result_row, run_task

Function = Callable[[pa.RecordBatch], Any]
"""Returns the new values of a batch of rows: an Arrow array, or an argument of `pyarrow.array`."""

Values = Iterator[tuple[pa.Array, pa.Array]]
"""Batches of row identifiers and their new values."""

TASK = "__lance_bridge_task"
ROW = "__lance_bridge_row"
CHOSEN = "__lance_bridge_chosen"
VALUE = "__lance_bridge_value"


@dataclass(frozen=True)
class FilledFragment:
    """The metadata of a fragment with the new values, and its schema if the column is new."""

    fragment: lance.fragment.FragmentMetadata
    schema: Any = None


@dataclass(frozen=True)
class FillPlan:
    """What a task needs to fill a column. Pickles."""

    access: Access
    field: pa.Field
    is_new: bool
    columns: tuple[str, ...]
    where: str | None
    batch_size: int

    def batches(self, fragment: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a fragment: the columns to read, `ROW`, and `CHOSEN`.

        For a new column, which needs a value in each row, rows that are not chosen are included,
        and `ROW` is the row address, which shows whether rows stay in order.
        """
        wanted = {name: f"`{name.replace('`', '``')}`" for name in self.columns}
        chosen = "true"
        if self.is_new and self.where is not None:
            chosen = f"({self.where}\n)"
        scanner = self._fragment(fragment).scanner(
            columns={**wanted, ROW: ROW_ADDRESS if self.is_new else ROW_ID, CHOSEN: chosen},
            filter=None if self.is_new else self.where,
            **self._batch_arguments(fragment),
        )
        with translate_query_errors(f"Column '{self.field.name}' was not filled"):
            yield from scanner.to_batches()

    def _batch_arguments(self, number: int) -> dict[str, Any]:
        """Return the arguments of a scan with batches that fit in memory."""
        dataset = self.access.open()
        read = blobs.columns_with_blobs(dataset.schema, self.columns)
        rows = self.batch_size
        if read:
            rows = blobs.batch_rows(dataset, read, rows, fragments=[self._fragment(number)])
        return {"batch_size": rows, **blobs.scan_arguments(dataset.schema, read)}

    def compute_batches(self, fragment: int, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield Lance's values for the chosen rows of a fragment: `ROW` and `VALUE`."""
        scanner = self._fragment(fragment).scanner(
            columns={VALUE: sql, ROW: ROW_ID}, filter=self.where, batch_size=self.batch_size
        )
        with translate_query_errors(f"Column '{self.field.name}' was not filled"):
            yield from scanner.to_batches()

    def fill(self, fragment: int, values: Values) -> FilledFragment:
        """Write values; their batches contain the identifiers of their rows, in row order."""
        source = ErrorCapturingReader(
            self._in_row_order(values) if self.is_new else self._with_row_ids(values)
        )
        reader = pa.RecordBatchReader.from_batches(self._written_schema(), source)
        target = self._fragment(fragment)
        with source.reraise_source_error():
            if self.is_new:
                return FilledFragment(*target.merge_columns(reader))
            return FilledFragment(target.update_columns(reader, left_on=ROW_ID, right_on=ROW_ID)[0])

    def _written_schema(self) -> pa.Schema:
        # Lance sets missing rows to null, even if the column is not nullable.
        field = self.field.with_nullable(True)
        return pa.schema([field] if self.is_new else [field, pa.field(ROW_ID, pa.uint64())])

    def _in_row_order(self, values: Values) -> Iterator[pa.RecordBatch]:
        last = -1
        for rows, array in values:
            places = np.concatenate([[last], rows.to_numpy().astype(np.int64)])
            if (np.diff(places) <= 0).any():
                raise invalid(
                    f"Column '{self.field.name}' was not filled: the expression must be computed "
                    "row by row, but Spark gave the rows in another order (a subquery does that)"
                )
            last = int(places[-1])
            column = to_lance(array, self.field)
            yield pa.RecordBatch.from_arrays([column], schema=self._written_schema())

    def fill_if_any(self, fragment: int, values: Values) -> FilledFragment | None:
        """Fill a fragment as `fill` does, or return None if there are no values."""
        first = next(values, None)
        return None if first is None else self.fill(fragment, chain([first], values))

    def _with_row_ids(self, values: Values) -> Iterator[pa.RecordBatch]:
        for rows, array in values:
            column = to_lance(array, self.field)
            yield pa.RecordBatch.from_arrays([column, rows], schema=self._written_schema())

    def _fragment(self, number: int) -> lance.LanceFragment:
        found = self.access.open().get_fragment(number)
        if found is None:
            raise invalid(f"Version {self.access.version} has no fragment {number}")
        return found


@dataclass(frozen=True)
class UdfFill:
    """Fills fragments with values that a Python function computes."""

    plan: FillPlan
    function: Function

    def fill(self, fragment: int) -> FilledFragment | None:
        """Fill a fragment, or return None if no row is chosen."""
        return self.plan.fill_if_any(fragment, self._values(fragment))

    def _values(self, fragment: int) -> Values:
        for batch in self.plan.batches(fragment):
            if batch.num_rows:
                yield batch.column(ROW), self._values_of(batch)

    def _values_of(self, batch: pa.RecordBatch) -> pa.Array:
        chosen = pc.fill_null(batch.column(CHOSEN), False)
        rows = batch.select(list(self.plan.columns))
        if pc.all(chosen).as_py():
            return self._call_function(rows)
        values = self._call_function(rows.filter(chosen)) if pc.any(chosen).as_py() else None
        if values is None:
            return pa.nulls(len(batch), self.plan.field.type)
        place = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
        return values.take(pc.if_else(chosen, place, pa.scalar(None, pa.int64())))

    def _call_function(self, rows: pa.RecordBatch) -> pa.Array:
        made = self.function(rows)
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if not isinstance(made, pa.Array):
            made = pa.array(made, from_pandas=True)
        if len(made) != rows.num_rows:
            raise invalid(
                f"The function made {len(made)} values of {rows.num_rows} rows: it must make one "
                "for each"
            )
        return made


@dataclass(frozen=True)
class SqlFill:
    """Fills fragments of an existing column with values that Lance SQL computes."""

    plan: FillPlan
    sql: str

    def fill(self, fragment: int) -> FilledFragment | None:
        """Fill a fragment, or return None if no row is chosen."""
        return self.plan.fill_if_any(fragment, self._values(fragment))

    def _values(self, fragment: int) -> Values:
        for batch in self.plan.compute_batches(fragment, self.sql):
            if batch.num_rows:
                yield batch.column(ROW), batch.column(VALUE)


class Reading:
    """The first stage of a backfill by Spark SQL: read the rows of fragments."""

    def __init__(self, plan: FillPlan, fragments: list[int], schema: pa.Schema) -> None:
        self._plan = plan
        self._fragments = fragments
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                yield from self._rows(number)

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for batch in self._plan.batches(self._fragments[number]):
            count = batch.num_rows
            task = pa.array([number], pa.int64()).take(pa.nulls(count, pa.int64()).fill_null(0))
            # Spark has no unsigned integers; the bits stay the same.
            row = batch.column(ROW).view(pa.int64())
            signed = batch.set_column(batch.schema.get_field_index(ROW), ROW, row)
            yield to_spark(signed.append_column(TASK, task), self._schema)


class Writing:
    """The last stage: write the values that Spark computed; a partition is one fragment."""

    def __init__(self, plan: FillPlan, fragments: list[int]) -> None:
        self._plan = plan
        self._fragments = fragments

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        number = first.column(TASK)[0].as_py()
        values = self._values(number, chain([first], rows))
        fragment = self._fragments[number]
        yield result_row(number, run_task(lambda each: self._plan.fill(each, values), fragment))

    def _values(self, number: int, batches: Iterator[pa.RecordBatch]) -> Values:
        for batch in batches:
            if pc.any(pc.not_equal(batch.column(TASK), number)).as_py():
                raise invalid(
                    "The expression must be computed row by row: Spark mixed the fragments' rows"
                )
            yield batch.column(ROW).view(pa.uint64()), batch.column(VALUE)
