"""A query process: reads one query after the other from its channel to the server, and runs them.

The channel has typed messages on a socket. A message is its kind in one byte, its length in eight,
and its content. The server sends a query, and the pieces of rows that the process asks for. The
process sends log records and rows, and at the end a result or an error.
"""

from __future__ import annotations

import ctypes
import io
import logging
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import ErrorCode, LanceNamespaceError
from pydantic import BaseModel

from lance_bridge.credentials import Caller, acting_for
from lance_bridge.errors import internal, invalid, is_panic
from lance_bridge.table import ON_OPEN
from lance_bridge.transaction_versions import VersionChanges, record_version_changes
from lance_bridge_federated.children import close_namespace
from lance_bridge_federated.identifiers import with_text

from ..operations import Operation
from ..redaction import SECRETS
from .calling import call_namespace

_STACK_BYTES = 256 << 20
"""Virtual memory. Lance plans a deep expression with a few KiB of stack for each level."""
_NATIVE_STACK_BYTES = 64 << 20
_ROWS_BYTES = 1 << 20
_MOST_NAMESPACES = 32
_LOGGED = ("name", "levelno", "levelname", "created", "pathname", "lineno", "process")
"""The fields of a log record that are sent besides its message."""
_PR_SET_PDEATHSIG = 1
_HIGHEST_OOM_SCORE = "1000"
_NICENESS = 5
"""The server, which also answers others, goes before queries where processors are short."""
_LOWEST_PRIORITY = 19


def serve(end: socket.socket, cpu_seconds: int | None) -> None:
    """Run the queries that a channel sends, until the server closes it.

    Args:
        cpu_seconds: How much processor time each of them may take.
    """
    _prepare_process()
    channel = Channel(end)
    worker = _Worker(channel, cpu_seconds)
    logging.getLogger().addHandler(_ChannelLog(channel))
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    thread.join()
    # Threads of Lance may still run, and nothing of theirs is needed.
    os._exit(0)


def _prepare_process() -> None:
    """End with the server, and let the system end this process first if memory is short."""
    # The server drains its requests after a signal to its whole group, and then closes channels.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    os.environ["RUST_MIN_STACK"] = str(_NATIVE_STACK_BYTES)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(_HIGHEST_OOM_SCORE)


def slow_down(pid: int) -> None:
    """Give a process the lowest priority. Raises what the system does for one that has ended."""
    if sys.platform == "win32":
        psutil.Process(pid).nice(psutil.IDLE_PRIORITY_CLASS)
        return
    tasks = Path(f"/proc/{pid}/task")  # on Linux, each thread has a priority of its own
    for each in os.listdir(tasks) if tasks.is_dir() else [pid]:
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(each), _LOWEST_PRIORITY)


class _ChannelLog(logging.Handler):
    """Sends log records to the server."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(ChannelClosedError):
            kept = {key: getattr(record, key) for key in _LOGGED}
            self._channel.send(Kind.LOG, {**kept, "msg": SECRETS.hide(self.format(record))})


class _Upload:
    """The rows of a request as a file, read through the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or fewer at the end. Raises what reading in the server does."""
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return what `read` does. Arrow prefers it, since nothing is copied."""
        buffer = pa.allocate_buffer(size)
        content, filled = memoryview(buffer).cast("B"), 0
        while filled < size and (count := self._receive(content[filled:])):
            filled += count
        return buffer.slice(0, filled)

    def _receive(self, target: memoryview) -> int:
        """Receive some of the next bytes, and return how many; none at the end."""
        self._channel.send(Kind.READ, len(target))
        kind, size = self._channel.receive_head()
        if kind is Kind.ERROR:
            raise pickle.loads(self._channel.receive_content(size))
        self._channel.fill(target[:size])
        return size


