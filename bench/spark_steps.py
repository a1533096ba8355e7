"""What is measured in Spark: the same statements on a Lance table and on Parquet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from bench.spark_data import WORDS, query_vector, score_of
from bench.spark_turns import Step

CATALOG = "prod"
NAMESPACE = "bench"
TABLE = f"{CATALOG}.{NAMESPACE}.rows"
"""The Lance table that is read."""
PARQUET = "parquet_rows"
"""The view of Spark's own Parquet files of the same rows."""
WRITE_BAR, NEAR_BAR, SCAN_BAR, LOOKUP_BAR = 1.0, 1.2, 2.0, 0.1
_PER_RANGE = 101
_NEAREST = 10
_RECALL = 0.9


def consume(frame: DataFrame) -> None:
    """Compute all rows and columns, and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def reading(spark: SparkSession, rows: int) -> list[Step]:
    """Return the steps that read, on a table of so many rows."""

    def query(name: str, bar: float | None, text: Callable[[int], str], table: str = TABLE) -> Step:
        def on(place: str) -> Callable[[int], Any]:
            return lambda number: spark.sql(text(number).format(place)).collect()

        return Step(name, on(table), on(PARQUET), bar, _alike)

    def every(text: str) -> Callable[[int], str]:
        return lambda _: text

    def range_of(number: int) -> str:
        start = _chosen(number, rows)
        return (
            f"SELECT count(*), sum(score) FROM {{}} "
            f"WHERE id BETWEEN {start} AND {start + _PER_RANGE - 1}"
        )

    return [
        Step(
            "4 columns",
            lambda _: consume(spark.table(TABLE)),
            lambda _: consume(spark.table(PARQUET)),
            None,
        ),
        query("1 column", SCAN_BAR, every("SELECT sum(score) FROM {}")),
        query("range filter", SCAN_BAR, range_of),
        query(
            "equality filter",
            NEAR_BAR,
            lambda number: (
                "SELECT count(*), sum(score) FROM {} "
                f"WHERE word = 'word-{_chosen(number, WORDS):04}'"
            ),
        ),
        query("count", NEAR_BAR, every("SELECT count(*) FROM {}")),
        query(
            "group by",
            NEAR_BAR,
            every("SELECT word, count(*), sum(score) FROM {} GROUP BY word ORDER BY word"),
        ),
        query("vector element", None, every("SELECT sum(vector[3]) FROM {}")),
        Step(
            "limit",
            lambda _: len(spark.sql(f"SELECT * FROM {TABLE} LIMIT 100").collect()),
            lambda _: len(spark.sql(f"SELECT * FROM {PARQUET} LIMIT 100").collect()),
            None,
        ),
    ]


def lookups(spark: SparkSession, rows: int) -> list[Step]:
    """Return the steps that look for few rows, which Lance has indices for."""

    def by(name: str, column: str, value: Callable[[int], Any]) -> Step:
        def on(place: str) -> Callable[[int], Any]:
            return lambda number: spark.sql(
                f"SELECT * FROM {place} WHERE {column} = {value(number)}"
            ).collect()

        return Step(name, on(TABLE), on(PARQUET), LOOKUP_BAR)

    def score(number: int) -> str:
        return f"{float(score_of(np.array([_chosen(number, rows)]))[0])!r}D"

    return [
        by("point lookup, sorted", "id", lambda n: _chosen(n, rows)),
        by("point lookup, unsorted", "score", score),
        Step(
            "vector search",
            lambda number: nearest(spark, number),
            lambda number: _brute_force(spark, number),
            LOOKUP_BAR,
            _recalled,
            rounds=2,
        ),
    ]


def nearest(spark: SparkSession, number: int) -> list[int]:
    """Return the ids of the nearest rows by the table's vector index."""
    options = {
        "nearest.column": "vector",
        "nearest.query": str(query_vector(number)),
        "nearest.k": str(_NEAREST),
        "nearest.nprobes": "20",
        "nearest.refine": "20",
    }
    given = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
    found = spark.sql(f"SELECT id FROM {TABLE} WITH ({given}) ORDER BY _distance").collect()
    return [row.id for row in found]


def _brute_force(spark: SparkSession, number: int) -> list[int]:
    vector = query_vector(number)
    terms = " + ".join(
        f"(vector[{place}] - {value!r}D) * (vector[{place}] - {value!r}D)"
        for place, value in enumerate(vector)
    )
    text = f"SELECT id FROM {PARQUET} ORDER BY {terms} LIMIT {_NEAREST}"
    return [row.id for row in spark.sql(text).collect()]


def _chosen(number: int, below: int) -> int:
    return (number * 7_919_317 + 12_345) % below


def _recalled(ours: list[int], exact: list[int]) -> bool:
    return len(ours) == len(exact) and len({*ours} & {*exact}) >= _RECALL * len(exact)


def _alike(ours: Any, theirs: Any) -> bool:
    """Say whether rows are the same; sums of floats differ by the order of their terms."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-6 * max(abs(ours), abs(theirs), 1.0)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(_alike, ours, theirs))
    return bool(ours == theirs)
