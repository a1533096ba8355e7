"""The rows with which operations inside a table are measured, in the form that the API has."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

DIMENSIONS = 32
_WORDS = ("lamp", "chair", "shelf", "table", "stool")


@lru_cache(maxsize=16)
def stream(rows: int, start: int = 0) -> bytes:
    """Return so many rows, their ids from ``start`` on, as an Arrow IPC stream."""
    table = made(rows, start)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read(data: bytes) -> pa.RecordBatchReader:
    """Return a reader of an Arrow IPC stream."""
    return pa.ipc.open_stream(data)


def made(rows: int, start: int = 0) -> pa.Table:
    """Return rows with an id, a price, a text of three words and a vector."""
    ids = range(start, start + rows)
    vectors = [float((7 * n + 3 * d) % 101) for n in ids for d in range(DIMENSIONS)]
    titles = [f"{_WORDS[n % 5]} {_WORDS[n % 3]} number{n}" for n in ids]
    values = pa.array(vectors, pa.float32())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "price": pa.array([n % 97 / 7 for n in ids], pa.float64()),
            "title": titles,
            "vector": pa.FixedSizeListArray.from_arrays(values, DIMENSIONS),
        }
    )


def vector(number: int) -> list[float]:
    """Return the vector of the row with that id."""
    found: list[float] = made(1, number)["vector"][0].as_py()
    return found
