"""Limits of Arrow IPC streams, checked in the flatbuffers of messages before pyarrow reads them.

pyarrow allocates the size that a stream states for a batch. A few bytes can state gigabytes, and
compressed zeros can expand to them. The fields of a schema may refer to one field again and again,
and pyarrow makes a copy for each. So sizes and fields are counted first, while the stream arrives.

Source: Arrow's columnar format, "Encapsulated message format"; Message.fbs, Schema.fbs.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass

import pyarrow as pa

from lance_bridge.errors import invalid

_METADATA_BYTES = 16 << 20
"""The largest metadata of a message, such as a schema."""
_MAX_BUFFERS = 100_000
"""The largest number of buffers of a compressed batch: each is checked separately."""
MAX_FIELDS = 10_000
"""How many columns a schema may have, with the fields inside them."""
MAX_DEPTH = 64
"""How deep these may be nested."""
MAX_ROW_BYTES = 16 << 20
"""The size of the values of fixed size in a row: each null takes that space too."""
_CONTINUATION = 0xFFFFFFFF
_SCHEMA_FIELDS, _SCHEMA_METADATA = 1, 2
_FIELD_NAME, _FIELD_TYPE, _FIELD_CHILDREN, _FIELD_METADATA = 0, 3, 5, 6
_WITH_TEXT = (10, 14)
"""The numbers of the types timestamp and union."""
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_PREFIX = 8
"""Bytes at the start of a compressed buffer that state its uncompressed size."""


@dataclass(frozen=True)
class _Skip:
    """A number of bytes to skip."""

    count: int


_Frames = Generator["int | _Skip", bytes, None]
"""Yields how many bytes it needs or skips next, and is sent the bytes that it needs."""


class BatchLimits:
    """Checks a stream message by message. Feed each part to it before the part is used."""

    def __init__(self, batch_bytes: int) -> None:
        """Args: batch_bytes: The size of the largest batch, without compression."""
        self._batch_bytes = batch_bytes
        self._frames = self._read_messages()
        self._wanted: int | _Skip | None = next(self._frames)
        self._rest = bytearray()

    def feed(self, part: bytes) -> None:
        """Check a part of the stream.

        Raises:
            InvalidInputError: (13) a batch is too large, or this is not a stream of Arrow.
        """
        view = memoryview(part)
        while view and self._wanted is not None:
            if isinstance(self._wanted, _Skip):
                count = min(self._wanted.count, len(view))
                view, left = view[count:], self._wanted.count - count
                self._wanted = _Skip(left) if left else self._next(b"")
                continue
            count = self._wanted - len(self._rest)
            self._rest += view[:count]
            view = view[count:]
            if len(self._rest) == self._wanted:
                taken, self._rest = bytes(self._rest), bytearray()
                self._wanted = self._next(taken)

    def _next(self, taken: bytes) -> int | _Skip | None:
        try:
            return self._frames.send(taken)
        except StopIteration:
            return None
        except (struct.error, IndexError) as error:
            raise invalid("The body is not a valid Arrow IPC stream") from error

    def _read_messages(self) -> _Frames:
        while True:
            (size,) = struct.unpack("<I", (yield 4))
            if size == _CONTINUATION:
                (size,) = struct.unpack("<I", (yield 4))
            if size == 0:
                return  # the end of the stream
            if size > _METADATA_BYTES:
                raise invalid(
                    f"A message of the Arrow stream has {size} bytes of metadata; the limit is "
                    f"{_METADATA_BYTES}"
                )
            message = _Message((yield size))
            if message.kind == _SCHEMA:
                message.schema()
            yield from self._check_body(message)

    def _check_body(self, message: _Message) -> _Frames:
        self._check_size(message.body_bytes)
        position = 0
        total = 0
        for offset, times in sorted(Counter(message.compressed_buffers()).items()):
            if not position <= offset <= message.body_bytes - _PREFIX:
                raise invalid("The body is not a valid Arrow IPC stream: a buffer is misplaced")
            if offset > position:
                yield _Skip(offset - position)
            (size,) = struct.unpack("<q", (yield _PREFIX))
            position = offset + _PREFIX
            total += max(size, 0) * times
            self._check_size(total)
        if message.body_bytes > position:
            yield _Skip(message.body_bytes - position)

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self._batch_bytes:
            raise invalid(
                f"A batch has {size} bytes without compression; the limit is {self._batch_bytes}: "
                "send the rows in smaller batches"
            )


def read_schema(body: bytes) -> pa.Schema:
    """Return the schema at the start of a stream.

    Raises:
        InvalidInputError: (13) as `check_schema`, or it is malformed.
    """
    try:
        start, (size,) = 4, struct.unpack_from("<I", body)
        if size == _CONTINUATION:
            start, (size,) = 8, struct.unpack_from("<I", body, 4)
        message = _Message(body[start : start + size])
        if message.kind == _SCHEMA:
            return message.schema()
    except (struct.error, IndexError) as error:
        raise invalid("The body is not an Arrow schema") from error
    raise invalid("The body is not an Arrow schema")


def _check_fields(schema: _Table) -> None:
    """Check the number and the depth of the fields of a schema, and the size of their texts.

    Raises:
        InvalidInputError: (13) pyarrow would make too many fields, or copies of too large texts.
    """
    count = 0
    texts = _text_bytes(schema, _SCHEMA_METADATA)
    pending = [(field, 1) for field in schema.tables(_SCHEMA_FIELDS, MAX_FIELDS)]
    while pending:
        field, depth = pending.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise invalid(f"The schema is nested more than {MAX_DEPTH} deep")
        left = MAX_FIELDS - count - len(pending)
        pending += [(each, depth + 1) for each in field.tables(_FIELD_CHILDREN, left)]
        dtype = field.table(_FIELD_TYPE)  # the zone of a timestamp, or the ids of a union
        texts += field.length(_FIELD_NAME) + _text_bytes(field, _FIELD_METADATA)
        if dtype is not None and field.number(_FIELD_TYPE - 1, "<B") in _WITH_TEXT:
            texts += 4 * dtype.length(1)
        if texts > _METADATA_BYTES:
            raise invalid(f"The schema has more than {_METADATA_BYTES} bytes of names and metadata")


def _text_bytes(table: _Table, metadata: int) -> int:
    """Return the size of the metadata of a schema or field."""
    return sum(
        each.length(0) + each.length(1) + _PREFIX for each in table.tables(metadata, MAX_FIELDS)
    )


def check_schema(schema: pa.Schema) -> None:
    """Check what a row of a schema takes.

    Raises:
        InvalidInputError: (13) it has too many columns, or they are nested too deep, or its values
            of fixed size are too large.
    """
    count = size = 0
    pending = [(field.type, 1, 1) for field in schema]
    while pending:
        dtype, depth, values = pending.pop()
        count += 1
        if count + len(pending) > MAX_FIELDS:
            raise invalid(f"The schema has more than {MAX_FIELDS} columns and fields in them")
        if depth > MAX_DEPTH:
            raise invalid(f"The schema is nested more than {MAX_DEPTH} deep")
        if pa.types.is_fixed_size_list(dtype):
            pending.append((dtype.value_type, depth + 1, values * dtype.list_size))
        elif dtype.num_fields and not pa.types.is_dictionary(dtype):
            inside = 1 if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) else values
            pending += [(dtype.field(i).type, depth + 1, inside) for i in range(dtype.num_fields)]
        else:
            size += values * _width(dtype)
    if size > MAX_ROW_BYTES:
        raise invalid(
            f"A row has {size} bytes of values of fixed size, such as lists; the limit is "
            f"{MAX_ROW_BYTES}"
        )


def _width(dtype: pa.DataType) -> int:
    """Return the bytes of a value of fixed size; a few for any other."""
    try:
        return int(dtype.byte_width)
    except ValueError:
        return _PREFIX


class _Message:
    """The sizes in the metadata of a message."""

    def __init__(self, data: bytes) -> None:
        message = _Table(data, struct.unpack_from("<I", data)[0])
        self._data = data
        self.kind = message.number(1, "<B")
        self._header = message.table(2)
        self.body_bytes = message.number(3, "<q")

    def schema(self) -> pa.Schema:
        """Return the schema, if it is the message of one.

        Raises:
            InvalidInputError: (13) as `check_schema`, or it is malformed.
        """
        if self._header is not None:
            _check_fields(self._header)
        prefix = struct.pack("<II", _CONTINUATION, len(self._data))
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(prefix + self._data))
        except (pa.ArrowException, OSError) as error:
            raise invalid(f"The body is not a valid Arrow IPC stream: {error}") from error
        check_schema(schema)
        return schema

    def compressed_buffers(self) -> list[int]:
        """Return the offsets, in the body, of buffers that may be compressed."""
        batch = self._header
        if self.kind == _DICTIONARY_BATCH and batch is not None:
            batch = batch.table(1)
        if self.kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or batch is None:
            return []
        if batch.table(3) is None:
            return []
        return [offset for offset, size in batch.pairs(2) if size > 0]


class _Table:
    """A table of a flatbuffer. Fields that are missing are 0, None or empty.

    Raises struct.error for a position outside of the data.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        self._vtable = position - self._read(position, "<i")
        self._size = self._read(self._vtable, "<H")

    def number(self, field: int, form: str) -> int:
        position = self._field_position(field)
        return 0 if position is None else self._read(position, form)

    def table(self, field: int) -> _Table | None:
        position = self._field_position(field)
        return (
            None if position is None else _Table(self._data, position + self._read(position, "<I"))
        )

    def tables(self, field: int, most: int) -> list[_Table]:
        """Return a vector of tables.

        Raises:
            InvalidInputError: (13) it is longer than the limit.
        """
        count = self.length(field)
        if count > most:
            raise invalid(f"The schema has more than {MAX_FIELDS} columns and fields in them")
        position = self._field_position(field)
        if position is None:
            return []
        start = position + self._read(position, "<I") + 4
        places = range(start, start + 4 * count, 4)
        return [_Table(self._data, each + self._read(each, "<I")) for each in places]

    def length(self, field: int) -> int:
        """Return the length of a vector."""
        position = self._field_position(field)
        return 0 if position is None else self._read(position + self._read(position, "<I"), "<I")

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two integers.

        Raises:
            InvalidInputError: (13) it is too long.
        """
        position = self._field_position(field)
        if position is None:
            return []
        start = position + self._read(position, "<I")
        count = self._read(start, "<I")
        if count > _MAX_BUFFERS:
            raise invalid(
                f"A batch of the Arrow stream has {count} buffers; the limit is {_MAX_BUFFERS}"
            )
        data = self._data[start + 4 : start + 4 + 16 * count]
        if len(data) < 16 * count:
            raise struct.error
        return list(struct.iter_unpack("<qq", data))

    def _field_position(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        offset = self._read(self._vtable + entry, "<H")
        return self._position + offset if offset else None

    def _read(self, position: int, form: str) -> int:
        if position < 0:
            raise struct.error  # Python would count a negative position from the end
        found: int = struct.unpack_from(form, self._data, position)[0]
        return found
