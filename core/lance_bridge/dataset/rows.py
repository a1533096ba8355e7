"""The rows of a request, in any form that a caller may pass, read without holding them in memory.

Lance writes fragments first and makes them visible in one step, so rows can be checked while they
are written: bad rows end the write before that step.

Arrow allows a stream without an end-of-stream mark. A stream that was truncated between two batches
would then look complete, so the mark is required here, and nothing may follow it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as arrow
from lance_namespace.errors import ServiceUnavailableError, TableSchemaValidationError

from ..errors import ErrorCapturingReader, first_line, invalid, marking_callers_own
from .arrow_compat import align, align_batch, format_field, require_storable

_PIECE = 16 * 2**20
"""Bytes read from a file at once. Some files allocate the size requested, which may be wrong."""

_Pass = tuple[pa.Schema, Iterator[pa.RecordBatch]]


class BinaryFile(Protocol):
    """A source of bytes: a file opened in binary mode, a response, a pipe."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most ``size`` bytes, and no bytes at the end."""


Data = bytes | bytearray | memoryview | BinaryFile | Iterable[Any]
"""An Arrow IPC stream as bytes, in any other buffer, or in a file opened as binary; or batches, as
a ``pa.Table``, ``pa.RecordBatch``, ``pa.RecordBatchReader``, anything else that has
``__arrow_c_stream__``, or an iterable of ``pa.RecordBatch``."""


class RowSource(Enum):
    """Where rows come from, which decides how often they can be read."""

    MEMORY = "memory"
    FILE = "a seekable file"
    ONCE = "a source that is read once"


