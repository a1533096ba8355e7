"""What came into a source since a table of Lance was made of it, and what is to become of it.

Every way of tracking gives a range with both ends fixed by the plan, so that a round that is run
again reads the same rows again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from ...errors import invalid
from ...names import quoted
from .session import told_by_spark
from .sources import SourceTable

GONE = "__gone"
"""Marks rows that the source no longer has."""

_COUNT = "__count"


@dataclass(frozen=True)
class Since:
    """A range of a source: JSON in a plan.

    Attributes:
        low: The greatest value that the target has; None where it has none. As text.
        high: The greatest value that the source had when the plan was made.
        new: Values of the partition columns of partitions that the target does not have.
        changed: The same of partitions of which it has another number of rows.
        snapshot: The one that the target has.
    """

    low: str | None = None
    high: str | None = None
    new: tuple[tuple[str | None, ...], ...] = ()
    changed: tuple[tuple[str | None, ...], ...] = ()
    snapshot: int | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Since:
        partitions = {key: tuple(map(tuple, facts[key])) for key in ("new", "changed")}
        return cls(**{**facts, **partitions})


# -- by a column -----------------------------------------------------------------------------------


def greatest(frame: DataFrame, column: str) -> str | None:
    """Return the greatest value of a column as text, or None. Raises as `told_by_spark` does."""
    kind = kind_of(frame, column)
    value = F.max(F.col(quoted((column,))))
    if isinstance(kind, spark.TimestampType):
        value = F.unix_micros(value)  # independent of the session's zone
    with told_by_spark(f"The greatest value of column '{column}' cannot be read"):
        found = frame.agg(value.cast("string")).collect()[0][0]
    return None if found is None else str(found)


def kind_of(frame: DataFrame, column: str) -> spark.DataType:
    """Return a column's type. Raises InvalidInput (13) where there is no such column."""
    for field in frame.schema.fields:
        if field.name.lower() == column.lower():
            return field.dataType
    raise invalid(f"There is no column '{column}' to see by which rows are new")


def in_range(frame: DataFrame, column: str, since: Since, *, with_low: bool) -> DataFrame:
    """Return the rows with values after `low`, or from it on, and up to `high`."""
    kind = kind_of(frame, column)
    value = F.col(quoted((column,)))
    found = frame
    if since.high is not None:
        found = found.where(value <= _value(since.high, kind))
    if since.low is not None:
        low = _value(since.low, kind)
        found = found.where(value >= low if with_low else value > low)
    return found


def _value(text: str, kind: spark.DataType) -> Column:
    if isinstance(kind, spark.TimestampType):
        return F.timestamp_micros(F.lit(int(text)))
    return F.lit(text).cast(kind)


# -- by partitions ---------------------------------------------------------------------------------


def partitions_since(source: DataFrame, target: DataFrame, columns: Sequence[str]) -> Since:
    """Return which partitions the target lacks, and which have another number of rows there."""
    there, here = _partitions(target, columns), _partitions(source, columns)
    new = tuple(sorted((p for p in here if p not in there), key=repr))
    changed = {p for p in there if p in here and here[p] != there[p]} | (there.keys() - here.keys())
    return Since(new=new, changed=tuple(sorted(changed, key=repr)))


def _partitions(frame: DataFrame, columns: Sequence[str]) -> dict[tuple[str | None, ...], int]:
    texts = [F.col(quoted((c,))).cast("string").alias(c) for c in columns]
    with told_by_spark("The partitions cannot be counted"):
        rows = frame.groupBy(*texts).agg(F.count(F.lit(1)).alias(_COUNT)).collect()
    return {tuple(row[: len(columns)]): row[_COUNT] for row in rows}


def in_partitions(
    frame: DataFrame, columns: Sequence[str], values: Sequence[Sequence[str | None]]
) -> DataFrame:
    """Return the rows of some partitions."""
    wanted = F.lit(False)
    for each in values:
        is_it = F.lit(True)
        for column, text in zip(columns, each, strict=True):
            is_it &= F.col(quoted((column,))).cast("string").eqNullSafe(F.lit(text))
        wanted |= is_it
    return frame.where(wanted)


# -- all ways --------------------------------------------------------------------------------------


def changed_rows(
    source: DataFrame,
    target: DataFrame | None,
    before: DataFrame | None,
    since: Since,
    *,
    by: str,
    columns: Sequence[str],
    key: Sequence[str],
) -> DataFrame:
    """Return the rows that are new or changed, and with a key those that are gone.

    Args:
        source: As the plan pins it.
        target: As it was when the plan was made; for partitions with a key.
        before: The source at the snapshot that the target has; for snapshots.
        columns: The one to track by, or the partition columns.
        key: Columns that tell rows apart; without them nothing may have gone.
    """
    gone: DataFrame | None = None
    if by == "column":
        rows = in_range(source, columns[0], since, with_low=bool(key))
    elif by == "partition":
        rows = in_partitions(source, columns, (*since.new, *since.changed))
        gone = in_partitions(target, columns, since.changed) if target is not None else None
    else:
        rows = source if before is None else source.exceptAll(before)
        gone = None if before is None else before.exceptAll(source)
    if not key:
        return rows
    marked = rows.withColumn(GONE, F.lit(False))
    if gone is None:
        return marked
    # What has the key of a row that is there now has only changed.
    left = gone.select(*source.columns).join(source.select(*key), list(key), "left_anti")
    return marked.unionByName(left.withColumn(GONE, F.lit(True)))


def without_key(frame: DataFrame, key: Sequence[str]) -> int:
    """Return how many rows have a key that is null: a merge would add them again each time."""
    is_null = F.lit(False)
    for column in key:
        is_null |= F.col(quoted((column,))).isNull()
    with told_by_spark("The rows without a key cannot be counted"):
        return int(frame.where(is_null).count())


def same_columns(one: SourceTable, other: SourceTable) -> bool:
    """Return whether two states of a source have the same columns and types."""
    fields = [
        {each["name"]: each["type"] for each in json.loads(table.columns)["fields"]}
        for table in (one, other)
    ]
    return fields[0] == fields[1]
