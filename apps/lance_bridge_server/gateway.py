"""The gateway: a namespace behind authentication, authorization, limits and an audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread
import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lance_bridge.errors import internal, is_panic

from . import lancedb
from .authorization import AllowAll, Authorizer, authorize, visible_page
from .calls import Call, read_call
from .operations import Answer, Body, Operation
from .principals import Anonymous, Authenticator, Principal
from .streams import ARROW_FILE, ARROW_STREAM, RowsResponse, UploadedFile, with_first_batch


@dataclass(frozen=True)
class Limits:
    """How much one request may take."""

    body_bytes: int = 16 << 20
    """The largest JSON body."""
    stall_seconds: float = 120.0
    """How long a client may send or read nothing while rows are sent."""
    threads: int = 64
    """How many operations are carried out at once."""


@dataclass
class Gateway:
    """What answers requests. Shared by all of them; safe for that."""

    namespace: LanceNamespace
    authenticator: Authenticator = field(default_factory=Anonymous)
    authorizer: Authorizer = field(default_factory=AllowAll)
    limits: Limits = field(default_factory=Limits)
    database_path: Callable[[str], Sequence[str]] = field(default_factory=lancedb.DatabasePaths)
    """The path of the namespace that LanceDB calls a database."""

    def __post_init__(self) -> None:
        self._threads = anyio.CapacityLimiter(self.limits.threads)

    async def answer(self, request: Request, operation: Operation) -> Response:
        """Carry out one request.

        Raises:
            LanceNamespaceError: What the operation raises; for what may not be seen, not found.
        """
        principal: Principal = request.state.principal
        call = await read_call(request, operation, self.limits.body_bytes)
        is_lancedb = lancedb.is_lancedb(request)
        call = self._of_lancedb(request, call, is_lancedb=is_lancedb)
        authorize(self.authorizer, principal, call)
        arguments: list[Any] = [call.model()]
        if operation.body is Body.ROWS:
            arguments.append(UploadedFile(request, self.limits.stall_seconds))
        run = _Run(self, principal, call, arguments, is_lancedb)
        request.state.is_started = True
        return await anyio.to_thread.run_sync(run, limiter=self._threads)

    def _of_lancedb(self, request: Request, call: Call, *, is_lancedb: bool) -> Call:
        """Return a call of LanceDB's client as the specification has it, with the whole path."""
        operation, fields = call.operation, call.fields
        if is_lancedb:
            fields = lancedb.translate_request(operation.name, fields)
        path = lancedb.database_of(request.headers, self.database_path)
        if path is None:
            return Call(operation, fields, call.delimiter)
        if operation.name == "list_all_tables":
            operation = lancedb.TABLE_NAMES
        return Call(operation, lancedb.in_database(path, operation.name, fields), call.delimiter)


@dataclass(frozen=True)
class _Run:
    """One operation, as a thread carries it out."""

    gateway: Gateway
    principal: Principal
    call: Call
    arguments: list[Any]
    is_lancedb: bool

    def __call__(self) -> Response:
        try:
            return self._respond(self._result())
        except LanceNamespaceError:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise internal(self.call.operation.name, error) from error

    def _result(self) -> Any:
        operation, namespace = self.call.operation, self.gateway.namespace
        if operation.answer is Answer.ROWS and hasattr(namespace, "query_table_reader"):
            return with_first_batch(namespace.query_table_reader(*self.arguments))
        method = getattr(namespace, operation.name)
        if operation is lancedb.TABLE_NAMES:
            method = lancedb.pages_by_name(method)
        if operation.name in _LISTINGS:
            allowed = (self.gateway.authorizer, self.principal)
            return visible_page(*allowed, self.call, self.arguments[0], method)
        return method(*self.arguments)

    def _respond(self, result: Any) -> Response:
        operation = self.call.operation
        if operation.answer is Answer.EMPTY:
            return Response(status_code=operation.status)
        if operation.answer is Answer.ROWS:
            return self._rows(result)
        content = _plain(result)
        if operation.answer is Answer.METADATA:
            content = content.get("metadata", {}) if isinstance(content, dict) else content
        elif operation.answer is Answer.VALUE and isinstance(content, dict):
            content = content["count"]
        if not self.is_lancedb:
            return JSONResponse(content, operation.status)
        content = lancedb.translate_answer(
            self.gateway.namespace, operation.name, self.arguments[0], content
        )
        return JSONResponse(content, operation.status, lancedb.version_headers(content))

    def _rows(self, result: Any) -> Response:
        if isinstance(result, pa.RecordBatchReader):
            media_type = ARROW_STREAM if self.is_lancedb else ARROW_FILE
            return RowsResponse(result, media_type, self.gateway.limits.stall_seconds)
        return Response(result if isinstance(result, bytes) else result.data, media_type=ARROW_FILE)


_LISTINGS = {"list_namespaces", "list_tables", "list_all_tables"}


def _plain(result: Any) -> Any:
    if hasattr(result, "model_dump"):
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return result
