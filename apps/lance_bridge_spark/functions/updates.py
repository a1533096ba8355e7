"""DELETE and UPDATE as functions, with Spark's conditions and expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableColumnNotFoundError, TableSchemaValidationError
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from lance_bridge.errors import invalid

from ..schemas import ROW_ADDRESS, ROW_ID
from . import change
from .change import Action, Changed, Kind, Plan
from .read_write import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_KEY_COLUMNS = (ROW_ID, ROW_ADDRESS)


def delete(
    spark: Any, table: str, where: str | Column, *, retries: int = change.RETRIES
) -> Changed:
    """Delete the rows that match a condition. Data files are not rewritten.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        where: A Spark SQL condition, or a boolean column. Rows for which it is null are kept.
            ``"true"`` deletes all rows.
        retries: How often to retry if another writer changed the same fragments.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, no Lance table, or columns whose
            names differ only in letter case.
        TableNotFoundError: (4)
        ConcurrentModificationError: (14) every attempt conflicted with another writer's change.
        OutcomeUnknownError: (17) it is unknown whether the rows are deleted.
        ServiceUnavailableError: (17)
        AnalysisException: Spark cannot parse the condition or resolve a column.
    """

    def attempt() -> Changed:
        target = Snapshot.open(spark, table, write=True)
        target.require_changeable(rewrites=False)
        rows = _select_rows(target, where, ())
        marked = rows.select(*ROW_KEY_COLUMNS, F.lit(0).alias(change.ACTION))
        return change.apply_change(target, Plan(marked, [Action(Kind.DELETE)], ()))

    return change.retry(retries, attempt)


def update(
    spark: Any,
    table: str,
    set: Mapping[str, Any],
    where: str | Column | None = None,
    *,
    retries: int = change.RETRIES,
) -> Changed:
    """Set columns in the rows that match a condition, or in all rows.

    Other columns keep their values, which Spark does not read.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        set: Spark SQL expressions over the old row, or Spark columns, by column name.
        where: A Spark SQL condition, or a boolean column.
        retries: How often to retry if another writer changed the same fragments.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, no Lance table, nothing is
            set, or columns whose names differ only in letter case.
        TableNotFoundError: (4)
        TableColumnNotFoundError: (12) a column to set does not exist.
        TableSchemaValidationError: (20) an expression has a type that its column cannot store.
        ConcurrentModificationError: (14) every attempt conflicted with another writer's change.
        OutcomeUnknownError: (17) it is unknown whether the rows are updated.
        ServiceUnavailableError: (17)
        AnalysisException: Spark cannot parse an expression or resolve a column.
    """

    def attempt() -> Changed:
        target = Snapshot.open(spark, table, write=True)
        target.require_changeable()
        values = columns_to_set(target, set)
        rows = _select_rows(target, where, tuple(values.values()))
        made = cast_values(target, rows, values)
        marked = rows.select(
            *ROW_KEY_COLUMNS, F.lit(0).alias(change.ACTION), *alias_values(list(made.values()))
        )
        action = Action(Kind.UPDATE, frozenset(made))
        return change.apply_change(target, Plan(marked, [action], tuple(made)))

    return change.retry(retries, attempt)


def columns_to_set(target: Snapshot, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to set, by the table's own column names.

    Raises:
        InvalidInputError: (13) nothing is set, or a column is set twice.
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
    """Return the new values of columns over some rows, cast to the columns' types."""
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
    """Return new values with the aliases that tasks expect."""
    return [value.alias(f"{change.VALUE}{place}") for place, value in enumerate(values)]


