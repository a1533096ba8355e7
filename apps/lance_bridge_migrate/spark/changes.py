"""Find the rows of a source that changed since it was converted to a Lance table.

Each tracking method returns a range whose limits the plan fixes, so that a repeated increment reads
the same rows. The rows that changed between snapshots are read by `delta_iceberg`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from lance_bridge.dotted_names import find_name
from lance_bridge.errors import invalid

from .session import col, spark_errors
from .sources import SourceTable

DELETED = "__deleted"
"""The column that is true in rows that were deleted in the source."""

_COUNT = "__count"
Partition = tuple[str | None, ...]
"""The values of the partition columns, as text."""


@dataclass(frozen=True)
class ChangeRange:
    """A range of a source, stored as JSON in a plan.

    Attributes:
        low: The greatest value in the target as text, or None.
        high: The greatest value in the source when the plan was made as text, or None.
        new: The partition values of partitions that are missing in the target.
        changed: The partition values of partitions with another number of rows in the target.
        snapshot: The snapshot of the source that the target contains.
    """

    low: str | None = None
    high: str | None = None
    new: tuple[Partition, ...] = ()
    changed: tuple[Partition, ...] = ()
    snapshot: int | None = None


@dataclass(frozen=True)
class RangeSize:
    """A range, and the numbers of rows in it, in the source and in the target.

    Attributes:
        rows: Rows in the range; None if they were not counted.
        source: Rows of the source when the range was found.
        target: Rows of the target.
        nulls: Rows of the source whose tracking column is null; no range includes them.
        target_nulls: The same rows of the target.
    """

    range: ChangeRange
    rows: int | None
    source: int
    target: int
    nulls: int = 0
    target_nulls: int = 0


# -- by a column -----------------------------------------------------------------------------------


def column_range(source: DataFrame, target: DataFrame, column: str) -> RangeSize:
    """Return the range of values greater than any in the target, reading each side once.

    Raises:
        InvalidInputError: (13) there is no such column. And as `spark_errors` does.
    """
    data_type, value = column_type(source, column), col(column)
    parts = (_text(F.max(value), data_type), F.count(F.lit(1)), _count_if(value.isNull()))
    with spark_errors(f"The greatest value of column '{column}' cannot be read"):
        low, there, target_nulls = target.agg(*parts).collect()[0]
        is_new = value.isNotNull() if low is None else value > _value(low, data_type)
        high, total, nulls, rows = source.agg(*parts, _count_if(is_new)).collect()[0]
    return RangeSize(ChangeRange(low=low, high=high), rows, total, there, nulls, target_nulls)


def _count_if(condition: Column) -> Column:
    return F.count(F.when(condition, F.lit(1)))


def is_above_nan(source: DataFrame, column: str, range: ChangeRange) -> bool:
    """Return whether `low` is NaN, which Spark orders above all other values."""
    data_type = column_type(source, column)
    return range.low == "NaN" and isinstance(data_type, (spark.FloatType, spark.DoubleType))


def column_type(frame: DataFrame, column: str) -> spark.DataType:
    """Return a column's type. Raises InvalidInput (13): there is no such column, or several."""
    name = find_name(column, frame.columns)
    if name is None:
        raise invalid(f"There is no column '{column}' that new rows could be found by")
    return frame.schema[name].dataType


def above(frame: DataFrame, column: str, range: ChangeRange) -> DataFrame:
    """Return the rows with values above `low`, up to and including `high`."""
    if range.high is None:
        return frame.where(F.lit(False))
    data_type, value = column_type(frame, column), col(column)
    found = frame.where(value <= _value(range.high, data_type))
    return found if range.low is None else found.where(value > _value(range.low, data_type))


def up_to(frame: DataFrame, column: str, range: ChangeRange) -> DataFrame:
    """Return the rows that a table has after an increment: null or up to `high`."""
    value = col(column)
    if range.high is None:
        return frame.where(value.isNull())
    return frame.where(value.isNull() | (value <= _value(range.high, column_type(frame, column))))


def _changed_at_low(
    source: DataFrame, target: DataFrame, column: str, range: ChangeRange
) -> DataFrame | None:
    """Return the rows with the value `low` that are missing or different in the target."""
    if range.low is None:
        return None
    is_low = col(column) == _value(range.low, column_type(source, column))
    rows = source.where(is_low)
    if "map<" in source.schema.simpleString():
        return rows  # Spark cannot compare maps, so that these rows are merged again.
    return rows.exceptAll(target.where(is_low).select(*map(col, source.columns)))


