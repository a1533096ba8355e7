"""Backfills: tasks write new values of one column as files of each fragment, in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import ConcurrentModificationError

from lance_bridge import blobs
from lance_bridge.dataset import (
    BATCH_ROWS,
    SCAN_BYTES,
    check_predicate,
    columns_read,
    field_ids,
    scan_limits,
    translate_query_errors,
)
from lance_bridge.errors import ErrorCapturingReader, concurrent_modification, invalid
from lance_bridge.requests import LATEST, Ref

from ..addresses import Access, address_of
from ..lookup import find_table
from ..schemas import ROW_ADDRESS, ROW_ID, batch_schema, require_writable, spark_schema
from ..source.conversion import spread, to_lance, to_spark
from ..source.memory import scan_memory
from ..source.worker_calls import spark_call
from .tasks import (
    RESULTS_DDL,
    Phases,
    collect,
    commit,
    numbers,
    phases,
    result_row,
    run,
    run_task,
    spark_failures,
)
from .views import read_columns

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

# -- tasks -----------------------------------------------------------------------------------------

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
    batch_size: int | None = None
    memory: int = SCAN_BYTES
    """About how many bytes the scan of a task may hold."""

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
            **self._limits(fragment, self.columns),
            **blobs.scan_arguments(self.access.open().schema, self.columns),
        )
        with translate_query_errors(f"Column '{self.field.name}' was not filled"):
            yield from scanner.to_batches()

    def _limits(self, number: int, columns: Sequence[str] | Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of a scan of columns or expressions, so that it fits in memory."""
        if self.batch_size is not None:
            return {"batch_size": self.batch_size}
        dataset, fragments = self.access.open(), [self._fragment(number)]
        read = columns_read(dataset.schema.names, columns, self.where)
        most, with_blobs = BATCH_ROWS, blobs.columns_with_blobs(dataset.schema, columns)
        if with_blobs:
            most = blobs.batch_rows(dataset, with_blobs, most, fragments=fragments)
        given: dict[str, Any] = {"fragments": fragments, "most_rows": most, "memory": self.memory}
        return scan_limits(dataset, read, **given)

    def compute_batches(self, fragment: int, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield Lance's values for the chosen rows of a fragment: `ROW` and `VALUE`."""
        limits = self._limits(fragment, {VALUE: sql})
        scanner = self._fragment(fragment).scanner(
            columns={VALUE: sql, ROW: ROW_ID}, filter=self.where, **limits
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


def fill_by_function(plan: FillPlan, function: Function, fragment: int) -> FilledFragment | None:
    """Fill a fragment with values of a Python function, or return None if no row is chosen."""
    batches = (batch for batch in plan.batches(fragment) if batch.num_rows)
    values = ((batch.column(ROW), _values_of(plan, function, batch)) for batch in batches)
    return plan.fill_if_any(fragment, values)


def _values_of(plan: FillPlan, function: Function, batch: pa.RecordBatch) -> pa.Array:
    chosen = pc.fill_null(batch.column(CHOSEN), False)
    rows = batch.select(list(plan.columns))
    if pc.all(chosen).as_py():
        return _call_function(function, rows)
    if not pc.any(chosen).as_py():
        return pa.nulls(len(batch), plan.field.type)
    return spread(_call_function(function, rows.filter(chosen)), chosen)


def _call_function(function: Function, rows: pa.RecordBatch) -> pa.Array:
    made = function(rows)
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


def fill_by_sql(plan: FillPlan, sql: str, fragment: int) -> FilledFragment | None:
    """Fill a fragment of an existing column with values that Lance SQL computes."""
    batches = plan.compute_batches(fragment, sql)
    values = ((each.column(ROW), each.column(VALUE)) for each in batches if each.num_rows)
    return plan.fill_if_any(fragment, values)


@dataclass(frozen=True)
class Reading:
    """The first stage of a backfill by Spark SQL: read the rows of fragments."""

    plan: FillPlan
    fragments: list[int]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with spark_call():
            for each in batches:
                for number in each.column(0).to_pylist():
                    yield from self._rows(number)

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for batch in self.plan.batches(self.fragments[number]):
            count = batch.num_rows
            task = pa.array([number], pa.int64()).take(pa.nulls(count, pa.int64()).fill_null(0))
            # Spark has no unsigned integers; the bits stay the same.
            row = batch.column(ROW).view(pa.int64())
            signed = batch.set_column(batch.schema.get_field_index(ROW), ROW, row)
            yield to_spark(signed.append_column(TASK, task), self.schema)


@dataclass(frozen=True)
class Writing:
    """The last stage: write the values that Spark computed; a partition is one fragment."""

    plan: FillPlan
    fragments: list[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        number = first.column(TASK)[0].as_py()
        values = self._values(number, chain([first], rows))
        fragment = self.fragments[number]
        yield result_row(number, run_task(lambda each: self.plan.fill(each, values), fragment))

    def _values(self, number: int, batches: Iterator[pa.RecordBatch]) -> Values:
        for batch in batches:
            if pc.any(pc.not_equal(batch.column(TASK), number)).as_py():
                raise invalid(
                    "The expression must be computed row by row: Spark mixed the fragments' rows"
                )
            yield batch.column(ROW).view(pa.uint64()), batch.column(VALUE)


# -- driver ----------------------------------------------------------------------------------------

_ATTEMPTS = 5


@dataclass(frozen=True)
class Backfilled:
    """The result of a backfill."""

    version: int
    transaction_id: str
    fragments: int
    """The number of fragments with new values."""


@dataclass(frozen=True)
class LanceSql:
    """A Lance SQL expression for the column's values, which tasks evaluate without Spark SQL."""

    sql: str


@dataclass(frozen=True)
class Backfill:
    """The arguments of a backfill; see `backfill`."""

    spark: Any
    table: SparkTable
    ref: Ref
    column: str
    expression: str | Function | LanceSql
    where: str | None = None
    columns: tuple[str, ...] | None = None
    data_type: pa.DataType | None = None
    batch_size: int | None = None
    parallelism: int | None = None
    """How many tasks may run concurrently; unlimited by default."""

    @property
    def failure(self) -> str:
        """The beginning of error messages."""
        return f"Column '{self.column}' of table '{self.table.address.name}' was not filled"


def backfill(
    spark: Any,
    table: str,
    column: str,
    expression: str | Function,
    *,
    where: str | None = None,
    columns: list[str] | None = None,
    data_type: pa.DataType | None = None,
    batch_size: int | None = None,
) -> Backfilled:
    """Set the values of a column, fragment by fragment on executors, in one commit.

    Other columns and their indices do not change. An index on the column no longer covers the
    changed rows. The values of a new column are streamed; for an existing column, a task holds the
    new values of one fragment in memory.

    Args:
        table: ``catalog.db.table``, or a location.
        column: A top-level column of the table, or the name of a new one.
        expression: A Spark SQL expression over the row, or a function that gets a
            `pyarrow.RecordBatch` and returns one value per row: an Arrow array, or an argument of
            `pyarrow.array`, such as a pandas Series.
        where: A Lance SQL condition that selects the rows to fill. Other rows keep their value; in
            a new column it is null.
        columns: The columns that a function gets; all by default.
        data_type: The type of a new column. Required with a function.
        batch_size: Rows in a batch; by default 8,192, or fewer if they are large.

    Raises:
        TableColumnNotFoundError: (12) the expression or ``where`` names an unknown column.
        InvalidInputError: (13) an invalid expression, one that fails on a row, or values that do
            not fit the column.
        ConcurrentModificationError: (14) these rows were changed concurrently; nothing is
            written. Appends do not conflict; in a new column, appended rows get values, too.
        ServiceUnavailableError: (17) a task failed; nothing is changed.
    """
    with phases(f"backfill {table}.{column}", 3) as progress:
        progress.begin("plan")
        found = find_table(address_of(spark, table))
        read = None if columns is None else tuple(columns)
        request = Backfill(
            spark, found, LATEST, column, expression, where, read, data_type, batch_size
        )
        return fill(request, progress)


def fill(request: Backfill, progress: Phases) -> Backfilled:
    """Run a backfill of a loaded table, optionally on a branch."""
    if request.batch_size is not None and request.batch_size < 1:
        raise invalid(f"batch_size must be 1 or more, not {request.batch_size}")
    known: dict[int, tuple[Any, FilledFragment]] = {}
    schema = ""
    for attempt in range(_ATTEMPTS):
        dataset = request.table.open(request.ref, write=True)
        plan = _plan(request, dataset)
        if attempt and not plan.is_new:
            # Another writer has added the column.
            raise concurrent_modification(request.table.path)
        if schema != str(dataset.lance_schema):
            known.clear()
            schema = str(dataset.lance_schema)
        try:
            return _attempt(request, dataset, plan, known, progress)
        except ConcurrentModificationError:
            # A new column overwrites no values: compute it again for rows that changed.
            if not plan.is_new or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt raises")


def _attempt(
    request: Backfill,
    dataset: lance.LanceDataset,
    plan: FillPlan,
    known: dict[int, tuple[Any, FilledFragment]],
    progress: Phases,
) -> Backfilled:
    there = {each.fragment_id: each.metadata for each in dataset.get_fragments()}
    kept = {n: each[1] for n, each in known.items() if n in there and each[0] == there[n]}
    todo = [n for n in there if n not in kept]
    progress.begin(f"fill, {len(todo)} tasks")
    new = _run(request, plan, dataset, todo)
    if kept and len({str(each.schema) for each in (*kept.values(), *new.values())}) > 1:
        # Another writer changed the schema: the column has another field id now.
        new.update(_run(request, plan, dataset, list(kept)))
        kept = {}
    filled = {**kept, **new}
    known.update({n: (there[n], done) for n, done in filled.items()})
    progress.begin("commit")
    transaction = lance.Transaction(
        read_version=int(dataset.version),
        operation=_operation(request, dataset, plan, filled, len(there)),
        uuid=str(uuid.uuid4()),
    )
    what = f"column '{request.column}' was not filled"
    version = commit(request.table, dataset, transaction, what)
    return Backfilled(version, str(transaction.uuid), len(filled))


def _operation(
    request: Backfill,
    dataset: lance.LanceDataset,
    plan: FillPlan,
    filled: dict[int, FilledFragment],
    fragments: int,
) -> Any:
    changed = [each.fragment for each in filled.values()]
    if not plan.is_new:
        ids = field_ids(dataset, [request.column]) if changed else []
        return lance.LanceOperation.Update(updated_fragments=changed, fields_modified=ids)
    if not filled:
        raise invalid(
            f"Table '{request.table.address.name}' has no rows: add the column without a backfill"
        )
    if len(filled) != fragments:
        raise invalid(f"{request.failure}: Spark gave the rows of {len(filled)} fragments only")
    schema = next(iter(filled.values())).schema
    return lance.LanceOperation.Merge(changed, schema, preserves_nullability=True)


def _run(
    request: Backfill, plan: FillPlan, dataset: lance.LanceDataset, todo: list[int]
) -> dict[int, FilledFragment]:
    if isinstance(request.expression, str):
        made = _run_sql(request, plan, dataset.schema, todo)
    else:
        by = request.expression
        if isinstance(by, LanceSql):
            work = partial(fill_by_sql, plan, by.sql)
        else:
            work = partial(fill_by_function, plan, by)
        made = dict(enumerate(run(request.spark, todo, work, request.failure, request.parallelism)))
    return {todo[i]: result for i, result in made.items() if result is not None}


def _run_sql(
    request: Backfill, plan: FillPlan, schema: pa.Schema, todo: list[int]
) -> dict[int, Any]:
    if not todo:
        return {}
    rows, batches = _schemas(schema, plan.columns)
    value = f"CASE WHEN `{CHOSEN}` THEN ({request.expression}\n) END AS `{VALUE}`"
    with spark_failures(request.failure):
        frame = (
            numbers(request.spark, len(todo))
            .mapInArrow(Reading(plan, todo, batches), rows)
            .selectExpr(f"`{TASK}`", f"`{ROW}`", value)
            .mapInArrow(Writing(plan, todo), RESULTS_DDL)
        )
    return collect(frame, request.failure)


def _schemas(table: pa.Schema, columns: tuple[str, ...]) -> tuple[Any, pa.Schema]:
    own = [pa.field(TASK, pa.int64()), pa.field(ROW, pa.int64()), pa.field(CHOSEN, pa.bool_())]
    rows = spark_schema(pa.schema([*own, *(table.field(name) for name in columns)]))
    return rows, batch_schema(rows)


# -- planning --------------------------------------------------------------------------------------


def _plan(request: Backfill, dataset: lance.LanceDataset) -> FillPlan:
    schema = dataset.schema
    names: list[str] = schema.names
    name = request.table.address.name
    if request.where is not None:
        check_predicate(dataset, name, request.where, "where")
    read = _columns_to_read(request, names)
    is_new = request.column not in names
    if is_new:
        _require_new_name(request.column, names)
    data_type = None if is_new else schema.field(request.column).type
    require_writable(names, name)
    if isinstance(request.expression, str):
        found = _sql_type(request, schema, read)
        data_type = data_type or request.data_type or found
    data_type = data_type or request.data_type
    if data_type is None:
        raise invalid(f"'{request.column}' is a new column: a function needs its data_type")
    if request.data_type is not None and not data_type.equals(request.data_type):
        raise invalid(f"Column '{request.column}' is {data_type} already, not {request.data_type}")
    field = pa.field(request.column, data_type) if is_new else schema.field(request.column)
    access = request.table.access(dataset, branch=request.ref.branch, write=True)
    memory = scan_memory(dict(request.spark.conf.getAll))
    return FillPlan(access, field, is_new, read, request.where, request.batch_size, memory)


def _columns_to_read(request: Backfill, names: list[str]) -> tuple[str, ...]:
    if isinstance(request.expression, LanceSql):
        return ()
    if isinstance(request.expression, str):
        if request.columns is not None:
            raise invalid("columns goes with a function: SQL reads what it names")
        return read_columns(request.expression, names)
    missing = [each for each in request.columns or () if each not in names]
    if missing:
        raise invalid(f"Table '{request.table.address.name}' has no column '{missing[0]}'")
    return tuple(names) if request.columns is None else request.columns


def _require_new_name(column: str, names: list[str]) -> None:
    same = [name for name in names if name.lower() == column.lower()]
    if same:
        raise invalid(f"'{column}' differs from column '{same[0]}' by letter case only")
    if not column or "." in column or "`" in column or "\0" in column:
        raise invalid(f"{column!r} cannot be a new column's name; fields inside cannot be filled")


def _sql_type(request: Backfill, schema: pa.Schema, columns: tuple[str, ...]) -> pa.DataType:
    """Return the type of the expression in Spark, without evaluating it on rows."""
    rows, _ = _schemas(schema, columns)
    with spark_failures(request.failure):
        empty = request.spark.createDataFrame([], rows)
        made = empty.selectExpr(f"({request.expression}\n) AS `{VALUE}`").schema
        counted = empty.selectExpr("count(1)", f"first(({request.expression}\n))")
        _ = counted.schema
    return batch_schema(made).field(0).type
