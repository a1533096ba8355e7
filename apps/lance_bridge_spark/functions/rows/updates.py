"""DELETE and UPDATE as functions, by Spark's conditions and expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableColumnNotFoundError
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from lance_bridge.errors import invalid

from . import change, tasks
from .assign import assigned
from .change import Changed, Plan
from .snapshot import ROW_ADDRESS, ROW_ID, Snapshot
from .tasks import Action, Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARKS = (ROW_ID, ROW_ADDRESS)


def delete(
    spark: Any, table: str, where: str | Column, *, retries: int = change.RETRIES
) -> Changed:
    """Delete the rows for which a condition holds. Data files stay as they are.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        where: A condition of Spark's SQL, or a column of truth values. Rows for which it is null
            stay. ``"true"`` deletes all rows.
        retries: How often it is done again where others changed the same fragments first.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, or no Lance table.
        TableNotFoundError: (4)
        ConcurrentModificationError: (14) others came first every time.
        OutcomeUnknownError: (17) whether the rows are deleted is not known.
        ServiceUnavailableError: (17)
        AnalysisException: Spark cannot read the condition, or it names no column.
    """

    def attempt() -> Changed:
        target = Snapshot.open(spark, table, write=True)
        rows = _matching(target, where, ())
        marked = rows.select(*MARKS, F.lit(0).alias(tasks.ACTION))
        return change.apply(target, Plan(marked, [Action(Kind.DELETE)], ()))

    return change.repeated(retries, attempt)


def update(
    spark: Any,
    table: str,
    set: Mapping[str, Any],
    where: str | Column | None = None,
    *,
    retries: int = change.RETRIES,
) -> Changed:
    """Set columns in the rows for which a condition holds, or in all.

    Columns that are not set stay as they are, and their values are not read by Spark.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        set: Expressions of Spark's SQL over the old row, or Spark columns, by column.
        where: A condition of Spark's SQL, or a column of truth values.
        retries: How often it is done again where others changed the same fragments first.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, no Lance table, or nothing is
            set.
        TableNotFoundError: (4)
        TableColumnNotFoundError: (12) a column to set is not there.
        TableSchemaValidationError: (20) an expression has a type that its column cannot store.
        ConcurrentModificationError: (14) others came first every time.
        OutcomeUnknownError: (17) whether the rows are updated is not known.
        ServiceUnavailableError: (17)
        AnalysisException: Spark cannot read an expression, or it names no column.
    """

    def attempt() -> Changed:
        target = Snapshot.open(spark, table, write=True)
        values = columns_to_set(target, set)
        rows = _matching(target, where, tuple(values.values()))
        made = made_values(target, rows, values)
        marked = rows.select(*MARKS, F.lit(0).alias(tasks.ACTION), *named(list(made.values())))
        action = Action(Kind.UPDATE, frozenset(made))
        return change.apply(target, Plan(marked, [action], tuple(made)))

    return change.repeated(retries, attempt)


def columns_to_set(target: Snapshot, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be set by the table's own names of columns.

    Raises:
        InvalidInputError: (13) nothing is set, or a column twice.
        TableColumnNotFoundError: (12)
    """
    if not values:
        raise invalid(f"Nothing is set in table '{target.name}': give a column and an expression")
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            column = target.column(name)
        except TableColumnNotFoundError:
            top = name.split(".", 1)[0]
            if top != name and top in target.schema.names:
                raise invalid(
                    f"'{name}' cannot be set alone: set all of '{top}', with named_struct(…)"
                ) from None
            raise
        if column in found:
            raise invalid(f"Column '{column}' is set twice")
        found[column] = value
    return found


def made_values(target: Snapshot, rows: DataFrame, values: Mapping[str, Any]) -> dict[str, Column]:
    """Return the new values of columns in the columns' own types, over some rows."""
    if not values:
        return {}
    columns = {name: as_column(value) for name, value in values.items()}
    given = rows.select(*[c.alias(f"v{i}") for i, c in enumerate(columns.values())]).schema
    ansi = str(target.spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
    return {
        name: assigned(column, field.dataType, target.types[name], target.name, ansi=ansi)
        for (name, column), field in zip(columns.items(), given.fields, strict=True)
    }


def named(values: list[Column]) -> list[Column]:
    """Return new values under the names that tasks know them by."""
    return [value.alias(f"{tasks.VALUE}{place}") for place, value in enumerate(values)]


def as_column(value: Any) -> Column:
    """Return an expression of SQL as a column; what is one already stays."""
    return F.expr(value) if isinstance(value, str) else value


def _matching(target: Snapshot, where: str | Column | None, values: tuple[Any, ...]) -> DataFrame:
    """Return the rows for which a condition holds, with no more columns than are needed."""
    texts = [each for each in (where, *values) if each is not None]
    if all(isinstance(each, str) for each in texts):
        some = target.scan(target.columns_in(*texts), MARKS)
        try:
            return _filtered(some, where, values)
        except AnalysisException:
            pass  # It may be about a column that was left out: see what Spark says with all.
    return _filtered(target.scan(target.schema.names, MARKS), where, values)


def _filtered(rows: DataFrame, where: Any, values: tuple[Any, ...]) -> DataFrame:
    found = rows if where is None else rows.where(as_column(where))
    # Makes Spark look at the expressions now, in Connect too.
    _ = found.select(*[as_column(value).alias("v") for value in values]).schema
    return found
