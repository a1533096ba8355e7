"""Streams rows between HTTP and a namespace, without holding them in memory.

A namespace runs in a thread, and pulls rows from the request or pushes them into the response. Each
side waits for the slower one.
"""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
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

from ..arrow_limits import BatchLimits
from ..gateway.threads import TimeLimit
from ..queries.runs import Run
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
        self._ahead: asyncio.Future[list[bytes]] | None = None
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
        """Return the next parts, and receive further ones while the thread reads these."""
        ahead = self._ahead = self._ahead or self._receive_ahead()
        parts = await ahead
        if parts:
            self._ahead = self._receive_ahead()
        return parts

    def _receive_ahead(self) -> asyncio.Future[list[bytes]]:
        ahead = asyncio.ensure_future(self._collect())
        ahead.add_done_callback(_take_error)
        return ahead

    async def _collect(self) -> list[bytes]:
        """Receive several parts: each switch from a thread to the event loop costs time."""
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


def _take_error(received: asyncio.Future[list[bytes]]) -> None:
    """Keep asyncio from logging an error that no thread reads any more: the request has ended."""
    if not received.cancelled():
        received.exception()


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
        run: Run,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Create a response without sending anything yet.

        Args:
            stall_seconds: How long a client may read nothing before the connection is closed.
            senders: Limits how many responses are sent at once.
            limit: How long to wait until this one may be sent.
            run: The query. It is cancelled at the end: it may still run if the client has
                disconnected.
        """
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._reader = reader
        self._stall_seconds = stall_seconds
        self._senders = senders
        self._limit = limit
        self._run = run
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
            self._run.cancel()

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
            self._run.stalled_since = time.monotonic()
            is_sent = await send_part(send, part, self._stall_seconds, more_body=True)
            self._run.stalled_since = float("inf")
            if not is_sent:
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
        part = bytes(memoryview(data)[:_BUFFER_BYTES])  # a row may have hundreds of MiB
        if self.is_cut:
            return len(part)
        anyio.from_thread.run(self._sender.send, part, token=self._token)
        return len(part)
