"""The Python process that reads tables for the tasks of one executor.

The Java part starts ``python -m lance_bridge_spark.source.scan_service`` and connects to its socket
once for each task. It sends a call (a function of `task_functions`, and a partition), and receives
a message, an Arrow stream and another message, which confirms that the stream is complete. The
process exits at the end of its standard input.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from ..channel import Channel, freeze_imports, open_standard_channel
from ..schemas import batch_schema
from . import LanceSource  # noqa: F401 - what tasks need is imported once
from .worker_calls import error_fields, partition_batch

_LONGEST_PATH = 100
"""The maximum length of a socket's path, in bytes, on all systems."""
_BUFFERS_AT_ONCE = 1000
"""The maximum number of buffers in one system call."""

logger = logging.getLogger(__name__)


class _Sink:
    """A sink for a pyarrow stream that collects buffers without copies and sends them together."""

    closed = False

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._held: list[memoryview] = []

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if view.nbytes:
            self._held.append(view)
        return view.nbytes

    def flush(self) -> None:
        while self._held:
            sent = self._connection.sendmsg(self._held[:_BUFFERS_AT_ONCE])
            while self._held and sent >= self._held[0].nbytes:
                sent -= self._held.pop(0).nbytes
            if sent:
                self._held[0] = self._held[0].cast("B")[sent:]

    def close(self) -> None:
        self.flush()


def answer(connection: socket.socket) -> None:
    """Carry out one call, and close the connection."""
    with connection, suppress(BrokenPipeError, ConnectionResetError, EOFError):
        # A task that has read enough, or was cancelled, closes the connection.
        channel = Channel(connection.makefile("rb"), connection.makefile("wb"))
        _, (function, partition) = channel.read()
        try:
            read, schema = pickle.loads(function)
            batches = read(iter([partition_batch(partition)]))
        except Exception as error:
            logger.exception("A scan cannot begin")
            channel.write(error_fields(error))
            return
        channel.write({})
        channel.write(_send(batches, batch_schema(schema), connection))


def _send(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, connection: socket.socket
) -> dict[str, Any]:
    """Send batches as an Arrow stream, and return the fields of the message after it."""
    sink = _Sink(connection)
    failures = list[Exception]()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as stream:
        for batch in _until_failure(batches, failures):
            stream.write_batch(batch)
            sink.flush()
    sink.flush()
    return error_fields(failures[0]) if failures else {}


def _until_failure(
    batches: Iterator[pa.RecordBatch], failures: list[Exception]
) -> Iterator[pa.RecordBatch]:
    """Yield batches, and append the error that stops them, if any."""
    try:
        yield from batches
    except PySparkException as error:
        failures.append(error)
    except Exception as error:
        logger.exception("A scan failed")
        failures.append(error)


def listen(directory: str, take: Callable[[socket.socket], None]) -> Path:
    """Listen on a socket in a directory, with a thread per connection, and return its path."""
    listener = socket.socket(socket.AF_UNIX)
    path = Path(directory, "socket")
    listener.bind(str(path))
    listener.listen(128)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=take, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True, name="accept").start()
    return path


def _directory() -> str:
    """Return the parent directory for the socket's directory, whose path must be short."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < _LONGEST_PATH - 40 else "/tmp"


def main() -> None:
    """Serve the tasks' reads until the executor exits."""
    channel = open_standard_channel()
    freeze_imports()
    # The directory is accessible only to its owner.
    with tempfile.TemporaryDirectory(prefix="lance-bridge-", dir=_directory()) as directory:
        channel.write({"ready": True, "socket": str(listen(directory, answer))})
        with suppress(EOFError):
            channel.read()
    # Stopping running scans is as safe as if the process crashed.
    os._exit(0)


if __name__ == "__main__":
    main()
