"""One request and its response: its id, its counts, its trace, and the end of the process."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from typing import Any

import anyio
from lance_namespace.errors import ErrorCode, LanceNamespaceError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import lancedb
from ..access.audit import AuditTrail
from ..gateway.gateway import Gateway
from ..monitoring import (
    REQUEST_ID,
    SERVER_ERROR,
    end_span,
    result_attributes,
    span_of,
)
from .lifecycle import Answer, Process, stopping_error

_log = logging.getLogger(__name__)

REQUEST_ID_HEADER = b"x-request-id"
_MAX_REQUEST_ID = 200
_ERROR = 400
_PIECE_BYTES = 256 << 10
_VERSION_HEADER = (lancedb.VERSION_HEADER.encode(), lancedb.VERSION.encode())


class Exchanges:
    """Makes an `Exchange` of each request."""

    def __init__(self, app: ASGIApp, gateway: Gateway, process: Process, on_end: Answer) -> None:
        """Args: on_end: Returns the response to a request that the end of the process ends."""
        self._app = app
        self._gateway = gateway
        self._process = process
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Routes are found by the undecoded path, so that an encoded slash stays part of a name.
        raw = scope.get("raw_path") or scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1")
        scope = {**scope, "path": path.rstrip("/") or "/"}
        exchange = Exchange(scope, receive, send, self._gateway, self._process)
        await exchange.run(self._app, self._on_end)


class Exchange:
    """A request and its response.

    Attributes:
        status: The status of the response; None if it has none, or the client disconnected first.
        code: The code of its error.
        is_ended: Whether the end of the process has ended it.
    """

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, gateway: Gateway, process: Process
    ) -> None:
        self.scope = scope
        self._receive, self._send = receive, send
        self._gateway, self._process = gateway, process
        self._id = _request_id(scope)
        self._state: dict[str, Any] = scope.setdefault("state", {})
        self._state |= {"request_id": self._id.decode("latin-1"), "exchange": self}
        self._trail = AuditTrail(gateway.audit, scope)
        self._state["audit_trail"] = self._trail
        self._received = self._sent = 0
        self.task = asyncio.current_task()
        self.status: int | None = None
        self.code: int | None = None
        self.is_ended = False

    async def run(self, app: ASGIApp, on_end: Answer) -> None:
        """Run an application on the request, until its end or that of the process."""
        REQUEST_ID.set(self._state["request_id"])
        started = time.perf_counter()
        metrics, active = self._process.metrics, self._process.lifecycle.active
        active.add(self)
        self._gateway.requests += 1
        request = metrics.begin(self.scope)
        with span_of(self.scope) as span:
            try:
                await self._run(app, on_end)
            finally:
                self._trail.end(self.status, self.code)
                operation = self._state.get("operation")
                result = result_attributes(operation, self.status, self.code)
                seconds = time.perf_counter() - started
                metrics.end(request, result, seconds, self._received, self._sent)
                if span.is_recording():
                    end_span(span, result, self.status)
                self._gateway.requests -= 1
                self._process.admission.leave(self._state)
                active.discard(self)

    async def _run(self, app: ASGIApp, on_end: Answer) -> None:
        """Run the application, and record an exception that another layer handles."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self.is_ended or self.status is not None:
                self.status = self.code = None
                raise
            answer = on_end(self.scope, stopping_error(self.scope))
            await answer(self.scope, self.receive, self.send)
        except Exception:
            self.status, self.code = SERVER_ERROR, ErrorCode.INTERNAL.value
            raise
        except BaseException:
            self.status = self.code = None
            raise

    async def receive(self) -> Message:
        """Receive a message of the client, and count its bytes."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """Send a message to the client.

        A body that is in memory is sent in pieces, each after the client has read most of the one
        before: a server that has the whole body counts the response as complete, and soon closes
        the connection, whether the client has read it or not.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            added = [(REQUEST_ID_HEADER, self._id), _VERSION_HEADER]
            if self._process.lifecycle.is_stopping:
                added.append((b"connection", b"close"))
            await self._send({**message, "headers": [*message.get("headers", ()), *added]})
            return
        body = message.get("body", b"")
        if message.get("more_body") or len(body) <= _PIECE_BYTES:
            await self._send_body(message)
            return
        stall_seconds = self._gateway.limits.stall_seconds
        for start in range(0, len(body), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            more = end < len(body)
            if not await send_part(self._send_body, body[start:end], stall_seconds, more_body=more):
                self.status = None
                return

    async def _send_body(self, message: Message) -> None:
        body = message.get("body", b"")
        self._sent += len(body)
        if self.status is not None and self.status >= _ERROR and self.code is None:
            self.code = _error_code(body)
        if not message.get("more_body"):
            # Before the last part is sent: a client that has it may send its next request at once.
            self._process.admission.leave(self._state)
        await self._send(message)

    def record_error(self, error: Exception) -> None:
        """Record an error that ended a response after its status was sent."""
        code = error.code if isinstance(error, LanceNamespaceError) else ErrorCode.INTERNAL
        self.status, self.code = SERVER_ERROR, ErrorCode(code).value


def exchange_of(scope: Scope) -> Exchange:
    """Return the exchange of a request."""
    exchange: Exchange = scope["state"]["exchange"]
    return exchange


async def send_part(send: Send, part: bytes, stall_seconds: float, *, more_body: bool) -> bool:
    """Return whether a part was sent: not if the client reads nothing for too long."""
    with anyio.move_on_after(stall_seconds):
        await send({"type": "http.response.body", "body": part, "more_body": more_body})
        return True
    _log.warning("A client read nothing for %g seconds", stall_seconds)
    return False


def _request_id(scope: Scope) -> bytes:
    """Return the id that the client gives, or a new one."""
    given: bytes = next(
        (value for name, value in scope["headers"] if name == REQUEST_ID_HEADER), b""
    )
    if 0 < len(given) <= _MAX_REQUEST_ID and given.isascii() and given.decode().isprintable():
        return given
    return str(uuid.uuid4()).encode()


def _error_code(body: bytes) -> int | None:
    """Return the code in the JSON body of an error of the gateway, or None."""
    try:
        code = json.loads(body)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
