"""What the tests over the catalog in memory share: names, data, and the two usual requests."""

from __future__ import annotations

import io
from typing import Any

import lance_namespace as api
import pyarrow as pa

from .memory_catalog import MemoryNamespace

DATASET = ["eu", "shop", "sales"]
"""The namespace that the fixture ``server`` holds."""
TABLE = [*DATASET, "Orders"]
BUCKET = "tables"
"""What the fixture ``moto`` holds."""


def at(name: str) -> tuple[str, ...]:
    """Return the path of a table in ``DATASET``."""
    return (*DATASET, name)


def stream(rows: int = 3) -> bytes:
    """Return an Arrow IPC stream of one column, ``a``."""
    table = pa.table({"a": list(range(rows))})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def create(
    ns: MemoryNamespace, table: list[str], rows: int = 3, **more: Any
) -> api.CreateTableResponse:
    """Create a table with data."""
    return ns.create_table(api.CreateTableRequest(id=table, **more), stream(rows))


def count_rows(ns: MemoryNamespace, table: list[str]) -> int | None:
    """Return the number of rows of a table."""
    return ns.count_table_rows(api.CountTableRowsRequest(id=table)).count
