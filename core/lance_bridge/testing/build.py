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
