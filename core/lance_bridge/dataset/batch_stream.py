"""Streams of record batches: Arrow IPC read to its end, and batches handed over to pylance.

Arrow allows a stream without its end-of-stream mark. A stream that was cut between two batches
then looks whole, so the mark is required here, and nothing may follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from ..errors import LANCE_ERRORS, first_line, invalid, panics_as_errors

_PIECE = 16 * 2**20
"""Bytes read from a file at once. Some files allocate the size requested, which may be wrong."""


class BinaryFile(Protocol):
    """A source of bytes: a file opened in binary mode, a response, a pipe."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most ``size`` bytes, and no bytes at the end."""


def open_stream(source: BinaryFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of an Arrow IPC stream, and its batches, which are not validated.

    The stream must be all that is left in ``source``. Each batch is read when it is requested, and
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
    """A file for Arrow that records whether its end was reached. Closing it closes nothing."""

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
        """Return ``size`` bytes, or the rest. The source may give fewer bytes at a time."""
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
        data = self._source.read_buffer(size)
        self._count(len(data), size)
        return data

    def _read_piece(self, size: int) -> bytes:
        try:
            piece = self._source.read(size)
        except BaseException as error:
            self.failure = error
            raise
        if not isinstance(piece, bytes | bytearray | memoryview):
            kind = type(piece).__name__
            self.failure = invalid(
                f"The file returned {kind} instead of bytes: open it in binary mode"
            )
            raise self.failure
        return bytes(piece)

    def _count(self, given: int, wanted: int) -> None:
        self.size += given
        self.is_exhausted = given < wanted


class ErrorCapturingReader(Iterator[pa.RecordBatch]):
    """Batches as they arrive, and the error that ended them.

    pylance reports only the text of an error that its source of batches raises.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.begin(batches)

    def begin(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Read other batches from here on."""
        self._batches = iter(batches)
        self.failure: BaseException | None = None
        """The error that ended the batches, or None."""

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.failure = error
            raise

    @contextmanager
    def reraise_source_error(self) -> Iterator[None]:
        """Raise the error that ended the batches instead of the one that pylance raises for it."""
        try:
            with panics_as_errors():
                yield
        except LANCE_ERRORS:
            if self.failure is not None:
                raise self.failure from None
            raise
