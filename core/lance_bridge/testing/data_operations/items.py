"""The rows of the cases' tables, and their expected values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pyarrow as pa

COLOURS = ("red", "green", "blue")
KINDS = ("apple", "pear", "plum", "fig", "lime")
DIMENSION = 8
IDS = range(40)
LATER_IDS = range(40, 50)
TEXT_COLUMNS = ("text", "word")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("word", pa.string()),
        pa.field("text", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("inner", pa.struct([pa.field("x", pa.int64())])),
        pa.field("labels", pa.list_(pa.string())),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def text_of(number: int) -> str:
    """Return the ``text`` of a row."""
    return f"{COLOURS[number % 3]} {KINDS[number % 5]}"


def word_of(number: int) -> str:
    """Return the ``word`` of a row."""
    return KINDS[number % 4]


def vector_of(number: int) -> list[float]:
    """Return the ``vector`` of a row; its numbers are exact in 32 bits."""
    return [number / 4, *(((number * 37 + axis * 11) % 101) / 128 for axis in range(1, DIMENSION))]


def items(ids: Iterable[int]) -> pa.Table:
    """Return rows with these ids; ``n`` is the id, but null if the id ends with 9."""
    rows = [
        {
            "id": number,
            "word": word_of(number),
            "text": text_of(number),
            "n": None if number % 10 == 9 else number,
            "inner": {"x": number * 2},
            "labels": [COLOURS[number % 3], KINDS[number % 5]],
            "vector": vector_of(number),
        }
        for number in ids
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def nearest(query: Sequence[float], ids: Iterable[int], k: int, metric: str = "l2") -> list[int]:
    """Return the ids of the nearest vectors, nearest first, as an exact search finds them."""
    return sorted(ids, key=lambda number: distance(query, vector_of(number), metric))[:k]


def distance(one: Sequence[float], other: Sequence[float], metric: str = "l2") -> float:
    """Return a distance as Lance defines it."""
    product = sum(a * b for a, b in zip(one, other, strict=True))
    if metric == "l2":
        return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
    return 1 - (product if metric == "dot" else product / (_norm(one) * _norm(other)))


def _norm(vector: Sequence[float]) -> float:
    return math.sqrt(sum(each * each for each in vector))