class _Worker:
    def __init__(self, channel: Channel, cpu_seconds: int | None) -> None:
        self._channel = channel
        self._cpu_seconds = cpu_seconds
        self._namespaces: OrderedDict[bytes, LanceNamespace] = OrderedDict()

    def run(self) -> None:
        """Run queries until the channel is closed."""
        with suppress(ChannelClosedError):
            while True:
                _, content = self._channel.receive()
                self._run(pickle.loads(content))

    def _run(self, query: Query) -> None:
        ON_OPEN.set(partial(self._channel.send_bytes, Kind.OPENED, b""))
        with record_version_changes() as changes:
            try:
                with _processor_time(self._cpu_seconds):
                    result = self._result_of(query, changes)
            except ChannelClosedError:
                raise
            except BaseException as error:
                if not isinstance(error, Exception) and not is_panic(error):
                    raise
                self._channel.send(Kind.ERROR, _failure(query.operation.name, error, changes))
            else:
                self._channel.send(Kind.END, result)

    def _result_of(self, query: Query, changes: VersionChanges) -> Result:
        namespace = self._namespace(query.source)
        arguments: list[Any] = [query.request]
        if query.has_upload:
            arguments.append(_Upload(self._channel))
        elif query.rows is not None:
            arguments.append(query.rows)
        with acting_for(Caller(query.principal, lambda _write: False)):
            value = call_namespace(namespace, query.operation, arguments, query.method)
            if not isinstance(value, pa.RecordBatchReader):
                return Result(value, changes)
            self._channel.send(Kind.BEGIN, changes)
            self._send_rows(value)
        return Result(None, changes)

    def _send_rows(self, reader: pa.RecordBatchReader) -> None:
        sink = io.BufferedWriter(MessageFile(self._channel, Kind.ROWS), _ROWS_BYTES)
        writer = pa.ipc.new_stream(sink, reader.schema)
        for batch in reader:
            for each in small_batches(batch):
                writer.write_batch(each)
                sink.flush()
        writer.close()
        sink.flush()

    def _namespace(self, source: bytes) -> LanceNamespace:
        found = self._namespaces.get(source)
        if found is None:
            connect: Callable[[], LanceNamespace] = pickle.loads(source)
            found = self._namespaces[source] = connect()
        self._namespaces.move_to_end(source)
        if len(self._namespaces) > _MOST_NAMESPACES:
            close_namespace(self._namespaces.popitem(last=False)[1])
        return found


@contextmanager
def _processor_time(seconds: int | None) -> Iterator[None]:
    """Let the system end this process if the block takes more processor time."""
    if seconds is None or sys.platform == "win32":
        yield
        return
    import resource  # noqa: PLC0415 - not on Windows

    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = int(usage.ru_utime + usage.ru_stime) + 1 + seconds
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))


def _failure(operation: str, error: BaseException, changes: VersionChanges) -> Failure:
    found = error if isinstance(error, LanceNamespaceError) else internal(operation, error)
    trace = ""
    if found.code == ErrorCode.INTERNAL:
        trace = SECRETS.hide("".join(traceback.format_exception(error)))
    public = with_text(found, SECRETS.hide(str(found)))
    try:
        pickle.loads(pickle.dumps(public))
    except Exception:  # noqa: BLE001 - errors of other libraries' namespaces
        public = internal(operation, RuntimeError(str(public)))
    return Failure(public, changes, trace)


# -- batches of a result ---------------------------------------------------------------------------


BATCH_BYTES = 16 << 20
"""The size of the largest batch without its dictionaries, unless it is a single row."""
ROW_BYTES = 256 << 20
"""The size of the largest row: the server holds a row as a whole."""
DICTIONARY_BYTES = 64 << 20
"""The size of the dictionaries of a large batch: they are sent as a whole."""


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in batches that are not too large.

    Raises:
        InvalidInputError: (13) a row is too large, or a large batch has large dictionaries, or
            views inside of other values, which Arrow cannot split.
    """
    if batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    # A part of an array of views would have the bytes of the whole array.
    plain = pa.schema([field.with_type(_without_views(field)) for field in batch.schema])
    most = BATCH_BYTES + _require_small_dictionaries(batch)
    if plain == batch.schema:
        yield from _split(batch, most)
    else:
        # Copied by `take`, because views also share the bytes of texts that they were cast from.
        parts = _split(batch.cast(plain), most)
        yield from (each.take(pa.array(range(each.num_rows))).cast(batch.schema) for each in parts)


def _split(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= most:
        yield batch
        return
    if batch.num_rows < 2:
        if batch.nbytes > ROW_BYTES:
            raise invalid(
                f"A row of the result has {batch.nbytes} bytes; the limit is {ROW_BYTES}: ask for "
                "fewer columns, or read the table from its location"
            )
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half), most)
    yield from _split(batch.slice(half), most)


def _require_small_dictionaries(batch: pa.RecordBatch) -> int:
    """Return the size of all dictionaries."""
    total = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        total += sum(each.nbytes for each in _dictionaries(column))
        if total > DICTIONARY_BYTES:
            raise invalid(
                f"The dictionary of column {name!r} is too large: ask for fewer rows, or cast the "
                "column to the type of its values"
            )
    return total


def _dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        yield array.dictionary
    elif pa.types.is_struct(dtype):
        for number in range(dtype.num_fields):
            yield from _dictionaries(array.field(number))
    elif hasattr(array, "values"):  # of a list or a map
        yield from _dictionaries(array.values)


def _without_views(field: pa.Field) -> pa.DataType:
    dtype = field.type
    if pa.types.is_string_view(dtype):
        return pa.large_string()
    if pa.types.is_binary_view(dtype):
        return pa.large_binary()
    if "_view" in str(dtype):
        raise invalid(
            f"The column {field.name!r} has too many values of type {dtype} at once: ask for fewer "
            "rows, or cast its values to another type"
        )
    return dtype


# -- the channel to the server ---------------------------------------------------------------------


_HEAD = struct.Struct(">BQ")


class Kind(IntEnum):
    """What a message is."""

    QUERY = 1
    """To the process: a `Query`."""
    PIECE = 2
    """To the process: bytes of the request's rows, none at their end."""
    READ = 3
    """From the process: the number of bytes that it wants to read next."""
    BEGIN = 4
    """From the process: `VersionChanges`. Rows follow."""
    ROWS = 5
    """From the process: bytes of the result, as an Arrow IPC stream."""
    END = 6
    """From the process: a `Result`. It waits for the next query."""
    ERROR = 7
    """An error. From the process, it is a `Failure`, and it waits for the next query."""
    LOG = 8
    """From the process: the fields of a log record."""
    OPENED = 9
    """From the process: the catalog was read, and now the storage is. It can come several times."""


