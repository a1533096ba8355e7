"""Values for columns, as Spark's UPDATE and MERGE store them: cast, and checked on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableSchemaValidationError
from pyspark.sql import functions as F
from pyspark.sql import types as spark

if TYPE_CHECKING:
    from pyspark.sql import Column

_TIMES = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)


def assigned(
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
