"""Rows by the gigabyte, made as they are asked for, and the ways to hand them in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

BATCH_ROWS = 8192
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("title", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 128)),
    ]
)
_TITLE = "The quick brown fox jumps over the lazy dog, again and again, until it is late"
_ROW_BYTES = 8 + 4 + len(_TITLE) + 9 + 512
SOURCES = ("bytes", "file", "iterator")


def batch_count(megabytes: int) -> int:
    """Return how many batches have about so many MB (10^6 bytes) together; at least two."""
    return max(2, megabytes * 1_000_000 // (_ROW_BYTES * BATCH_ROWS))


def batches(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of those numbers; none is kept."""
    for number in numbers:
        ids = np.arange(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
        values = np.random.default_rng(number).random(BATCH_ROWS * 128, dtype=np.float32)
        titles = pa.array([f"{_TITLE}{each:09}" for each in ids.tolist()])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), 128)
        yield pa.RecordBatch.from_arrays([pa.array(ids), titles, vectors], schema=SCHEMA)


def write(path: Path, numbers: Iterable[int]) -> None:
    """Write the batches of those numbers to a file, as an Arrow IPC stream."""
    with path.open("wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
        for batch in batches(numbers):
            writer.write_batch(batch)


@contextmanager
def handed_in(source: str, path: Path, count: int) -> Iterator[Any]:
    """Yield the rows of a file in one of the `SOURCES`; the iterator makes the same anew."""
    if source == "iterator":
        yield batches(range(count))
        return
    with path.open("rb") as file:
        yield file if source == "file" else file.read()


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Return as pylance takes it what `handed_in` yields."""
    if isinstance(data, bytes) or hasattr(data, "read"):
        return pa.ipc.open_stream(data)
    return pa.RecordBatchReader.from_batches(SCHEMA, data)
