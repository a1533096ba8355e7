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


def malformed_streams() -> dict[str, bytes]:
    """Return streams that must be refused, by their defect."""
    whole = ipc(rows(range(1000)))
    return {
        "empty bytes": b"",
        "not Arrow": b"these are not the bytes of a stream",
        "cut in the schema": whole[:40],
        "cut in the rows": whole[: len(whole) // 2],
        "length of the schema too large": b"\xff\xff\xff\xff\xff\xff\xff\x7f" + whole[8:],
    }
