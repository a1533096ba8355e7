"""DELETE and UPDATE as functions, by Spark's conditions and expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableColumnNotFoundError, TableSchemaValidationError
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from lance_bridge.errors import invalid

from ...source.types import ROW_ADDRESS, ROW_ID
from . import change, tasks
from .change import Changed, Plan
from .snapshot import Snapshot
from .tasks import Action, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_KEY_COLUMNS = (ROW_ID, ROW_ADDRESS)


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
        marked = rows.select(*ROW_KEY_COLUMNS, F.lit(0).alias(tasks.ACTION))
        return change.apply(target, Plan(marked, [Action(Kind.DELETE)], ()))

    return change.retry(retries, attempt)


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
        TableColumnNotFoundError: (12) a column to set does not exist.
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
        made = cast_values(target, rows, values)
        marked = rows.select(
            *ROW_KEY_COLUMNS, F.lit(0).alias(tasks.ACTION), *alias_values(list(made.values()))
        )
        action = Action(Kind.UPDATE, frozenset(made))
        return change.apply(target, Plan(marked, [action], tuple(made)))

    return change.retry(retries, attempt)


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


def cast_values(target: Snapshot, rows: DataFrame, values: Mapping[str, Any]) -> dict[str, Column]:
    """Return the new values of columns in the columns' own types, over some rows."""
    if not values:
        return {}
    columns = {name: as_column(value) for name, value in values.items()}
    given = rows.select(*[c.alias(f"v{i}") for i, c in enumerate(columns.values())]).schema
    ansi = str(target.spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
    return {
        name: assign(column, field.dataType, target.types[name], target.name, ansi=ansi)
        for (name, column), field in zip(columns.items(), given.fields, strict=True)
    }


def alias_values(values: list[Column]) -> list[Column]:
    """Return new values under the names that tasks know them by."""
    return [value.alias(f"{tasks.VALUE}{place}") for place, value in enumerate(values)]


def as_column(value: Any) -> Column:
    """Return an expression of SQL as a column, and a column as it is.

    Raises:
        InvalidInputError: (13) it is neither.
    """
    if isinstance(value, str):
        return F.expr(value)
    if not isinstance(value, Column):
        raise invalid(
            f"An expression must be SQL or a Spark column, not {value!r}: write it as text, or "
            "with lit()"
        )
    return value


def _matching(target: Snapshot, where: str | Column | None, values: tuple[Any, ...]) -> DataFrame:
    """Return the rows for which a condition holds, with no more columns than are needed."""
    texts = [each for each in (where, *values) if each is not None]
    if all(isinstance(each, str) for each in texts):
        some = target.scan(target.columns_in(*texts), ROW_KEY_COLUMNS)
        try:
            return _filtered(some, where, values)
        except AnalysisException:
            pass  # It may be about a column that was left out: see what Spark says with all.
    return _filtered(target.scan(target.schema.names, ROW_KEY_COLUMNS), where, values)


def _filtered(rows: DataFrame, where: Any, values: tuple[Any, ...]) -> DataFrame:
    found = rows if where is None else rows.where(as_column(where))
    # Makes Spark look at the expressions now, in Connect too.
    _ = found.select(*[as_column(value).alias("v") for value in values]).schema
    return found


_TIMES = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)


def assign(
    value: Column, given: spark.DataType, column: spark.StructField, table: str, *, ansi: bool
) -> Column:
    """Return a value in the type of the column that it is for.

    Args:
        given: The value's own type.
        table: What messages call the table.
        ansi: Whether the session's casts fail by themselves where a value does not fit.

    Raises:
        TableSchemaValidationError: (20) Spark stores no such value in such a column.
    """
    if not can_store(given, column.dataType):
        raise TableSchemaValidationError(
            f"Column '{column.name}' of table '{table}' is {column.dataType.simpleString()}, and "
            f"the value for it is {given.simpleString()}: cast it"
        )
    wanted = relaxed(column.dataType)
    if relaxed(given) != wanted:
        value = value.cast(wanted) if ansi else _checked(value, wanted, column.name)
    if not column.nullable:
        message = f"[NOT_NULL_ASSERT_VIOLATION] Column '{column.name}' must not be null"
        value = F.when(value.isNotNull(), value).otherwise(F.raise_error(message).cast(wanted))
    return value


def _checked(value: Column, wanted: spark.DataType, name: str) -> Column:
    cast = value.try_cast(wanted)
    message = f"[CAST_OVERFLOW_IN_TABLE_INSERT] A value does not fit column '{name}'"
    failed = F.raise_error(message).cast(wanted)
    return F.when(value.isNull() | cast.isNotNull(), cast).otherwise(failed)


def can_store(given: spark.DataType, wanted: spark.DataType) -> bool:
    """Return whether values of a type can be stored as another, as Spark's ANSI policy has it."""
    if isinstance(given, spark.NullType) or relaxed(given) == relaxed(wanted):
        return True
    nested = _pairs(given, wanted)
    if nested is not None:
        return all(can_store(one, other) for one, other in nested)
    if isinstance(wanted, spark.StringType):
        return isinstance(given, spark.AtomicType) and not isinstance(given, spark.BinaryType)
    if isinstance(given, _TIMES) and isinstance(wanted, _TIMES):
        return True
    return isinstance(given, spark.NumericType) and isinstance(wanted, spark.NumericType)


def _pairs(given: Any, wanted: Any) -> list[tuple[Any, Any]] | None:
    """Return the types inside two of one kind, side by side, or None."""
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return [(given.elementType, wanted.elementType)]
    if isinstance(given, spark.MapType) and isinstance(wanted, spark.MapType):
        return [(given.keyType, wanted.keyType), (given.valueType, wanted.valueType)]
    if isinstance(given, spark.StructType) and isinstance(wanted, spark.StructType):
        # A cast goes by position: the names must be in one order, or it would mix them up.
        if [each.lower() for each in given.names] != [each.lower() for each in wanted.names]:
            return None
        pairs = zip(given.fields, wanted.fields, strict=True)
        return [(one.dataType, other.dataType) for one, other in pairs]
    return None


def relaxed(kind: Any) -> Any:
    """Return a type that may hold nulls everywhere: whether it does is checked on writing."""
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(relaxed(kind.elementType), True)
    if isinstance(kind, spark.MapType):
        return spark.MapType(relaxed(kind.keyType), relaxed(kind.valueType), True)
    if isinstance(kind, spark.StructType):
        fields = [spark.StructField(f.name, relaxed(f.dataType), True) for f in kind.fields]
        return spark.StructType(fields)
    return kind
