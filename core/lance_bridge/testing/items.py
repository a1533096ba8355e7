"""The rows of the cases' tables."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

COLOURS = ("red", "green", "blue")
KINDS = ("apple", "pear", "plum", "fig", "lime")
DIMENSION = 8
IDS = range(40)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("word", pa.string()),
        pa.field("text", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("inner", pa.struct([pa.field("x", pa.int64())])),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def vector_of(number: int) -> list[float]:
    """Return the ``vector`` of a row; its numbers are exact in 32 bits."""
    return [number / 4, *(((number * 37 + axis * 11) % 101) / 128 for axis in range(1, DIMENSION))]


def items(ids: Iterable[int]) -> pa.Table:
    """Return rows with these ids; ``n`` is the id, but null if the id ends with 9."""
    rows = [
        {
            "id": number,
            "word": KINDS[number % 4],
            "text": f"{COLOURS[number % 3]} {KINDS[number % 5]}",
            "n": None if number % 10 == 9 else number,
            "inner": {"x": number * 2},
            "vector": vector_of(number),
        }
        for number in ids
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
