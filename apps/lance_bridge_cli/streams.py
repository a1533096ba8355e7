"""Standard output and standard error, which can fail: full disks, closed pipes, other encodings.

Libraries write to them, too: typer prints help, rich prints tables. So the streams themselves are
replaced while a command runs. Imports little, because completion waits for it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from lance_bridge.exit_codes import FAILED, PIPE_CLOSED

_STRICT = ("strict", "surrogateescape")
"""Error handlers that raise for a character that the encoding lacks."""
_CLOSED = {errno.EPIPE, errno.ESHUTDOWN, errno.ECONNRESET}


class OutputError(Exception):
    """Standard output cannot be written.

    Not an OSError: libraries handle those of standard output, each differently.
    """

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror or str(cause))
        self.is_closed_pipe = cause.errno in _CLOSED


class _Sink(io.BufferedIOBase):
    """Binary stream that passes what is written on to another one, and translates its errors."""

    def __init__(self, target: Any) -> None:
        self._target = target

    @property
    def name(self) -> Any:
        return self._target.name

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return bool(self._target.isatty())

    def fileno(self) -> int:
        return int(self._target.fileno())

    def write(self, data: Any) -> int:
        try:
            return int(self._target.write(data))
        except OSError as error:
            return self.fail(error, len(data))

    def flush(self) -> None:
        if self.closed:
            return
        try:
            self._target.flush()
        except OSError as error:
            self.fail(error, 0)

    def fail(self, error: OSError, length: int) -> int:
        """Handle an error of a write; return the number of bytes to report as written."""
        raise NotImplementedError

    def discard_unwritable(self) -> None:
        """Discard what is buffered if it cannot be written: Python would fail to, when it ends.

        Not after a failed write: later writes would seem to succeed, such as those of a server's
        audit log.
        """
        try:
            self._target.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError, AttributeError):
                number = self._target.fileno()
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


class _Output(_Sink):
    def fail(self, error: OSError, length: int) -> int:  # noqa: ARG002 - nothing was written
        raise OutputError(error) from error


class _Errors(_Sink):
    """Ignores errors: there is no other place to report them."""

    def fail(self, error: OSError, length: int) -> int:  # noqa: ARG002 - there is no other place
        return length


class _Closed(io.RawIOBase):
    """Takes the place of a stream that was closed before the program started (``>&-``)."""

    def writable(self) -> bool:
        return True

    def write(self, _data: Any) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


@contextmanager
def checked_streams() -> Iterator[None]:
    """Run a command whose output is escaped for its encoding, and whose write errors are handled.

    Characters that the encoding of a stream lacks are written as ``\\xe9`` or ``\\u65e5``. If
    standard output cannot be written, exit with one message; without any if its reader has ended,
    as ``head`` does. Output that is redirected to an object in memory is not changed.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _wrap(sys.stdout, _Output), _wrap(sys.stderr, _Errors)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError as error:
        if error.is_closed_pipe:
            sys.exit(PIPE_CLOSED)
        sys.stderr.write(f"lance-bridge: standard output cannot be written: {error}\n")
        sys.exit(FAILED)
    finally:
        _unwrap(sys.stdout, before[0])
        _unwrap(sys.stderr, before[1])
        sys.stdout, sys.stderr = before


def _wrap(stream: TextIO | None, kind: type[_Sink]) -> TextIO:
    if stream is None:
        return io.TextIOWrapper(kind(_Closed()), "utf-8", "backslashreplace")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        kind(stream.buffer),
        stream.encoding,
        "backslashreplace" if stream.errors in _STRICT else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _unwrap(stream: TextIO, before: TextIO | None) -> None:
    if stream is before or not isinstance(stream, io.TextIOWrapper):
        return
    with suppress(OutputError, ValueError):
        stream.flush()
    if isinstance(stream.buffer, _Sink):
        stream.buffer.discard_unwritable()
    with suppress(OutputError, ValueError):
        stream.detach()
