"""What the tests of jobs share: tables at a place, and a session that others step into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

DIMENSION = 16


def numbered(rows: int, start: int = 0) -> pa.Table:
    """Return rows with the numbers from ``start`` on, a text, tags and a vector each."""
    numbers = range(start, start + rows)
    vectors = np.random.default_rng(start).random(rows * DIMENSION, dtype=np.float32)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"word{i % 7} thing{i}" for i in numbers],
            "tags": [[f"t{i % 3}"] for i in numbers],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        }
    )


def make(path: Path, fragments: int = 4, rows: int = 50) -> str:
    """Make a table of that many fragments of ``rows`` each, and return its place."""
    for number in range(fragments):
        mode = "append" if number else "create"
        lance.write_dataset(numbered(rows, number * rows), str(path), mode=mode)
    return str(path)


def append(place: str, rows: int, start: int) -> None:
    """Append rows as another writer does."""
    lance.write_dataset(numbered(rows, start), place, mode="append")


def rows_of(place: str) -> pa.Table:
    """Return all rows by number."""
    return lance.dataset(place).to_table().sort_by("id")


def ids(place: str, **how: Any) -> list[int]:
    """Return the numbers of the rows that a scan finds."""
    found: list[int] = lance.dataset(place).to_table(**how).column("id").to_pylist()
    return found


class Interrupted:
    """A session in which another writer acts when a job has planned its tasks."""

    def __init__(self, spark: SparkSession, act: Callable[[], object]) -> None:
        self._spark = spark
        self._act: list[Callable[[], object]] = [act]

    def range(self, *given: int) -> Any:
        while self._act:
            self._act.pop()()
        return self._spark.range(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)