class Rows:
    """The rows of a request, read in batches and checked on the way."""

    def __init__(self, begin: Callable[[], _Pass], source: RowSource) -> None:
        """Start reading: ``begin`` returns the schema and the batches of a new pass.

        Rows in memory are checked here, other rows when they are read.

        Raises:
            InvalidInputError: (13)
        """
        self._begin = begin
        self._source = source
        self._trusted = False
        self._is_started = False
        self.count = 0
        """Rows read in this pass."""
        self.deadline: float | None = None
        """The time by which all rows must be read, in seconds of ``time.monotonic``."""
        self._reader = ErrorCapturingReader(())
        self.schema, self._batches = begin()
        _check_names(self.schema)
        check_types(self.schema)
        if source is RowSource.MEMORY:
            self._check_all()
            self._trusted = True

    @classmethod
    def from_data(cls, data: Data) -> Rows:
        """Return the rows that a caller passed.

        Raises:
            InvalidInputError: (13) the data is of a type without rows, or, as far as it is read
                here, malformed.
        """
        with marking_callers_own():
            begin, source = _open_data(data)
        return cls(lambda: _begin_marked(begin), source)

    @property
    def is_repeatable(self) -> bool:
        """Whether the rows can be read more than once."""
        return self._source is not RowSource.ONCE

    @property
    def is_readable(self) -> bool:
        """Whether another pass can start now."""
        return self.is_repeatable or not self._is_started

    def check_ahead(self) -> None:
        """Check all rows of a seekable file, so that bad ones are found before any change.

        Raises InvalidInput (13).
        """
        if self._source is RowSource.FILE:
            self._check_all()

    def reader(
        self, into: pa.Schema | None = None, check: Callable[[pa.RecordBatch], None] | None = None
    ) -> Any:
        """Return a reader (``pa.RecordBatchReader``) of all rows, for one pass; see `is_readable`.

        Args:
            into: The schema of the table to write to, whose non-nullable fields are checked.
            check: Called with each batch; its error ends the pass.
        """
        if self._is_started:
            self._rewind()
        self._is_started = True
        strict = into if into is not None and any(map(_is_strict, into)) else None
        self._reader.begin(self._pass(strict, check))
        return pa.RecordBatchReader.from_batches(self.schema, self._reader)

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the pass, or None."""
        return self._reader.failure

    def reraise_source_error(self) -> AbstractContextManager[None]:
        """Raise the error of the rows instead of the one that pylance raises for it."""
        return self._reader.reraise_source_error()

    def require_storable(self) -> None:
        """Check that Lance can make a table of this schema. Raises InvalidInput (13)."""
        require_storable(self.schema)

    def _rewind(self) -> None:
        self.count = 0
        self._reader.begin(())
        _, self._batches = self._begin()

    def _check_all(self) -> None:
        for _ in self._checked_batches():
            pass
        self._rewind()

    def _pass(
        self, into: pa.Schema | None, check: Callable[[pa.RecordBatch], None] | None
    ) -> Iterator[pa.RecordBatch]:
        for given in self._checked_batches():
            batch = align_batch(given)
            if into is not None:
                _check_nulls_for(into, batch)
            if check is not None:
                check(batch)
            self.count += batch.num_rows
            yield batch

    def _checked_batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise ServiceUnavailableError(
                    "The rows did not arrive within the timeout; nothing was changed"
                )
            if not self._trusted:
                _check_batch(batch, self.schema)
            yield batch


# -- forms of data ----------------------------------------------------------------------------


def _begin_marked(begin: Callable[[], _Pass]) -> _Pass:
    """Start a pass whose errors are marked as the caller's: reading runs the caller's code."""
    with marking_callers_own():
        schema, batches = begin()
    return schema, _mark_errors(batches)


def _mark_errors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with marking_callers_own():
        yield from batches


def _open_data(data: Any) -> tuple[Callable[[], _Pass], RowSource]:
    if isinstance(data, pa.Table | pa.RecordBatch):
        table = pa.table(data) if isinstance(data, pa.RecordBatch) else data
        return lambda: (table.schema, iter(table.to_batches())), RowSource.MEMORY
    buffer = _buffer(data)
    if buffer is not None:
        return lambda: open_stream(pa.BufferReader(buffer)), RowSource.MEMORY
    if hasattr(data, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(data)
        return lambda: (stream.schema, iter(stream)), RowSource.ONCE
    if hasattr(data, "read"):
        return _open_file(data)
    if isinstance(data, Iterable) and not isinstance(data, str):
        source = RowSource.MEMORY if isinstance(data, Sequence) else RowSource.ONCE
        return lambda: _open_batches(data), source
    raise invalid(
        f"The request's data is of type {type(data).__name__}: pass an Arrow IPC stream as bytes, "
        "a buffer or a binary file, or record batches"
    )


def _buffer(data: Any) -> pa.Buffer | None:
    """Return a view of bytes in memory, or None for other data."""
    if isinstance(data, pa.Buffer):
        return data
    if not isinstance(data, bytes | bytearray | memoryview) and hasattr(data, "read"):
        return None  # such as mmap, which is read from its position
    try:
        return pa.py_buffer(data)
    except (BufferError, ValueError) as error:
        raise invalid(f"The request's data is a buffer that is not contiguous: {error}") from error
    except TypeError:
        return None


def _open_file(file: Any) -> tuple[Callable[[], _Pass], RowSource]:
    # A memory map can seek, but has ``seekable`` only since Python 3.13.
    can_go_back = file.seekable() if hasattr(file, "seekable") else hasattr(file, "seek")
    if not can_go_back:
        return lambda: open_stream(file), RowSource.ONCE
    start = file.tell()

    def begin() -> _Pass:
        file.seek(start)
        return open_stream(file)

    return begin, RowSource.FILE


def _open_batches(data: Iterable[Any]) -> _Pass:
    batches = iter(data)
    first = next(batches, None)
    if first is None:
        raise invalid("The request has no data: without a batch there is no schema")
    if not isinstance(first, pa.RecordBatch):
        raise _not_a_batch(first)
    return first.schema, chain([first], batches)


def _not_a_batch(item: Any) -> Exception:
    return invalid(f"The request's data holds a {type(item).__name__} and not a record batch")


# -- Arrow IPC streams -----------------------------------------------------------------------------


def open_stream(source: BinaryFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of an Arrow IPC stream, and its batches, which are not validated.

    Nothing may follow the stream in ``source``. Each batch is read when it is requested, and
    buffers of a ``pa.BufferReader`` are not copied. Errors of ``source.read`` are passed on.

    Raises:
        InvalidInputError: (13) here or between batches: it is not an Arrow IPC stream, is
            truncated, or is followed by something else.
    """
    file = _EndCheckingFile(source)
    with _translate_errors(file):
        reader = pa.ipc.open_stream(pa.PythonFile(file, mode="r"))
    return reader.schema, _read_batches(reader, file)


def _read_batches(reader: Any, file: _EndCheckingFile) -> Iterator[pa.RecordBatch]:
    while True:
        with _translate_errors(file):
            batch = next(reader, None)
        if batch is None:
            break
        yield batch
    if file.is_exhausted:
        raise invalid("The Arrow IPC stream is cut short: it has no end-of-stream mark")
    rest = len(file.read(_PIECE))
    if rest:
        more = " or more" if rest == _PIECE else ""
        raise invalid(f"The Arrow IPC stream is followed by {rest} bytes{more} of other data")


