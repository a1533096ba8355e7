"""Arrow IPC streams that come with a request: read whole and checked before anything is changed."""

from __future__ import annotations

import lance
import pyarrow as pa

from ..errors import invalid


def read_stream(data: bytes) -> pa.Table:
    """Return the table in an Arrow IPC stream; its buffers are views of ``data``.

    Raises:
        InvalidInputError: (13) not an Arrow IPC stream, cut short, or of a schema that Lance
            cannot store.
    """
    if not data:
        raise invalid("The request has no data: send an Arrow IPC stream; a schema alone is enough")
    try:
        with pa.ipc.open_stream(data) as stream:
            table = stream.read_all()
        table.validate()
    except (pa.ArrowException, OSError, EOFError) as error:
        raise invalid(f"The data is not a whole Arrow IPC stream: {_brief(error)}") from error
    _check_schema(table.schema)
    return table


def _check_schema(schema: pa.Schema) -> None:
    if not schema.names:
        raise invalid("The Arrow IPC stream has no columns")
    try:
        lance.write_dataset(schema.empty_table(), "memory://")
    except (OSError, ValueError, pa.ArrowException, NotImplementedError) as error:
        raise invalid(f"Lance cannot store this schema: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]
