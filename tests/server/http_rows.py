"""Rows as they are sent."""

from __future__ import annotations

import pyarrow as pa

from lance_bridge.testing.build import ipc

ARROW = "application/vnd.apache.arrow.stream"


def one_row() -> bytes:
    """Return one row as an Arrow IPC stream."""
    return ipc(pa.table({"id": pa.array([1], pa.int64())}))
