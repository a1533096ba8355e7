"""Arrow IPC streams that come with a request: read whole and checked before anything is changed."""

from __future__ import annotations

import lance
import pyarrow as pa

from ..errors import invalid
from .dataset import brief


def read_stream(data: bytes) -> pa.Table:
    """Return the table in an Arrow IPC stream; its buffers are views of ``data``.

    Raises:
        InvalidInputError: (13) not an Arrow IPC stream, cut short, followed by
            something else, or of a schema that Lance cannot store.
    """
    if not data:
        raise invalid("The request has no data: send an Arrow IPC stream; a schema alone is enough")
    try:
        source = pa.BufferReader(data)
        with pa.ipc.open_stream(source) as stream:
            table = stream.read_all()
        # Rust trusts what Arrow hands over: wrong offsets or text must not get there.
        table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise invalid(f"The data is not a whole Arrow IPC stream: {brief(error)}") from error
    rest = len(data) - source.tell()
    if rest:
        raise invalid(f"The data goes on after the end of the Arrow IPC stream, by {rest} bytes")
    _check_schema(table.schema)
    return table


def _check_schema(schema: pa.Schema) -> None:
    try:
        for i in range(len(schema)):
            _check_text(schema.field(i))
    except UnicodeDecodeError as error:
        raise invalid(f"The Arrow IPC stream has a name that is not UTF-8: {error}") from error
    if not schema.names:
        raise invalid("The Arrow IPC stream has no columns")
    try:
        lance.write_dataset(schema.empty_table(), "memory://")
    except (OSError, ValueError, pa.ArrowException, NotImplementedError) as error:
        raise invalid(f"Lance cannot store this schema: {brief(error)}") from error


def _check_text(field: pa.Field) -> None:
    """Raise UnicodeDecodeError where a name is no UTF-8: Rust would panic, past all handlers."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    texts = [field.name, getattr(kind, "tz", None) or ""]  # Arrow decodes them when asked
    texts += [b" ".join(pair).decode() for pair in (field.metadata or {}).items()]
    if any("\0" in text for text in texts):
        raise invalid(f"The Arrow IPC stream has a NUL in the name or metadata of {field.name!r}")
    for i in range(kind.num_fields):
        _check_text(kind.field(i))
