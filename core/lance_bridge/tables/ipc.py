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
        _check_nulls(table)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise invalid(f"The data is not a whole Arrow IPC stream: {brief(error)}") from error
    _check_end(data, source.tell())
    _check_schema(table.schema)
    return table


def _check_end(data: bytes, end: int) -> None:
    """Require the mark at the end, and nothing after it.

    Arrow allows to leave it out. Then a stream that was cut between two batches looks whole.
    """
    source = pa.BufferReader(data)
    messages = pa.ipc.MessageReader.open_stream(source)
    last = 0
    for _ in messages:
        last = source.tell()
    if end == last:
        raise invalid("The Arrow IPC stream is cut short: it has no end-of-stream mark")
    if end < len(data):
        raise invalid(
            f"The data goes on after the end of the Arrow IPC stream, by {len(data) - end} bytes"
        )


def _check_nulls(table: pa.Table) -> None:
    for name, column in zip(table.schema, table.columns, strict=True):
        for chunk in column.chunks:
            if _has_forbidden_null(chunk, name):
                raise invalid(f"Column {name.name!r} must not be null, and is in some rows")


def _has_forbidden_null(array: pa.Array, field: pa.Field) -> bool:
    """Return whether a value is null, here or nested, that the schema does not allow to be."""
    if array.null_count:
        if not field.nullable:
            return True
        array = array.drop_null()
    kind = field.type
    if pa.types.is_struct(kind):
        inside = array.flatten()
    elif (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        inside = [array.flatten()]
    else:
        return False
    return any(_has_forbidden_null(part, kind.field(i)) for i, part in enumerate(inside))


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
