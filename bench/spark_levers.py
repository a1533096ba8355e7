"""What could make reading faster, each alone: the same two statements in sessions that differ."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from bench.spark_settings import Place, session
from bench.spark_steps import TABLE, consume
from bench.spark_turns import timed


@dataclass(frozen=True)
class Lever:
    """Options of the reads, or settings of the session."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


LEVERS = (
    Lever("as it is"),
    Lever("batches of 2048 rows", {"batch_size": "2048"}),
    Lever("batches of 32768 rows", {"batch_size": "32768"}),
    Lever("batches of 131072 rows", {"batch_size": "131072"}),
    Lever("tasks of 32 MB", {"bytes_per_task": str(32 << 20)}),
    Lever("tasks of 512 MB", {"bytes_per_task": str(512 << 20)}),
    Lever("pre-imported workers", settings={"spark.python.daemon.module": "bench.spark_daemon"}),
    Lever("workers not reused", settings={"spark.python.worker.reuse": "false"}),
)
_STATEMENTS = ("first statement", "1 column", "vectors", "4 columns")


def measure(place: Place, rounds: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Time the statements under every lever; options take turns within a session."""
    found: dict[str, dict[str, list[float]]] = {}
    plain = [lever for lever in LEVERS if not lever.settings]
    with session(place) as spark:
        for number in range(rounds):
            tell(f"levers, round {number + 1} of {rounds} …")
            for lever in plain:
                _time(spark, lever, found.setdefault(lever.name, {}))
    for lever in LEVERS:
        if lever.settings:
            with session(place, more=lever.settings) as spark:
                for _ in range(rounds):
                    _time(spark, lever, found.setdefault(lever.name, {}))
    base = found[plain[0].name]
    return [_row(name, seconds, base) for name, seconds in found.items()]


def _time(spark: SparkSession, lever: Lever, seconds: dict[str, list[float]]) -> None:
    columns: dict[str, list[str] | None] = {
        "1 column": ["score"],
        "vectors": ["vector"],
        "4 columns": None,
    }
    if "first statement" not in seconds:
        first = timed(lambda: consume(_read(spark, lever, ["score"]).limit(1)))
        seconds["first statement"] = [first]
    for name, wanted in columns.items():
        frame = _read(spark, lever, wanted)
        seconds.setdefault(name, []).append(timed(partial(consume, frame)))


def _read(spark: SparkSession, lever: Lever, columns: list[str] | None) -> Any:
    options = dict(lever.options)
    if columns:
        options["columns"] = ",".join(columns)
    return spark.read.format("lance").options(**options).load(TABLE)


def _row(
    name: str, seconds: Mapping[str, list[float]], base: Mapping[str, list[float]]
) -> dict[str, Any]:
    row: dict[str, Any] = {"lever": name}
    for statement in _STATEMENTS:
        taken = statistics.median(seconds[statement])
        row[statement] = {
            "seconds": taken,
            "times_of_plain": round(taken / statistics.median(base[statement]), 3),
        }
    return row