# As numbers, timestamps do not depend on the session's time zone. Bytes may not be UTF-8.


def _text(value: Column, data_type: spark.DataType) -> Column:
    if isinstance(data_type, spark.BinaryType):
        return F.hex(value)
    is_time = isinstance(data_type, spark.TimestampType)
    return (F.unix_micros(value) if is_time else value).cast("string")


def _value(text: str, data_type: spark.DataType) -> Column:
    if isinstance(data_type, spark.BinaryType):
        return F.unhex(F.lit(text))
    if isinstance(data_type, spark.TimestampType):
        return F.timestamp_micros(F.lit(int(text)))
    return F.lit(text).cast(data_type)


# -- by partitions ---------------------------------------------------------------------------------


def partition_range(source: DataFrame, target: DataFrame, columns: Sequence[str]) -> RangeSize:
    """Return the partitions that are missing in the target or have another number of rows there."""
    there, here = partitions_of(target, columns), partitions_of(source, columns)
    new = tuple(sorted((p for p in here if p not in there), key=repr))
    changed = {p for p in there if here.get(p) != there[p]}
    range = ChangeRange(new=new, changed=tuple(sorted(changed, key=repr)))
    rows = sum(here.get(each, 0) for each in (*range.new, *range.changed))
    return RangeSize(range, rows, sum(here.values()), sum(there.values()))


def partitions_of(frame: DataFrame, columns: Sequence[str]) -> dict[Partition, int]:
    """Return the number of rows of each partition, reading only the partition columns."""
    texts = [_text(col(c), column_type(frame, c)).alias(c) for c in columns]
    with spark_errors("The partitions cannot be counted"):
        rows = frame.groupBy(*texts).agg(F.count(F.lit(1)).alias(_COUNT)).collect()
    return {tuple(row[: len(columns)]): row[_COUNT] for row in rows}


def in_partitions(frame: DataFrame, columns: Sequence[str], values: Iterable[Partition]) -> Column:
    """Return the condition for rows of some partitions.

    Values are compared with the column's type, so that Spark prunes other partitions. The condition
    for many partitions with several columns is wide, not deep.
    """
    data_types = [column_type(frame, column) for column in columns]
    return _is_one_of(list(zip(columns, data_types, strict=True)), list(values))


def _is_one_of(
    columns: Sequence[tuple[str, spark.DataType]], values: Sequence[Partition]
) -> Column:
    (name, data_type), *inner = columns
    value = col(name)
    if not inner:
        texts = [each[0] for each in values]
        found = value.isin(*[_value(text, data_type) for text in texts if text is not None])
        return found | value.isNull() if None in texts else found
    groups: dict[str | None, list[Partition]] = {}
    for first, *rest in values:
        groups.setdefault(first, []).append(tuple(rest))
    return _any(
        [
            (value.isNull() if first is None else value == _value(first, data_type))
            & _is_one_of(inner, rest)
            for first, rest in groups.items()
        ]
    )


def _any(conditions: list[Column]) -> Column:
    """Combine conditions with OR as a balanced tree, because Spark walks trees recursively."""
    if not conditions:
        return F.lit(False)
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return _any(conditions[:half]) | _any(conditions[half:])


def without_later_partitions(
    source: DataFrame, target: DataFrame, columns: Sequence[str], range: ChangeRange
) -> DataFrame:
    """Return the source without partitions that were added after the plan was made."""
    known = {*partitions_of(target, columns), *range.new}
    later = [each for each in partitions_of(source, columns) if each not in known]
    # Comparisons with null return null, not false.
    is_later = F.coalesce(in_partitions(source, columns, later), F.lit(False))
    return source.where(~is_later) if later else source


# -- increments ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Increment:
    """The part of a source that an increment reads.

    Attributes:
        by: See `CatchUpOptions.by`.
        columns: The tracking column, or the partition columns.
        key: Columns that identify rows; without them, deletions cannot be applied.
    """

    range: ChangeRange
    by: str
    columns: Sequence[str]
    key: Sequence[str] = ()

    @property
    def needs_target(self) -> bool:
        """Whether the target version of the plan has to be read."""
        return bool(self.key) and self.by != "snapshot"


