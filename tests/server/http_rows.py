"""Rows as they are sent."""

from __future__ import annotations

import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"


def one_row() -> bytes:
    """Return one row as an Arrow IPC stream."""
    table = pa.table({"id": pa.array([1], pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