def as_column(value: Any) -> Column:
    """Return an SQL expression as a column, and a column unchanged.

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


def _select_rows(
    target: Snapshot, where: str | Column | None, values: tuple[Any, ...]
) -> DataFrame:
    """Return the rows that match a condition, with only the columns that are needed."""
    texts = [each for each in (where, *values) if each is not None]
    if all(isinstance(each, str) for each in texts):
        some = target.scan(target.columns_in(*texts), ROW_KEY_COLUMNS)
        try:
            return _filter(some, where, values)
        except AnalysisException:
            pass  # A column may have been left out: try with all columns.
    return _filter(target.scan(target.schema.names, ROW_KEY_COLUMNS), where, values)


def _filter(rows: DataFrame, where: Any, values: tuple[Any, ...]) -> DataFrame:
    found = rows if where is None else rows.where(as_column(where))
    # Accessing the schema makes Spark analyse the expressions now, in Spark Connect too.
    _ = found.select(*[as_column(value).alias("v") for value in values]).schema
    return found


_TIMES = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)


def assign(
    value: Column, given: spark.DataType, column: spark.StructField, table: str, *, ansi: bool
) -> Column:
    """Return a value cast to the type of its column.

    Args:
        given: The value's own type.
        table: The table's name in messages.
        ansi: Whether the session's casts fail if a value does not fit.

    Raises:
        TableSchemaValidationError: (20) Spark does not allow storing the value in the column.
    """
    if not can_store(given, column.dataType):
        raise TableSchemaValidationError(
            f"Column '{column.name}' of table '{table}' is {column.dataType.simpleString()}, and "
            f"the value for it is {given.simpleString()}: cast it"
        )
    wanted = as_nullable(column.dataType)
    if as_nullable(given) != wanted:
        value = value.cast(wanted) if ansi else _try_cast(value, wanted, column.name)
    if not column.nullable:
        message = f"[NOT_NULL_ASSERT_VIOLATION] Column '{column.name}' must not be null"
        value = F.when(value.isNotNull(), value).otherwise(F.raise_error(message).cast(wanted))
    return value


def _try_cast(value: Column, wanted: spark.DataType, name: str) -> Column:
    cast = value.try_cast(wanted)
    message = f"[CAST_OVERFLOW_IN_TABLE_INSERT] A value does not fit column '{name}'"
    failed = F.raise_error(message).cast(wanted)
    return F.when(value.isNull() | cast.isNotNull(), cast).otherwise(failed)


def can_store(given: spark.DataType, wanted: spark.DataType) -> bool:
    """Return whether Spark's ANSI policy allows storing values of a type as another."""
    if isinstance(given, spark.NullType) or as_nullable(given) == as_nullable(wanted):
        return True
    nested = _nested_pairs(given, wanted)
    if nested is not None:
        return all(can_store(one, other) for one, other in nested)
    if isinstance(wanted, spark.StringType):
        return isinstance(given, spark.AtomicType) and not isinstance(given, spark.BinaryType)
    if isinstance(given, _TIMES) and isinstance(wanted, _TIMES):
        return True
    return isinstance(given, spark.NumericType) and isinstance(wanted, spark.NumericType)


def _nested_pairs(given: Any, wanted: Any) -> list[tuple[Any, Any]] | None:
    """Return pairs of the inner types of two nested types of the same kind, or None."""
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return [(given.elementType, wanted.elementType)]
    if isinstance(given, spark.MapType) and isinstance(wanted, spark.MapType):
        return [(given.keyType, wanted.keyType), (given.valueType, wanted.valueType)]
    if isinstance(given, spark.StructType) and isinstance(wanted, spark.StructType):
        # A cast matches fields by position, so the names must be in the same order.
        if [each.lower() for each in given.names] != [each.lower() for each in wanted.names]:
            return None
        pairs = zip(given.fields, wanted.fields, strict=True)
        return [(one.dataType, other.dataType) for one, other in pairs]
    return None


def as_nullable(data_type: Any) -> Any:
    """Return a type that is nullable at every level; nulls are checked on writing."""
    if isinstance(data_type, spark.ArrayType):
        return spark.ArrayType(as_nullable(data_type.elementType), True)
    if isinstance(data_type, spark.MapType):
        return spark.MapType(as_nullable(data_type.keyType), as_nullable(data_type.valueType), True)
    if isinstance(data_type, spark.StructType):
        fields = [
            spark.StructField(f.name, as_nullable(f.dataType), True) for f in data_type.fields
        ]
        return spark.StructType(fields)
    return data_type