def changed_rows(source: DataFrame, other: DataFrame | None, increment: Increment) -> DataFrame:
    """Return new and changed rows, and with a key also deleted rows.

    With a key, the result has the column `DELETED`. Deleted rows have only the key; their other
    columns are null.

    Args:
        source: The pinned source; for snapshots, the rows added since the target's snapshot.
        other: The target version of the plan, if `Increment.needs_target`; for snapshots, the
            deleted rows, if any.

    Raises:
        InvalidInputError: (13) rows cannot be compared, or there is no such column.
    """
    ways = {"column": _by_column, "partition": _by_partition, "snapshot": _by_snapshot}
    with spark_errors("The changes cannot be read"):
        rows, deleted = ways[increment.by](source, other, increment)
        if not increment.key:
            return rows
        marked = rows.withColumn(DELETED, F.lit(False))
        if deleted is None:
            return marked
        return marked.unionByName(_as_deleted(deleted, source, increment.key))


Changes = tuple[DataFrame, "DataFrame | None"]
"""New and changed rows, and deleted rows or their keys, if any; unchanged rows may be in both."""


def _by_column(source: DataFrame, target: DataFrame | None, increment: Increment) -> Changes:
    rows = above(source, increment.columns[0], increment.range)
    if target is None:
        return rows, None
    again = _changed_at_low(source, target, increment.columns[0], increment.range)
    return (rows if again is None else rows.unionByName(again)), None


def _by_partition(source: DataFrame, target: DataFrame | None, increment: Increment) -> Changes:
    range, keys = increment.range, [*map(col, increment.key)]
    rows = source.where(in_partitions(source, increment.columns, (*range.new, *range.changed)))
    if target is None or not range.changed:
        return rows, None
    is_changed = in_partitions(target, increment.columns, range.changed)
    left = target.where(is_changed).select(*keys)
    # A row may have moved to another partition.
    return rows, left.join(source.select(*keys), list(increment.key), "left_anti")


def _by_snapshot(added: DataFrame, deleted: DataFrame | None, increment: Increment) -> Changes:
    if deleted is None:
        return added, None
    rows = added.exceptAll(deleted)
    if not increment.key:
        return rows, None
    keys = [*map(col, increment.key)]
    left = deleted.exceptAll(added).select(*keys)
    # A row whose key still exists was changed, not deleted.
    return rows, left.join(rows.select(*keys), list(increment.key), "left_anti")


def _as_deleted(keys: DataFrame, source: DataFrame, key: Sequence[str]) -> DataFrame:
    names = {find_name(name, source.columns) for name in key}
    columns = [
        col(field.name)
        if field.name in names
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in source.schema.fields
    ]
    return keys.distinct().select(*columns, F.lit(True).alias(DELETED))


def count_keys(frame: DataFrame, key: Sequence[str]) -> tuple[int, int, int]:
    """Count all rows, those with a null in their key, and those that share a key.

    Raises as `spark_errors` does.
    """
    columns = [*map(col, key)]
    is_null = _any([column.isNull() for column in columns])
    many = F.when(F.col(_COUNT) > 1, F.col(_COUNT))
    with spark_errors("The keys of the rows cannot be counted"):
        counted = frame.groupBy(*columns).agg(F.count(F.lit(1)).alias(_COUNT))
        total, null, repeated = counted.agg(
            F.sum(_COUNT), F.sum(F.when(is_null, F.col(_COUNT))), F.sum(F.when(~is_null, many))
        ).collect()[0]
    return total or 0, null or 0, repeated or 0


def count_new_keys(frame: DataFrame, target: DataFrame, key: Sequence[str]) -> int:
    """Count the rows whose key is not in a table. Raises as `spark_errors` does."""
    columns = [*map(col, key)]
    with spark_errors("The keys of the rows cannot be compared with those of the table"):
        rows = frame.select(*columns).join(target.select(*columns), list(key), "left_anti")
        return rows.count()


def same_columns(one: SourceTable, other: SourceTable) -> bool:
    """Return whether two states of a source have the same columns and types."""
    fields = [
        {each["name"]: each["type"] for each in json.loads(table.columns)["fields"]}
        for table in (one, other)
    ]
    return fields[0] == fields[1]
