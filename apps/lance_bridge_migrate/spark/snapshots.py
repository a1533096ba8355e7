"""Read the rows that differ between two snapshots of a Delta or Iceberg table.

If possible, only changes are read: the files of Iceberg's appends, or Delta's change data feed.
Otherwise all rows of both snapshots are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lance_bridge.names import quoted

from .session import spark_errors
from .sources import ICEBERG, SourceTable, delta_name

_APPENDS = ("append", "replace")
"""Iceberg operations that delete no rows; ``replace`` also adds none."""
_KEEP_FEED = ("WRITE", "STREAMING UPDATE", "DELETE", "UPDATE", "MERGE", "OPTIMIZE", "VACUUM START",
        "VACUUM END")  # fmt: skip
"""Delta operations that change neither the change data feed setting nor the columns."""
_FEED = "delta.enableChangeDataFeed"
_TYPE = "_change_type"
_ADDED = ("insert", "update_postimage")


@dataclass(frozen=True)
class Difference:
    """Added rows and deleted rows; unchanged rows may be in both.

    Attributes:
        deleted: None if no rows were deleted.
    """

    added: DataFrame
    deleted: DataFrame | None = None


def difference(spark: Any, source: SourceTable, since: int | None) -> Difference:
    """Return the difference between a source's snapshot and an earlier one.

    Args:
        since: The earlier snapshot; None if the source had no snapshot, and thus no rows.

    Raises:
        TableVersionNotFoundError: (11) one of the snapshots no longer exists.
        LanceNamespaceError: What `SourceTable.read` raises.
    """
    now = source.read(spark)
    if since is None:
        return Difference(now)
    if since == source.snapshot:  # the formats refuse an empty range
        return Difference(now.where("false"))
    before = source.model_copy(update={"snapshot": since}).read(spark)
    with spark_errors(f"The changes of '{source.name}' cannot be read"):
        find = _appended_rows if source.format == ICEBERG else _feed_rows
        return find(spark, source, since, now.columns) or Difference(now, before)


def _appended_rows(
    spark: Any, table: SourceTable, since: int, columns: list[str]
) -> Difference | None:
    """Return the rows added by Iceberg appends, or None if there were other operations."""
    if table.snapshot is None or not _are_appends(spark, table, since):
        return None
    reader = spark.read.format(ICEBERG).option("start-snapshot-id", str(since))
    name = table.sql_name if table.catalog else table.location
    added = reader.option("end-snapshot-id", str(table.snapshot)).load(name)
    # These rows have the current columns of the table, not those of the snapshot.
    return Difference(added) if added.columns == columns else None


def _are_appends(spark: Any, table: SourceTable, since: int) -> bool:
    if table.catalog:
        frame = spark.table(f"{table.sql_name}.snapshots")
    else:
        frame = spark.read.format(ICEBERG).load(f"{table.location}#snapshots")
    rows = frame.select("snapshot_id", "parent_id", "operation").collect()
    made_by = {row["snapshot_id"]: (row["parent_id"], row["operation"]) for row in rows}
    snapshot = table.snapshot
    while snapshot != since:
        if snapshot not in made_by:
            return False
        snapshot, operation = made_by[snapshot]
        if operation not in _APPENDS:
            return False
    return True


def _feed_rows(spark: Any, table: SourceTable, since: int, columns: list[str]) -> Difference | None:
    """Return the rows of Delta's change data feed, or None if it lacks some of the versions."""
    if not _has_feed(spark, table, since):
        return None
    reader = spark.read.format(table.format).option("readChangeFeed", "true")
    reader = reader.option("startingVersion", str(since + 1))
    reader = reader.option("endingVersion", str(table.snapshot))
    fed = reader.table(table.sql_name) if table.catalog else reader.load(table.location)
    if [name for name in fed.columns if name in columns] != columns:
        return None
    added, deleted = F.col(_TYPE).isin(*_ADDED), ~F.col(_TYPE).isin(*_ADDED)
    chosen = [F.col(quoted((name,))) for name in columns]
    return Difference(*(fed.where(each).select(*chosen) for each in (added, deleted)))


def _has_feed(spark: Any, table: SourceTable, since: int) -> bool:
    name = delta_name(table)
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    if detail["properties"].get(_FEED) != "true":
        return False
    history = spark.sql(f"DESCRIBE HISTORY {name}").select("version", "operation")
    rows = history.where(f"version > {since}").collect()
    wanted = range(since + 1, int(table.snapshot or 0) + 1)
    is_whole = {row["version"] for row in rows}.issuperset(wanted)
    return is_whole and all(row["operation"] in _KEEP_FEED for row in rows)
