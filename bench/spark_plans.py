"""Plans of a table with many fragments and versions, compared with as many Parquet files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lance_bridge
from bench.runner import at_least, request, show_progress
from bench.spark_session import CATALOG, Setup, Statements, measure_operations
from lance_bridge.locations import for_lance

_NAMESPACE = "plans"
_TABLE = f"{CATALOG}.{_NAMESPACE}.many"
_PARQUET = "parquet_many"
_ROWS = 10
"""Of each fragment, and of each file."""
_BAR_SECONDS = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of these tables."""
    parser.add_argument("--fragments", type=at_least(2), default=10_000, help="of a table to plan")
    parser.add_argument("--versions", type=at_least(2), default=1000, help="of that table")


def measure_plans(
    spark: SparkSession, setup: Setup, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure how long Spark plans a read of all fragments, up to its tasks."""
    show_progress(f"writing {options.fragments} fragments …")
    fragments, versions = options.fragments, min(options.versions, options.fragments)
    _write_table(setup, fragments, versions)
    _write_files(setup.directory / "many", fragments)
    spark.read.parquet(str(setup.directory / "many")).createOrReplaceTempView(_PARQUET)
    statements = Statements(spark, (_TABLE, _PARQUET))

    def plan(table: str, turn: int) -> int:
        # Lance cannot say how many rows fulfil it, so the plan has tasks; a shuffle would run them.
        frame = spark.sql(f"SELECT id FROM {table} WHERE id % 7 <> {turn % 7}")
        return int(frame._jdf.queryExecution().toRdd().getNumPartitions())

    operation = statements.make(
        f"plan of {fragments} fragments",
        plan,
        seconds=_BAR_SECONDS,
        is_same=lambda ours, parquet: ours > 0 and parquet > 0,
    )
    return measure_operations([operation], options.rounds)


def _write_table(setup: Setup, fragments: int, versions: int) -> None:
    """Write a table whose versions add a fragment each, and the last one all others."""
    namespace = lance_bridge.connect("hive", {"uri": setup.metastore})
    request(namespace, "create_namespace", id=[_NAMESPACE], mode="exist_ok")
    declared = request(namespace, "declare_table", id=[_NAMESPACE, "many"])
    location = for_lance(declared.location)
    single = versions - 1
    for number in range(single):
        mode = "append" if number else "create"
        lance.write_dataset(_rows(number, 1), location, mode=mode)
    rest = _rows(single, fragments - single)
    lance.write_dataset(rest, location, mode="append", max_rows_per_file=_ROWS)


def _write_files(directory: Path, files: int) -> None:
    directory.mkdir()
    for number in range(files):
        pq.write_table(_rows(number, 1), directory / f"part-{number:05}.parquet")


def _rows(first: int, pieces: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first * _ROWS, (first + pieces) * _ROWS), pa.int64())})
