"""Snapshots of Delta and Iceberg: the latest one, and the rows that changed between two.

Only changes are read if possible: the files of Iceberg's appends, or Delta's change data feed.
Otherwise all rows of both snapshots are read.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lance_bridge.dotted_names import quoted

from .changes import Changes
from .session import col, spark_errors
from .sources import DELTA, ICEBERG, SourceTable, requiring_package


def pin_snapshot(spark: Any, table: SourceTable) -> SourceTable:
    """Return a source pinned to its latest snapshot, if its format has snapshots."""
    if not table.has_snapshots:
        return table
    with (
        spark_errors(f"The snapshots of '{table.name}' cannot be read"),
        requiring_package(table.format, table.name),
    ):
        table.refresh(spark)
        if table.format == DELTA:
            return _pin_delta_version(spark, table)
        return table.model_copy(update={"snapshot": _iceberg_snapshot(spark, table)})


def difference(spark: Any, source: SourceTable, since: int | None) -> Changes:
    """Return the difference between a source's snapshot and an earlier one.

    Args:
        since: The earlier snapshot; None if the source had no snapshot, and thus no rows.

    Raises:
        TableVersionNotFoundError: (11) one of the snapshots no longer exists.
        LanceNamespaceError: What `SourceTable.read` raises.
    """
    now = source.read(spark)
    if since is None:
        return now, None
    if since == source.snapshot:  # the formats refuse an empty range
        return now.where("false"), None
    before = source.model_copy(update={"snapshot": since}).read(spark)
    with spark_errors(f"The changes of '{source.name}' cannot be read"):
        find = _appended_rows if source.format == ICEBERG else _feed_rows
        return find(spark, source, since, now.columns) or (now, before)


# -- Delta -----------------------------------------------------------------------------------------


_KEEP_FEED = ("WRITE", "STREAMING UPDATE", "DELETE", "UPDATE", "MERGE", "OPTIMIZE", "VACUUM START",
        "VACUUM END")  # fmt: skip
"""Delta operations that change neither the change data feed setting nor the columns."""
_FEED = "delta.enableChangeDataFeed"
_TYPE = "_change_type"
_ADDED = ("insert", "update_postimage")


def _delta_name(table: SourceTable) -> str:
    """Return the SQL name of a Delta table or directory."""
    return table.sql_name if table.catalog else f"delta.{quoted((table.location,))}"


def _pin_delta_version(spark: Any, table: SourceTable) -> SourceTable:
    name = _delta_name(table)
    version = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"]
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    partitions = tuple(detail["partitionColumns"])
    found = {"snapshot": int(version), "identity": detail["id"], "partitions": partitions}
    return table.model_copy(update=found)


def _feed_rows(spark: Any, table: SourceTable, since: int, columns: list[str]) -> Changes | None:
    """Return the rows of Delta's change data feed, or None if it lacks some of the versions."""
    if not _has_feed(spark, table, since):
        return None
    reader = spark.read.format(table.format).option("readChangeFeed", "true")
    reader = reader.option("startingVersion", str(since + 1))
    reader = reader.option("endingVersion", str(table.snapshot))
    fed = reader.table(table.sql_name) if table.catalog else reader.load(table.location)
    if [name for name in fed.columns if name in columns] != columns:
        return None
    is_added, chosen = F.col(_TYPE).isin(*_ADDED), [*map(col, columns)]
    return fed.where(is_added).select(*chosen), fed.where(~is_added).select(*chosen)


def _has_feed(spark: Any, table: SourceTable, since: int) -> bool:
    name = _delta_name(table)
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    if detail["properties"].get(_FEED) != "true":
        return False
    history = spark.sql(f"DESCRIBE HISTORY {name}").select("version", "operation")
    rows = history.where(f"version > {since}").collect()
    wanted = range(since + 1, int(table.snapshot or 0) + 1)
    is_whole = {row["version"] for row in rows}.issuperset(wanted)
    return is_whole and all(row["operation"] in _KEEP_FEED for row in rows)


# -- Iceberg ---------------------------------------------------------------------------------------


_APPENDS = ("append", "replace")
"""Iceberg operations that delete no rows; ``replace`` also adds none."""


def iceberg_metadata(spark: Any, table: SourceTable, name: str) -> DataFrame:
    """Return one of the metadata tables of an Iceberg table or directory."""
    found: DataFrame
    if table.catalog:
        found = spark.table(f"{table.sql_name}.{name}")
    else:
        found = spark.read.format(ICEBERG).load(f"{table.location}#{name}")
    return found


def _iceberg_snapshot(spark: Any, table: SourceTable) -> int | None:
    refs = iceberg_metadata(spark, table, "refs")
    found = refs.where("name = 'main'").select("snapshot_id").collect()
    return int(found[0][0]) if found else None


def _appended_rows(
    spark: Any, table: SourceTable, since: int, columns: list[str]
) -> Changes | None:
    """Return the rows added by Iceberg appends, or None if there were other operations."""
    if table.snapshot is None or not _are_appends(spark, table, since):
        return None
    reader = spark.read.format(ICEBERG).option("start-snapshot-id", str(since))
    name = table.sql_name if table.catalog else table.location
    added = reader.option("end-snapshot-id", str(table.snapshot)).load(name)
    # These rows have the current columns of the table, not those of the snapshot.
    return (added, None) if added.columns == columns else None


def _are_appends(spark: Any, table: SourceTable, since: int) -> bool:
    frame = iceberg_metadata(spark, table, "snapshots")
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
