"""The rows that Spark's tables are measured with: an id, a float, a word of a thousand, a vector.

Ids are in order, as in a table that a job has written once; scores are not, and are all different.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIMENSION = 16
WORDS = 1000
_FILES = 8
_SEED = 20


def write_source(directory: Path, rows: int) -> int:
    """Write the rows as Parquet files for Spark to read; return their bytes as Arrow arrays."""
    directory.mkdir(parents=True)
    size = 0
    bounds = [rows * number // _FILES for number in range(_FILES + 1)]
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        table = rows_between(start, stop)
        size += table.nbytes
        pq.write_table(table, directory / f"part-{number:03}.parquet", compression="snappy")
    return size


def rows_between(start: int, stop: int) -> pa.Table:
    """Return the rows with ids from ``start`` to before ``stop``."""
    ids = np.arange(start, stop, dtype=np.int64)
    chance = np.random.default_rng(_SEED + start)
    words = pa.array([f"word-{number:04}" for number in range(WORDS)])
    vectors = chance.random((len(ids) * DIMENSION,), dtype=np.float32)
    offsets = np.arange(0, len(vectors) + 1, DIMENSION, dtype=np.int32)
    return pa.table(
        {
            "id": ids,
            "score": score_of(ids),
            "word": words.take(pa.array(chance.integers(0, WORDS, len(ids)))),
            "vector": pa.ListArray.from_arrays(pa.array(offsets), pa.array(vectors)),
        }
    )


def score_of(ids: np.ndarray) -> np.ndarray:
    """Return the scores of ids: a permutation of whole numbers and a half, all exact."""
    places = (ids.astype(np.uint64) * np.uint64(2_654_435_761)) % np.uint64(2**32)
    scores: np.ndarray = places.astype(np.float64) + 0.5
    return scores


def query_vector(number: int) -> list[float]:
    """Return the vector that a round looks for."""
    chance = np.random.default_rng(number)
    return [float(each) for each in chance.random(DIMENSION, dtype=np.float32)]
