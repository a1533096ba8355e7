"""Reads the rows of a query for a page, limited in number, bytes and time."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_bridge.arrow_values import to_values

from .time_travel import State
from .ui_request import UiRequest

ROW_ID = "_rowid"
"""The column of row identifiers, in filters and results."""

MAX_BYTES = 8 << 20
"""The largest size of a page's rows in memory."""
_SECONDS = 15.0


@dataclass(frozen=True)
class Sample:
    """Rows that were read."""

    table: pa.Table
    message: str = ""
    """Why rows are missing."""


def read_sample(result: Any, max_bytes: int = MAX_BYTES) -> Sample:
    """Return the rows of a query's result, or fewer if they are too large or take too long.

    Args:
        result: A reader, the response of another library's namespace, or its bytes.
        max_bytes: The size of the rows in memory.

    Raises:
        LanceNamespaceError: The reader's own.
    """
    deadline = time.monotonic() + _SECONDS
    reader = as_reader(result)
    kept: list[pa.RecordBatch] = []
    size, message = 0, ""
    for batch in reader:
        room = max_bytes - size
        if batch.nbytes > room:
            batch = batch.slice(0, _rows_that_fit(batch, room))  # noqa: PLW2901
            message = f"The rows exceed {max_bytes >> 20} MiB: only the first are shown"
        kept.append(batch)
        size += batch.nbytes
        if message or time.monotonic() > deadline:
            message = message or f"Only the rows read within {_SECONDS:.0f} seconds are shown"
            break
    return Sample(pa.Table.from_batches(kept, reader.schema), message)


def _rows_that_fit(batch: pa.RecordBatch, room: int) -> int:
    """Return approximately how many rows of a batch fit in ``room`` bytes; at least one."""
    return max(1, int(batch.num_rows * room / max(batch.nbytes, 1)))


async def read_value(ui: UiRequest, state: State, column: str, row: str) -> Any:
    """Return a value of the page's table, or None if the row does not exist.

    Args:
        row: The identifier of the row, in digits.

    Raises:
        LanceNamespaceError: The query's own.
    """
    fields = {
        "id": ui.names,
        "k": 1,
        "vector": {},
        "columns": {"column_names": [column]},
        "filter": f"{ROW_ID} = {row}",
        **state.fields,
    }
    return await ui.call("query_table", fields, _first_value)


def _first_value(result: Any) -> Any:
    table = as_reader(result).read_all()
    return to_values(table.column(0), table.schema.field(0))[0] if table.num_rows else None


def as_reader(result: Any) -> pa.RecordBatchReader:
    """Return a query's result as a reader."""
    if isinstance(result, pa.RecordBatchReader):
        return result
    data = result if isinstance(result, bytes) else result.data
    file = pa.ipc.open_file(io.BytesIO(data))
    batches = (file.get_batch(i) for i in range(file.num_record_batches))
    return pa.RecordBatchReader.from_batches(file.schema, batches)
