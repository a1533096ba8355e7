"""Heavy jobs on one core and on two: building indices, and compacting small files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from bench.spark_data import DIMENSION
from bench.spark_settings import Place, session
from bench.spark_steps import CATALOG, NAMESPACE
from bench.spark_turns import timed
from lance_bridge.spark.jobs import compact, create_index

_FRAGMENTS = 64
_TASKS = 8


def measure(place: Place, rows: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Do every job on one core and on two, each time on a table written anew."""
    seconds: dict[str, list[float]] = {}
    wrong: dict[str, int] = {}
    for cores in (1, 2):
        tell(f"jobs on {cores} of the cores …")
        with session(place, cores) as spark:
            table = f"{CATALOG}.{NAMESPACE}.small_files_{cores}"
            _write_small_files(spark, place, table, rows)
            for name, do in _jobs(spark, table, rows).items():
                seconds.setdefault(name, []).append(timed(do))
                counted = spark.read.format("lance").load(table).count()
                wrong[name] = wrong.get(name, 0) + (counted != rows)
    return [
        {
            "job": name,
            "one_core_s": one,
            "two_cores_s": two,
            "speed_up": round(one / two, 2),
            "wrong": wrong[name],
        }
        for name, (one, two) in seconds.items()
    ]


def _jobs(spark: SparkSession, table: str, rows: int) -> dict[str, Callable[[], Any]]:
    each = max(1, rows // _TASKS)
    return {
        "compaction": lambda: compact(spark, table, target_rows_per_fragment=each),
        "BTREE index": lambda: create_index(spark, table, "id", "BTREE", rows_per_task=each),
        "full-text index": lambda: create_index(
            spark, table, "word", "INVERTED", rows_per_task=each
        ),
        "IVF_PQ index": lambda: create_index(spark, table, "vector", "IVF_PQ", rows_per_task=each),
    }


def _write_small_files(spark: SparkSession, place: Place, table: str, rows: int) -> None:
    options = {
        "vector.vector": str(DIMENSION),
        "max_rows_per_file": str(max(1, rows // _FRAGMENTS)),
    }
    frame = spark.read.parquet(place.source)
    frame.write.format("lance").options(**options).mode("append").save(table)