@contextmanager
def _translate_errors(file: _EndCheckingFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if file.failure is not None:
            raise file.failure from None
        if not file.size:
            raise invalid(
                "The request has no data: send an Arrow IPC stream; one without batches is enough"
            ) from error
        raise invalid(
            f"The data is not a complete Arrow IPC stream: {first_line(error)}"
        ) from error


class _EndCheckingFile:
    """A file for Arrow that records whether its end was reached. Closing it does nothing."""

    closed = False

    def __init__(self, source: Any) -> None:
        self._source = source
        self.size = 0
        self.is_exhausted = False
        """Whether the last read returned fewer bytes than it asked for."""
        self.failure: BaseException | None = None
        if hasattr(source, "read_buffer"):
            self.read_buffer = self._read_buffer

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the caller opened the file, and closes it."""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or the rest. The source may return fewer bytes at a time."""
        pieces = []
        missing = size
        while missing > 0:
            piece = self._read_piece(min(missing, _PIECE))
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces) if len(pieces) != 1 else pieces[0]
        self._count(len(data), size)
        return data

    def _read_buffer(self, size: int) -> pa.Buffer:
        try:
            data = self._source.read_buffer(size)
        except BaseException as error:
            self.failure = error
            raise
        self._count(len(data), size)
        return data

    def _read_piece(self, size: int) -> bytes:
        try:
            piece = self._source.read(size)
        except BaseException as error:
            self.failure = error
            raise
        if not isinstance(piece, bytes | bytearray | memoryview):
            type_name = type(piece).__name__
            self.failure = invalid(
                f"The file returned {type_name} instead of bytes: open it in binary mode"
            )
            raise self.failure
        return bytes(piece)

    def _count(self, given: int, wanted: int) -> None:
        self.size += given
        self.is_exhausted = given < wanted


# -- checks ----------------------------------------------------------------------------------------


_COLUMN = re.compile(r"(?<=In column )\d+")
"""The number of a column in messages of pyarrow."""


def _check_batch(batch: Any, schema: pa.Schema) -> None:
    if not isinstance(batch, pa.RecordBatch):
        raise _not_a_batch(batch)
    if not batch.schema.equals(schema):
        raise invalid("The request's data holds batches of different schemas")
    try:
        # Rust does not validate Arrow data: wrong offsets or text must not reach it. Lengths first:
        # Arrow ends the process at the child of a struct whose length is negative.
        batch.validate()
        for column in batch.columns:
            _check_views(column)
        batch.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        reason = _COLUMN.sub(lambda found: repr(schema.names[int(found[0])]), first_line(error))
        raise invalid(f"The data is not valid Arrow data: {reason}") from error
    for field, column in zip(schema, batch.columns, strict=True):
        # Aligned, because pyarrow also reads the offsets of empty lists, which may be missing.
        if _is_strict(field) and _has_forbidden_null(align(column), field):
            raise invalid(f"Column {field.name!r} must not be null, but is null in some rows")


_MOST_VIEWED_BYTES = 1 << 30
"""The size of the texts and bytes in a column of views: many of them may share the same bytes."""


def _check_views(array: pa.Array) -> None:
    """Raise InvalidInput (13) if the values of views are far larger than the data."""
    dtype = array.type
    if arrow.is_string_view(dtype) or arrow.is_binary_view(dtype):
        views = array.buffers()[1]
        if views is None or not len(array):
            return
        # A view is four numbers, of which the first is the length.
        numbers = np.frombuffer(views, "<u4", 4 * len(array), 16 * array.offset)
        lengths = numbers[::4][np.asarray(array.is_valid())]
        if lengths.sum(dtype=np.uint64) > _MOST_VIEWED_BYTES:
            raise invalid(
                f"A column of views has more than {_MOST_VIEWED_BYTES >> 20} MiB of values in a "
                "batch: send smaller batches"
            )
    elif arrow.is_struct(dtype):
        for i in range(dtype.num_fields):
            _check_views(array.field(i))
    elif _is_list(dtype):
        _check_views(array.values)


