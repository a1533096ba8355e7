"""Streams rows between HTTP and a namespace, without holding them in memory, and within limits.

A namespace runs in a thread, and pulls rows from the request or pushes them into the response. Each
side waits for the slower one.

pyarrow allocates the size that an Arrow IPC stream states for a batch. A few bytes can state
gigabytes, and compressed zeros can expand to them. So the sizes in the flatbuffers of messages are
read first, while the stream arrives.

Source: Arrow's columnar format, "Encapsulated message format"; Message.fbs.
"""

from __future__ import annotations

import io
import logging
import struct
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pyarrow as pa
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.lowlevel import EventLoopToken, current_token
from lance_namespace.errors import ServiceUnavailableError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lance_bridge.errors import invalid

from ..gateway.threads import TimeLimit
from .calls import receive_within
from .exchange import exchange_of, send_part

_log = logging.getLogger(__name__)

ARROW_FILE = "application/vnd.apache.arrow.file"
ARROW_STREAM = "application/vnd.apache.arrow.stream"

_SMALL_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
"""How many bytes of a request are received before a thread reads them."""
_BUFFER_BYTES = 1 << 20
"""How many bytes of a response are collected before they are sent."""


class UploadedFile:
    """The body of a request as a file, read in threads. Each read waits for the client.

    Raises:
        ServiceUnavailableError: (17) the client disconnected, or sent nothing for too long. Nothing
            is committed then, because rows are committed only after all of them were read.
        InvalidInputError: (13) a batch is too large.
    """

    def __init__(self, request: Request, stall_seconds: float, batch_bytes: int) -> None:
        """Create a file without receiving anything yet.

        Args:
            stall_seconds: How long to wait for the next part of the body.
            batch_bytes: The size of the largest batch, without compression.
        """
        self._parts = request.stream()
        self._token: EventLoopToken = current_token()
        self._stall_seconds = stall_seconds
        self._limits = BatchLimits(batch_bytes)
        self._rest = deque[memoryview]()
        self.size = 0
        """The number of bytes received so far."""

    async def read_small(self) -> bytes | None:
        """Receive and return the body if it is small, so that it can be read repeatedly; else None.

        Rows in memory are checked before anything is changed. Rows of a larger body are checked
        while they are written.
        """
        parts: list[bytes] = []
        while self.size <= _SMALL_BYTES:
            part = await self._next_part()
            if part is None:
                return b"".join(parts)
            parts.append(part)
        self._rest.extend(map(memoryview, parts))
        return None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` of the next bytes, or no bytes at the end. -1 is not supported.

        Raises as documented for the class.
        """
        return b"".join(self.read_parts(size))

    def read_parts(self, size: int) -> list[memoryview]:
        """Return what `read` does, in parts and without copying it."""
        self._receive()
        taken = []
        while self._rest and size > 0:
            taken.append(self._take(size))
            size -= len(taken[-1])
        return taken

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return ``size`` bytes, or fewer at the end. Arrow prefers it, since it copies them once.

        Raises as documented for the class.
        """
        buffer = pa.allocate_buffer(size)
        content, filled = memoryview(buffer).cast("B"), 0
        while filled < size:
            self._receive()
            if not self._rest:
                break
            taken = self._take(size - filled)
            content[filled : filled + len(taken)] = taken
            filled += len(taken)
        return buffer.slice(0, filled)

    def _take(self, size: int) -> memoryview:
        """Take up to ``size`` bytes of the first part that was received."""
        part = self._rest.popleft()
        if len(part) > size:
            self._rest.appendleft(part[size:])
        return part[:size]

    def _receive(self) -> None:
        """Wait for further parts if none is left; there are none at the end."""
        if not self._rest:
            parts = anyio.from_thread.run(self._next_parts, token=self._token)
            self._rest.extend(map(memoryview, parts))

    async def _next_parts(self) -> list[bytes]:
        """Return several parts: each switch from a thread to the event loop costs time."""
        parts: list[bytes] = []
        size = 0
        while size < _PIECE_BYTES:
            part = await self._next_part()
            if part is None:
                break
            parts.append(part)
            size += len(part)
        return parts

    async def _next_part(self) -> bytes | None:
        with receive_within(self._stall_seconds):
            part = await anext(self._parts, None)
        if part is not None:
            self.size += len(part)
            self._limits.feed(part)
        return part


class RowsResponse(Response):
    """A response with rows, written batch by batch while the client reads.

    The first batch is read before the status is sent, so that a query that fails immediately
    returns an error. A later failure closes the connection before the end of the response, so that
    clients detect that it is incomplete.
    """

    def __init__(
        self,
        reader: pa.RecordBatchReader,
        media_type: str,
        stall_seconds: float,
        senders: anyio.CapacityLimiter,
        limit: TimeLimit,
        *,
        on_end: Callable[[], object],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Create a response without sending anything yet.

        Args:
            stall_seconds: How long a client may read nothing before the connection is closed.
            senders: Limits how many responses are sent at once.
            limit: How long to wait until this one may be sent.
            on_end: Called at the end: the query may still run if the client has disconnected.
        """
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._reader = reader
        self._stall_seconds = stall_seconds
        self._senders = senders
        self._limit = limit
        self._on_end = on_end
        self._error: Exception | None = None
        self._is_complete = False
        self._is_sent = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        Raises:
            ServiceUnavailableError: (17) too many others are being sent. Nothing was sent.
        """
        try:
            await self._send_or_refuse(scope, receive, send)
        finally:
            self._on_end()

    async def _send_or_refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_busy = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            is_busy = not await self._acquire_sender()
            if not is_busy:
                try:
                    await self._send_rows(send)
                finally:
                    self._senders.release()
            tasks.cancel_scope.cancel()
        if is_busy:
            raise ServiceUnavailableError(
                f"The rows could not be sent within {self._limit.seconds:g} seconds: the server is "
                "busy; nothing was changed"
            )
        if self._error is not None:
            exchange_of(scope).record_error(self._error)
        elif not self._is_sent:
            exchange_of(scope).status = None

    async def _acquire_sender(self) -> bool:
        """Return whether the response may be sent: not if too many others are, for too long."""
        with anyio.move_on_after(self._limit.remaining):
            await self._senders.acquire()
            return True
        return False

    async def _send_rows(self, send: Send) -> None:
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        sender, receiver = anyio.create_memory_object_stream[bytes](1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._produce, sender)
            async with receiver:
                await self._send_all(receiver, send)

    async def _send_all(self, parts: ObjectReceiveStream[bytes], send: Send) -> None:
        async for part in parts:
            if not await send_part(send, part, self._stall_seconds, more_body=True):
                return
        if self._is_complete:  # else the server closes the connection
            self._is_sent = await send_part(send, b"", self._stall_seconds, more_body=False)

    async def _produce(self, sender: ObjectSendStream[bytes]) -> None:
        async with sender:
            write = partial(self._write, _SentFile(sender, current_token()))
            try:
                await anyio.to_thread.run_sync(write, limiter=anyio.CapacityLimiter(1))
            except anyio.BrokenResourceError:
                pass  # the client disconnected
            except Exception as error:  # noqa: BLE001 - whatever reading raises
                self._error = error
                _log.exception("A query failed after its first rows were sent")
            else:
                self._is_complete = True

    def _write(self, sink: _SentFile) -> None:
        new: Callable[..., Any] = pa.ipc.new_stream
        if self.media_type == ARROW_FILE:
            new = pa.ipc.new_file
        with (
            io.BufferedWriter(sink, _BUFFER_BYTES) as buffered,
            new(buffered, self._reader.schema) as writer,
        ):
            try:
                for batch in self._reader:
                    writer.write_batch(batch)
            except BaseException:
                sink.is_cut = True  # closing the writer would write a valid end
                raise


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _SentFile(io.RawIOBase):
    """A file whose writes, in a thread, are passed to the event loop and wait there."""

    def __init__(self, sender: ObjectSendStream[bytes], token: EventLoopToken) -> None:
        super().__init__()
        self._sender = sender
        self._token = token
        self.is_cut = False
        """Whether further writes are dropped."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        if self.is_cut:
            return len(part)
        anyio.from_thread.run(self._sender.send, part, token=self._token)
        return len(part)


# -- limits ----------------------------------------------------------------------------------------


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
                check_schema(message.schema())
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
            InvalidInputError: (13) it has too many columns, or is malformed.
        """
        if self._header is not None and self._header.length(1) > MAX_FIELDS:
            raise invalid(f"The schema has more than {MAX_FIELDS} columns and fields in them")
        prefix = struct.pack("<II", _CONTINUATION, len(self._data))
        try:
            return pa.ipc.read_schema(pa.py_buffer(prefix + self._data))
        except (pa.ArrowException, OSError) as error:
            raise invalid(f"The body is not a valid Arrow IPC stream: {error}") from error

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
