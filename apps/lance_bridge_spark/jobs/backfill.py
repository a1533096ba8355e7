"""Backfill: set a column's values by Spark SQL or a Python function, in one commit."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance_namespace.errors import ConcurrentModificationError

from lance_bridge.dataset import check_predicate, field_ids
from lance_bridge.errors import concurrent_modification, invalid
from lance_bridge.requests import LATEST, Ref

from ..addresses import address_of
from ..lookup import find_table
from ..source.column_names import require_writable
from ..source.types import batch_schema, spark_schema
from .backfill_tasks import (
    CHOSEN,
    ROW,
    TASK,
    VALUE,
    FilledFragment,
    FillPlan,
    Function,
    Reading,
    SqlFill,
    UdfFill,
    Writing,
)
from .commits import commit
from .sources import read_columns
from .tasks import RESULTS_DDL, Phases, collect, numbers, phases, run, spark_failures

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

BATCH_ROWS = 8192
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
    batch_size: int = BATCH_ROWS
    at_once: int | None = None
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
    batch_size: int = BATCH_ROWS,
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
        batch_size: Rows in a batch.

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
        order = Backfill(
            spark, found, LATEST, column, expression, where, read, data_type, batch_size
        )
        return fill(order, progress)


def fill(order: Backfill, progress: Phases) -> Backfilled:
    """Run a backfill of a loaded table, optionally on a branch."""
    if order.batch_size < 1:
        raise invalid(f"batch_size must be 1 or more, not {order.batch_size}")
    known: dict[int, tuple[Any, FilledFragment]] = {}
    schema = ""
    for attempt in range(_ATTEMPTS):
        dataset = order.table.open(order.ref, write=True)
        plan = _plan(order, dataset)
        if attempt and not plan.is_new:
            # Another writer has added the column.
            raise concurrent_modification(order.table.path)
        if schema != str(dataset.lance_schema):
            known.clear()
            schema = str(dataset.lance_schema)
        try:
            return _attempt(order, dataset, plan, known, progress)
        except ConcurrentModificationError:
            # A new column overwrites no values: compute it again for rows that changed.
            if not plan.is_new or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt raises")


def _attempt(
    order: Backfill,
    dataset: lance.LanceDataset,
    plan: FillPlan,
    known: dict[int, tuple[Any, FilledFragment]],
    progress: Phases,
) -> Backfilled:
    there = {each.fragment_id: each.metadata for each in dataset.get_fragments()}
    kept = {n: each[1] for n, each in known.items() if n in there and each[0] == there[n]}
    todo = [n for n in there if n not in kept]
    progress.begin(f"fill, {len(todo)} tasks")
    new = _run(order, plan, dataset, todo)
    if kept and len({str(each.schema) for each in (*kept.values(), *new.values())}) > 1:
        # Another writer changed the schema: the column has another field id now.
        new.update(_run(order, plan, dataset, list(kept)))
        kept = {}
    filled = {**kept, **new}
    known.update({n: (there[n], done) for n, done in filled.items()})
    progress.begin("commit")
    transaction = lance.Transaction(
        read_version=int(dataset.version),
        operation=_operation(order, dataset, plan, filled, len(there)),
        uuid=str(uuid.uuid4()),
    )
    what = f"column '{order.column}' was not filled"
    version = commit(order.table, dataset, transaction, what)
    return Backfilled(version, str(transaction.uuid), len(filled))


def _operation(
    order: Backfill,
    dataset: lance.LanceDataset,
    plan: FillPlan,
    filled: dict[int, FilledFragment],
    fragments: int,
) -> Any:
    changed = [each.fragment for each in filled.values()]
    if not plan.is_new:
        ids = field_ids(dataset, [order.column]) if changed else []
        return lance.LanceOperation.Update(updated_fragments=changed, fields_modified=ids)
    if not filled:
        raise invalid(
            f"Table '{order.table.address.name}' has no rows: add the column without a backfill"
        )
    if len(filled) != fragments:
        raise invalid(f"{order.failure}: Spark gave the rows of {len(filled)} fragments only")
    schema = next(iter(filled.values())).schema
    return lance.LanceOperation.Merge(changed, schema, preserves_nullability=True)


def _run(
    order: Backfill, plan: FillPlan, dataset: lance.LanceDataset, todo: list[int]
) -> dict[int, FilledFragment]:
    if isinstance(order.expression, str):
        made = _run_sql(order, plan, dataset.schema, todo)
    else:
        by = order.expression
        work = SqlFill(plan, by.sql) if isinstance(by, LanceSql) else UdfFill(plan, by)
        made = dict(enumerate(run(order.spark, todo, work.fill, order.failure, order.at_once)))
    return {todo[i]: result for i, result in made.items() if result is not None}


def _run_sql(order: Backfill, plan: FillPlan, schema: pa.Schema, todo: list[int]) -> dict[int, Any]:
    if not todo:
        return {}
    rows, batches = _schemas(schema, plan.columns)
    value = f"CASE WHEN `{CHOSEN}` THEN ({order.expression}\n) END AS `{VALUE}`"
    with spark_failures(order.failure):
        frame = (
            numbers(order.spark, len(todo))
            .mapInArrow(Reading(plan, todo, batches), rows)
            .selectExpr(f"`{TASK}`", f"`{ROW}`", value)
            .mapInArrow(Writing(plan, todo), RESULTS_DDL)
        )
    return collect(frame, order.failure)


def _schemas(table: pa.Schema, columns: tuple[str, ...]) -> tuple[Any, pa.Schema]:
    own = [pa.field(TASK, pa.int64()), pa.field(ROW, pa.int64()), pa.field(CHOSEN, pa.bool_())]
    rows = spark_schema(pa.schema([*own, *(table.field(name) for name in columns)]))
    return rows, batch_schema(rows)


# -- planning --------------------------------------------------------------------------------------


def _plan(order: Backfill, dataset: lance.LanceDataset) -> FillPlan:
    schema = dataset.schema
    names: list[str] = schema.names
    name = order.table.address.name
    if order.where is not None:
        check_predicate(dataset, name, order.where, "where")
    read = _columns_to_read(order, names)
    is_new = order.column not in names
    if is_new:
        _require_new_name(order.column, names)
    data_type = None if is_new else schema.field(order.column).type
    require_writable(names, name)
    if isinstance(order.expression, str):
        found = _sql_type(order, schema, read)
        data_type = data_type or order.data_type or found
    data_type = data_type or order.data_type
    if data_type is None:
        raise invalid(f"'{order.column}' is a new column: a function needs its data_type")
    if order.data_type is not None and not data_type.equals(order.data_type):
        raise invalid(f"Column '{order.column}' is {data_type} already, not {order.data_type}")
    field = pa.field(order.column, data_type) if is_new else schema.field(order.column)
    access = order.table.access(dataset, branch=order.ref.branch, write=True)
    return FillPlan(access, field, is_new, read, order.where, order.batch_size)


def _columns_to_read(order: Backfill, names: list[str]) -> tuple[str, ...]:
    if isinstance(order.expression, LanceSql):
        return ()
    if isinstance(order.expression, str):
        if order.columns is not None:
            raise invalid("columns goes with a function: SQL reads what it names")
        return read_columns(order.expression, names)
    missing = [each for each in order.columns or () if each not in names]
    if missing:
        raise invalid(f"Table '{order.table.address.name}' has no column '{missing[0]}'")
    return tuple(names) if order.columns is None else order.columns


def _require_new_name(column: str, names: list[str]) -> None:
    same = [name for name in names if name.lower() == column.lower()]
    if same:
        raise invalid(f"'{column}' differs from column '{same[0]}' by letter case only")
    if not column or "." in column or "`" in column or "\0" in column:
        raise invalid(f"{column!r} cannot be a new column's name; fields inside cannot be filled")


def _sql_type(order: Backfill, schema: pa.Schema, columns: tuple[str, ...]) -> pa.DataType:
    """Return the type of the expression in Spark, without evaluating it on rows."""
    rows, _ = _schemas(schema, columns)
    with spark_failures(order.failure):
        empty = order.spark.createDataFrame([], rows)
        made = empty.selectExpr(f"({order.expression}\n) AS `{VALUE}`").schema
        counted = empty.selectExpr("count(1)", f"first(({order.expression}\n))")
        _ = counted.schema
    return batch_schema(made).field(0).type
