"""What a caller may hand in as the rows of a table, and reading it without holding it in memory.

Lance writes fragments first and makes them visible in one step, so rows can be checked while they
are written: what is wrong with them ends the write before that step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

import pyarrow as pa
from lance_namespace.errors import ServiceUnavailableError, TableSchemaValidationError

from ..errors import invalid, marking_callers_own
from ..lance_errors import first_line
from . import batch_stream
from .arrow_compat import align, align_batch, check_types, require_storable
from .batch_stream import Passing

Data = bytes | bytearray | memoryview | batch_stream.BinaryFile | Iterable[Any]
"""An Arrow IPC stream as bytes, in any other buffer, or in a file opened as binary; or batches, as
a ``pa.Table``, ``pa.RecordBatch``, ``pa.RecordBatchReader``, anything else that has
``__arrow_c_stream__``, or an iterable of ``pa.RecordBatch``."""

_Pass = tuple[pa.Schema, Iterator[pa.RecordBatch]]


class Source(Enum):
    """Where rows come from: how often, and at what cost, they can be read."""

    MEMORY = "memory"
    FILE = "a file that can go back"
    ONCE = "something that is read once"


class Rows:
    """The rows of a request, read in batches and checked on the way."""

    def __init__(self, begin: Callable[[], _Pass], source: Source) -> None:
        """Begin to read: ``begin`` returns the schema and the batches, for each pass anew.

        Rows in memory are read through here. Rows that come later are checked as they come.

        Raises:
            InvalidInputError: (13)
        """
        self._begin = begin
        self._source = source
        self._trusted = False
        self._is_begun = False
        self.count = 0
        """Rows read in this pass."""
        self.deadline: float | None = None
        """Until when the rows may be read, in seconds of ``time.monotonic``."""
        self._passing = Passing(())
        self.schema, self._batches = begin()
        _check_names(self.schema)
        check_types(self.schema)
        if source is Source.MEMORY:
            self._read_through()
            self._trusted = True

    @classmethod
    def of(cls, data: Data) -> Rows:
        """Return the rows that a caller has handed in.

        Raises:
            InvalidInputError: (13) they are nothing that rows can be read from, or, where that can
                be seen yet, are malformed.
        """
        with marking_callers_own():
            begin, source = _opened(data)
        return cls(lambda: _begin_marking(begin), source)

    @property
    def is_repeatable(self) -> bool:
        """Whether the rows can be read as often as needed."""
        return self._source is not Source.ONCE

    @property
    def can_be_read(self) -> bool:
        """Whether a pass can be begun now."""
        return self.is_repeatable or not self._is_begun

    def check_ahead(self) -> None:
        """Read all rows that can be read twice, so that bad ones are known before any change.

        Raises:
            InvalidInputError: (13)
        """
        if self._source is Source.FILE:
            self._read_through()

    def reader(
        self, into: pa.Schema | None = None, check: Callable[[pa.RecordBatch], None] | None = None
    ) -> Any:
        """Return a reader (``pa.RecordBatchReader``) of all rows, for one pass that `can_be_read`.

        Args:
            into: The schema of the table they go to; its rules on nulls are checked.
            check: Called with each batch; what it raises ends the pass.
        """
        if self._is_begun:
            self._rewind()
        self._is_begun = True
        strict = into if into is not None and _forbids_nulls(into) else None
        self._passing.begin(self._pass(strict, check))
        return pa.RecordBatchReader.from_batches(self.schema, self._passing)

    @property
    def failure(self) -> BaseException | None:
        """What ended the pass: pylance only shows its text."""
        return self._passing.failure

    def blamed(self) -> AbstractContextManager[None]:
        """Raise what was wrong with the rows in place of what pylance makes of it."""
        return self._passing.blamed()

    def require_storable(self) -> None:
        """Check that Lance can make a table of this schema.

        Raises:
            InvalidInputError: (13)
        """
        require_storable(self.schema)

    def _rewind(self) -> None:
        self.count = 0
        self._passing.begin(())
        _, self._batches = self._begin()

    def _read_through(self) -> None:
        for _ in self._checked():
            pass
        self._rewind()

    def _pass(
        self, into: pa.Schema | None, check: Callable[[pa.RecordBatch], None] | None
    ) -> Iterator[pa.RecordBatch]:
        for given in self._checked():
            batch = align_batch(given)
            if into is not None:
                _check_nulls_for(into, batch)
            if check is not None:
                check(batch)
            self.count += batch.num_rows
            yield batch

    def _checked(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise ServiceUnavailableError(
                    "The rows did not arrive within the timeout: nothing is changed"
                )
            if not self._trusted:
                _check_batch(batch, self.schema)
            yield batch


# -- what was handed in ----------------------------------------------------------------------------


def _begin_marking(begin: Callable[[], _Pass]) -> _Pass:
    """Begin a pass whose errors are marked as the caller's own: reading runs the caller's code."""
    with marking_callers_own():
        schema, batches = begin()
    return schema, _marking(batches)


def _marking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with marking_callers_own():
        yield from batches


def _opened(data: Any) -> tuple[Callable[[], _Pass], Source]:
    if isinstance(data, pa.Table | pa.RecordBatch):
        table = pa.table(data) if isinstance(data, pa.RecordBatch) else data
        return lambda: (table.schema, iter(table.to_batches())), Source.MEMORY
    buffer = _buffer(data)
    if buffer is not None:
        return lambda: batch_stream.open_stream(pa.BufferReader(buffer)), Source.MEMORY
    if hasattr(data, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(data)
        return lambda: (stream.schema, iter(stream)), Source.ONCE
    if hasattr(data, "read"):
        return _opened_file(data)
    if isinstance(data, Iterable) and not isinstance(data, str):
        source = Source.MEMORY if isinstance(data, Sequence) else Source.ONCE
        return lambda: _iterated(data), source
    raise invalid(
        f"The request's data is of type {type(data).__name__}: give an Arrow IPC stream as bytes, "
        "a buffer or a binary file, or record batches"
    )


def _buffer(data: Any) -> pa.Buffer | None:
    """Return a view of bytes in memory, or None for something else."""
    if isinstance(data, pa.Buffer):
        return data
    if not isinstance(data, bytes | bytearray | memoryview) and hasattr(data, "read"):
        return None  # such as mmap: it has a position to begin at
    try:
        return pa.py_buffer(data)
    except (BufferError, ValueError) as error:
        raise invalid(f"The request's data is a buffer that is not contiguous: {error}") from error
    except TypeError:
        return None


def _opened_file(file: Any) -> tuple[Callable[[], _Pass], Source]:
    # A memory map can seek, and has said so only since Python 3.13.
    can_go_back = file.seekable() if hasattr(file, "seekable") else hasattr(file, "seek")
    if not can_go_back:
        return lambda: batch_stream.open_stream(file), Source.ONCE
    start = file.tell()

    def begin() -> _Pass:
        file.seek(start)
        return batch_stream.open_stream(file)

    return begin, Source.FILE


def _iterated(data: Iterable[Any]) -> _Pass:
    batches = iter(data)
    first = next(batches, None)
    if first is None:
        raise invalid("The request has no data: without a batch there is no schema")
    if not isinstance(first, pa.RecordBatch):
        raise _no_batch(first)
    return first.schema, _chained(first, batches)


def _chained(first: pa.RecordBatch, rest: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _no_batch(item: Any) -> Exception:
    return invalid(f"The request's data holds a {type(item).__name__} and not a record batch")


# -- checks ----------------------------------------------------------------------------------------


def _check_batch(batch: Any, schema: pa.Schema) -> None:
    if not isinstance(batch, pa.RecordBatch):
        raise _no_batch(batch)
    if not batch.schema.equals(schema):
        raise invalid("The request's data holds batches of different schemas")
    try:
        # Rust trusts what Arrow hands over: wrong offsets or text must not get there.
        batch.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise invalid(f"The data is not valid Arrow data: {first_line(error)}") from error
    for field, column in zip(schema, batch.columns, strict=True):
        # Aligned, for pyarrow reads the offsets of empty lists, too, that may be left out.
        if _is_strict(field) and _has_forbidden_null(align(column), field):
            raise invalid(f"Column {field.name!r} must not be null, and is in some rows")


def _check_nulls_for(table: pa.Schema, batch: pa.RecordBatch) -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        index = table.get_field_index(field.name)
        if index >= 0 and _has_forbidden_null(column, table.field(index)):
            raise TableSchemaValidationError(
                f"Column {field.name!r} of the table must not be null, and is in some rows"
            )


def _has_forbidden_null(array: pa.Array, field: pa.Field, hidden: int = 0) -> bool:
    """Return whether a value is null, here or nested, that the field does not allow to be.

    Args:
        hidden: How many values are null because the struct is that they are in.
    """
    if not _is_strict(field):
        return False
    if not field.nullable and array.null_count > hidden:
        return True
    if array.null_count == len(array):
        return False  # pyarrow cannot flatten lists of every type then
    kind = array.type
    if pa.types.is_struct(kind):
        parts = {kind.field(i).name: part for i, part in enumerate(array.flatten())}
        inside = [(parts[each.name], each) for each in _children(field) if each.name in parts]
        return any(_has_forbidden_null(part, each, array.null_count) for part, each in inside)
    if _is_list(kind) and _is_list(field.type):
        return _has_forbidden_null(array.flatten(), field.type.value_field)
    return False


def _forbids_nulls(schema: pa.Schema) -> bool:
    return any(_is_strict(field) for field in schema)


def _is_strict(field: pa.Field) -> bool:
    return not field.nullable or any(_is_strict(each) for each in _children(field))


def _children(field: pa.Field) -> list[pa.Field]:
    return [field.type.field(i) for i in range(field.type.num_fields)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _check_names(schema: pa.Schema) -> None:
    try:
        for i in range(len(schema)):
            _check_text(schema.field(i))
    except UnicodeDecodeError as error:
        raise invalid(f"The data has a name that is not UTF-8: {error}") from error
    if not schema.names:
        raise invalid("The data has no columns")


def _check_text(field: pa.Field) -> None:
    """Raise UnicodeDecodeError where a name is no UTF-8: Rust would panic, past all handlers."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    texts = [field.name, getattr(kind, "tz", None) or ""]  # Arrow decodes them when asked
    texts += [b" ".join(pair).decode() for pair in (field.metadata or {}).items()]
    if any("\0" in text for text in texts):
        raise invalid(f"The data has a NUL in the name or metadata of {field.name!r}")
    for i in range(kind.num_fields):
        _check_text(kind.field(i))
