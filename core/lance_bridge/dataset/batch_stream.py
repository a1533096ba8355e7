"""Streams of record batches: Arrow IPC read to its end, and batches handed over to pylance.

Arrow allows a stream without its end-of-stream mark. A stream that was cut between two batches
then looks whole, so the mark is required here, and nothing may follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from ..errors import invalid
from ..lance_errors import LANCE_ERRORS, first_line, panics_as_errors

_PIECE = 16 * 2**20
"""Bytes asked of a file at once: some allocate all that is asked for, and a length may be wrong."""


class BinaryFile(Protocol):
    """What is read from: a file opened as binary, a response, a pipe."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most ``size`` bytes; none at the end."""


def open_stream(source: BinaryFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of an Arrow IPC stream, and its batches, which are not validated.

    The stream must be all that is left in ``source``. It is read as far as the batches are asked
    for; buffers of a ``pa.BufferReader`` are not copied. What ``source.read`` raises is raised.

    Raises:
        InvalidInputError: (13) here or between batches: not an Arrow IPC stream, cut short, or
            followed by something else.
    """
    watched = _Watched(source)
    with _malformed(watched):
        reader = pa.ipc.open_stream(pa.PythonFile(watched, mode="r"))
    return reader.schema, _batches(reader, watched)


def _batches(reader: Any, watched: _Watched) -> Iterator[pa.RecordBatch]:
    while True:
        with _malformed(watched):
            batch = next(reader, None)
        if batch is None:
            break
        yield batch
    if watched.ran_dry:
        raise invalid("The Arrow IPC stream is cut short: it has no end-of-stream mark")
    rest = len(watched.read(_PIECE))
    if rest:
        more = " or more" if rest == _PIECE else ""
        raise invalid(
            f"The data goes on after the end of the Arrow IPC stream, by {rest} bytes{more}"
        )


@contextmanager
def _malformed(watched: _Watched) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if watched.failure is not None:
            raise watched.failure from None
        if not watched.size:
            raise invalid(
                "The request has no data: send an Arrow IPC stream; a schema alone is enough"
            ) from error
        raise invalid(f"The data is not a whole Arrow IPC stream: {first_line(error)}") from error


class _Watched:
    """A file for Arrow that notices its end. Closing it leaves the caller's own file open."""

    closed = False

    def __init__(self, source: Any) -> None:
        self._source = source
        self.size = 0
        self.ran_dry = False
        """Whether more was asked for than there was."""
        self.failure: BaseException | None = None
        if hasattr(source, "read_buffer"):
            self.read_buffer = self._read_buffer

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The caller opened the file, and closes it."""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, however few the source gives at once, or what is left."""
        pieces = []
        missing = size
        while missing > 0:
            piece = self._piece(min(missing, _PIECE))
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces) if len(pieces) != 1 else pieces[0]
        self._note(len(data), size)
        return data

    def _read_buffer(self, size: int) -> pa.Buffer:
        data = self._source.read_buffer(size)
        self._note(len(data), size)
        return data

    def _piece(self, size: int) -> bytes:
        try:
            piece = self._source.read(size)
        except BaseException as error:
            self.failure = error
            raise
        if not isinstance(piece, bytes | bytearray | memoryview):
            kind = type(piece).__name__
            self.failure = invalid(f"The file gave {kind} and not bytes: open it as binary")
            raise self.failure
        return bytes(piece)

    def _note(self, given: int, wanted: int) -> None:
        self.size += given
        self.ran_dry = given < wanted


class Passing(Iterator[pa.RecordBatch]):
    """Batches as they come, and what ended them."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.begin(batches)

    def begin(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take other batches, of which nothing is known yet."""
        self._passing = iter(batches)
        self.failure: BaseException | None = None
        """What ended the batches, other than their end."""

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._passing)
        except StopIteration:
            raise
        except BaseException as error:
            self.failure = error
            raise

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Raise what ended the batches in the place of what pylance makes of it."""
        try:
            with panics_as_errors():
                yield
        except LANCE_ERRORS:
            if self.failure is not None:
                raise self.failure from None
            raise