def _check_nulls_for(table: pa.Schema, batch: pa.RecordBatch) -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        index = table.get_field_index(field.name)
        if index >= 0 and _has_forbidden_null(column, table.field(index)):
            raise TableSchemaValidationError(
                f"Column {field.name!r} of the table must not be null, but is null in some rows"
            )


def _has_forbidden_null(array: pa.Array, field: pa.Field, hidden: int = 0) -> bool:
    """Return whether the array has a null, possibly nested, that the field does not allow.

    Args:
        hidden: How many values are null because the struct around them is.
    """
    if not _is_strict(field):
        return False
    if not field.nullable and array.null_count > hidden:
        return True
    if array.null_count == len(array):
        return False  # pyarrow cannot flatten lists of every type then
    dtype = array.type
    if arrow.is_struct(dtype):
        parts = {dtype.field(i).name: part for i, part in enumerate(array.flatten())}
        inside = [(parts[each.name], each) for each in _children(field) if each.name in parts]
        return any(_has_forbidden_null(part, each, array.null_count) for part, each in inside)
    if _is_list(dtype) and _is_list(field.type):
        return _has_forbidden_null(array.flatten(), field.type.value_field)
    return False


def _is_strict(field: pa.Field) -> bool:
    return not field.nullable or any(_is_strict(each) for each in _children(field))


def _children(field: pa.Field) -> list[pa.Field]:
    return [field.type.field(i) for i in range(field.type.num_fields)]


def _is_list(dtype: pa.DataType) -> bool:
    return bool(
        arrow.is_list(dtype) or arrow.is_large_list(dtype) or arrow.is_fixed_size_list(dtype)
    )


def _check_names(schema: pa.Schema) -> None:
    try:
        # As a struct, because the schema has metadata, too.
        _check_text(pa.field("schema", pa.struct(schema), metadata=schema.metadata))
    except UnicodeDecodeError as error:
        raise invalid(f"The data has a name or metadata that is not UTF-8: {error}") from error
    if not schema.names:
        raise invalid("The data has no columns")


def _check_text(field: pa.Field) -> None:
    """Raise UnicodeDecodeError for a name that is not UTF-8, on which Rust would panic."""
    dtype = field.type
    if arrow.is_dictionary(dtype):
        dtype = dtype.value_type
    texts = [field.name, getattr(dtype, "tz", None) or ""]  # Arrow decodes them on access
    texts += [b" ".join(pair).decode() for pair in (field.metadata or {}).items()]
    if any("\0" in text for text in texts):
        raise invalid(f"The data has a NUL in the name or metadata of {field.name!r}")
    for i in range(dtype.num_fields):
        _check_text(dtype.field(i))


def check_types(schema: pa.Schema) -> None:
    """Check that no column is of a type whose rows Lance would lose. Raises InvalidInput (13).

    Lance's own check accepts some types whose rows it panics on, cannot read back, or loses
    together with the rows of other columns.
    """
    for field in schema:
        reason = _find_lossy_type(field.type)
        if reason is not None:
            raise invalid(f"Lance cannot store {format_field(field)}: {reason}")


def _find_lossy_type(dtype: pa.DataType) -> str | None:
    if arrow.is_struct(dtype) and not dtype.num_fields:
        return "it would lose rows of the other columns beside a struct without fields"
    if arrow.is_fixed_size_list(dtype) and not _is_fixed_size(dtype.value_type):
        return (
            "a fixed-size list can hold booleans, numbers, times, fixed-size binary and "
            "fixed-size lists"
        )
    if isinstance(dtype, pa.BaseExtensionType):
        return _find_lossy_type(dtype.storage_type)
    reasons = (_find_lossy_type(dtype.field(i).type) for i in range(dtype.num_fields))
    return next((reason for reason in reasons if reason is not None), None)


_FIXED_SIZE = (
    *(arrow.is_null, arrow.is_boolean, arrow.is_integer, arrow.is_floating, arrow.is_decimal),
    *(arrow.is_temporal, arrow.is_fixed_size_binary),
)
_IN_VECTORS = "lance.bfloat16"
"""The extension type whose lists Lance can store."""


def _is_fixed_size(dtype: pa.DataType) -> bool:
    """Return whether all values have the same size."""
    if arrow.is_fixed_size_list(dtype):
        return _is_fixed_size(dtype.value_type)
    if isinstance(dtype, pa.BaseExtensionType):
        return bool(dtype.extension_name == _IN_VECTORS)
    return any(is_kind(dtype) for is_kind in _FIXED_SIZE)
