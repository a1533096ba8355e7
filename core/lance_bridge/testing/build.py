"""Small builders: unique names, tables with known rows, Arrow IPC streams."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable

import pyarrow as pa

RUN = uuid.uuid4().hex[:8]
PREFIX = f"lbkit_{RUN}"
"""Prefix of every namespace that this run makes."""

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])

_counter = itertools.count()


def unique_name() -> str:
    """Return a name in lower case letters, digits and underscores that no other run uses."""
    return f"{PREFIX}_{next(_counter)}"


def rows(ids: Iterable[int]) -> pa.Table:
    """Return a table of :data:`SCHEMA` with these ids."""
    numbers = list(ids)
    words = [f"word {number}" for number in numbers]
    return pa.table({"id": numbers, "word": words}, schema=SCHEMA)


def ipc(table: pa.Table) -> bytes:
    """Return the Arrow IPC stream of a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def ipc_without_batches() -> bytes:
    """Return a valid stream with a schema and no batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA):
        pass
    return bytes(sink.getvalue())


def malformed_streams() -> list[bytes]:
    """Return streams that must be refused: one that is no Arrow data, and one that is cut."""
    whole = ipc(rows(range(1000)))
    return [b"these are not the bytes of a stream", whole[: len(whole) // 2]]


# -- rows of the cases' tables ---------------------------------------------------------------------


COLOURS = ("red", "green", "blue")
KINDS = ("apple", "pear", "plum", "fig", "lime")
DIMENSION = 8
IDS = range(40)

ITEM_SCHEMA = pa.schema(
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
    return pa.Table.from_pylist(rows, schema=ITEM_SCHEMA)