@dataclass(frozen=True)
class Query:
    """One operation for a query process. It can be pickled, and has secrets."""

    source: bytes = field(repr=False)
    """A pickled function that connects the namespace."""
    operation: Operation
    request: BaseModel
    principal: str
    """For whom it runs. No response of a query has credentials, so none of its rights matter."""
    rows: bytes | None = None
    """The rows of the request, if they are few."""
    has_upload: bool = False
    """Whether the rows of the request are read with `Kind.READ`."""
    method: Any = None
    """Replaces the namespace's own method; a function that can be pickled."""


@dataclass(frozen=True)
class Result:
    """The end of a query that succeeded."""

    value: Any
    """The response of the operation; None if it was sent as rows."""
    changes: VersionChanges


@dataclass(frozen=True)
class Failure:
    """The end of a query that failed."""

    error: Exception
    changes: VersionChanges
    trace: str = ""
    """The traceback of an internal error, for the log."""


class ChannelClosedError(Exception):
    """The other side has ended."""


class Channel:
    """Sends messages from any thread, and receives them in one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = threading.Lock()

    def send(self, kind: Kind, content: Any) -> None:
        """Send a message whose content is any object that can be pickled.

        Raises:
            ChannelClosedError:
        """
        self.send_bytes(kind, pickle.dumps(content, pickle.HIGHEST_PROTOCOL))

    def send_bytes(self, kind: Kind, content: Any) -> None:
        """Send a message whose content is bytes. Raises what `send` does."""
        self.send_parts(kind, [content])

    def send_parts(self, kind: Kind, parts: Sequence[Any]) -> None:
        """Send a message whose content is bytes in parts. Raises what `send` does."""
        try:
            with self._lock:
                self._socket.sendall(_HEAD.pack(kind, sum(map(len, parts))))
                for each in parts:
                    self._socket.sendall(each)
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self) -> tuple[Kind, memoryview]:
        """Return the kind and the content of the next message.

        Raises:
            ChannelClosedError:
        """
        kind, size = self.receive_head()
        return kind, self.receive_content(size)

    def receive_head(self) -> tuple[Kind, int]:
        """Return the kind and the size of the next message. Raises what `receive` does."""
        kind, size = _HEAD.unpack(self.receive_content(_HEAD.size))
        return Kind(kind), size

    def receive_content(self, size: int) -> memoryview:
        """Return the content of a message whose head was received. Raises what `receive` does."""
        content = memoryview(bytearray(size))
        self.fill(content)
        return content

    def fill(self, target: memoryview) -> None:
        """Receive the whole content of a message. Raises what `receive` does."""
        filled = 0
        while filled < len(target):
            filled += self.receive_into(target[filled:])

    def receive_into(self, target: memoryview) -> int:
        """Receive a part of a content, and return its size. Raises what `receive` does."""
        try:
            count = self._socket.recv_into(target)
        except OSError as error:
            raise ChannelClosedError from error
        if not count:
            raise ChannelClosedError
        return count

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


class MessageFile(io.RawIOBase):
    """A file whose writes are messages."""

    def __init__(self, channel: Channel, kind: Kind) -> None:
        super().__init__()
        self._channel = channel
        self._kind = kind

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._channel.send_bytes(self._kind, view)
        return len(view)
