"""The Python processes that the Java part starts: the driver's, and one on each executor.

On the driver, Java runs ``python -m lance_bridge_spark.processes driver`` and writes the calls of
the SQL catalog to its standard input. The process writes responses to its standard output, in any
order.

On an executor, Java runs ``… executor`` and connects to its socket once for each task. It sends a
call (a function of `source.worker_calls`, and a partition), and receives a message, an Arrow stream
and another message, which confirms that the stream is complete.

Each process exits at the end of its standard input. A message is JSON and byte strings, each
prefixed with its length in four bytes.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import signal
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.errors import PySparkException

from .schemas import batch_schema
from .source import LanceSource  # noqa: F401 - what tasks need is imported once
from .source.worker_calls import error_fields, partition_batch

_LENGTH = struct.Struct(">i")
_THREADS = 64
"""Calls of a driver that run concurrently; more are queued. Most wait for a catalog or a store."""
_LONGEST_PATH = 100
"""The maximum length of a socket's path, in bytes, on all systems."""
_BUFFERS_AT_ONCE = 1000
"""The maximum number of buffers in one system call."""

Message = tuple[dict[str, Any], list[bytes]]

logger = logging.getLogger(__name__)

# -- messages --------------------------------------------------------------------------------------


class Channel:
    """Messages over a pair of streams; several threads may write concurrently."""

    def __init__(self, calls: BinaryIO, answers: BinaryIO) -> None:
        self._calls = calls
        self._answers = answers
        self._lock = threading.Lock()

    def read(self) -> Message:
        """Return the next message.

        Raises:
            EOFError: The stream has ended.
        """
        fields: dict[str, Any] = json.loads(self._read_bytes())
        return fields, [self._read_bytes() for _ in range(self._read_length())]

    def write(self, fields: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
        """Write a message without interleaving it with others."""
        text = json.dumps(fields).encode()
        with self._lock:
            for each in (text, None, *parts):
                self._answers.write(_LENGTH.pack(len(parts) if each is None else len(each)))
                self._answers.write(each or b"")
            self._answers.flush()

    def _read_length(self) -> int:
        return int(_LENGTH.unpack(self._read(_LENGTH.size))[0])

    def _read_bytes(self) -> bytes:
        return self._read(self._read_length())

    def _read(self, size: int) -> bytes:
        found = self._calls.read(size)
        if len(found) < size:
            raise EOFError
        return found


def open_standard_channel() -> Channel:
    """Return a channel over standard input and output, and keep all other code from using them."""
    # An interrupt in the terminal is meant for Spark's shell.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    channel = Channel(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    return channel


# -- a driver --------------------------------------------------------------------------------------


def serve_driver(channel: Channel) -> None:
    """Respond to calls of the SQL catalog until the end of the input."""
    from .sql.service import respond  # noqa: PLC0415 - what it imports may print

    freeze_imports()

    def take(call: dict[str, Any], parts: list[bytes]) -> None:
        channel.write({"id": call["id"], "begun": True})
        fields, answered = respond(call, parts)
        channel.write({**fields, "id": call["id"]}, answered)

    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="call")
    channel.write({"ready": True})
    while True:
        threads.submit(take, *channel.read())


# -- an executor -----------------------------------------------------------------------------------


def serve_executor(channel: Channel) -> None:
    """Serve the tasks' reads until the end of the input."""
    freeze_imports()
    # The directory is accessible only to its owner.
    with tempfile.TemporaryDirectory(prefix="lance-bridge-", dir=_directory()) as directory:
        channel.write({"ready": True, "socket": str(listen(directory, answer))})
        channel.read()


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


def freeze_imports() -> None:
    """Exclude everything imported so far from later garbage collections."""
    gc.collect()
    gc.freeze()


def main(role: str) -> None:
    """Serve the driver or an executor until it exits."""
    serve = {"driver": serve_driver, "executor": serve_executor}[role]
    with suppress(EOFError, BrokenPipeError):
        serve(open_standard_channel())
    # Java has exited. Stopping running calls and scans is as safe as if the process crashed.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
