"""Handles the requests of clients: reads a call, has the gateway execute it, and responds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from lance_namespace.errors import ErrorCode
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lance_bridge.names import DELIMITER

from .. import lancedb
from ..access.visibility import no_store
from ..errors import public_text
from ..gateway.execution import Execution
from ..gateway.gateway import Gateway
from ..gateway.sql_functions import refuse_functions
from ..gateway.threads import TimeLimit, requested_seconds
from ..operations import Answer, Body, Call, Operation
from .calls import check_batch, read_call, receive_within, run_by_size
from .streams import ARROW_FILE, ARROW_STREAM, RowsResponse, UploadedFile


async def handle(gateway: Gateway, request: Request, operation: Operation) -> Response:
    """Handle one request, and return its response.

    Raises:
        LanceNamespaceError: What the operation raises; not found for hidden objects.
    """
    limits, readers = gateway.limits, gateway.readers
    limit = TimeLimit(min(limits.operation_seconds, requested_seconds(request.headers)))
    body_bytes = limits.body_bytes_of(request.state.principal)
    body_seconds = min(limits.stall_seconds, limit.seconds)
    call = await read_call(request, operation, body_bytes, body_seconds, readers)
    call, model = await run_by_size(call.size, partial(_prepare, gateway, request, call), readers)
    arguments: list[Any] = [model]
    if operation.body is Body.ROWS:
        upload = UploadedFile(request, limits.stall_seconds, limits.batch_bytes)
        with receive_within(limit.remaining):
            small = await upload.read_small()
        arguments.append(upload if small is None else small)
    least = lancedb.min_version(request.headers) if lancedb.is_lancedb(request) else None
    execution = gateway.execution(request, call, arguments, least)
    respond = Responder(gateway, execution, limit).respond
    return await gateway.run(request, partial(execution.run, respond), call.operation, limit)


def _prepare(gateway: Gateway, request: Request, call: Call) -> tuple[Call, Any]:
    """Return the call translated for the namespace, and its request model."""
    call = _translate_lancedb(gateway, request, call)
    check_batch(call, gateway.limits.batch_entries)
    refuse_functions(call.fields)
    return call, call.model()


def _translate_lancedb(gateway: Gateway, request: Request, call: Call) -> Call:
    """Translate a call of LanceDB's client, and prepend the path of its database."""
    operation, fields = call.operation, call.fields
    if lancedb.is_lancedb(request):
        fields = lancedb.translate_request(operation.name, fields)
    path = lancedb.database_of(request, gateway.databases)
    if path is None:
        return replace(call, fields=fields)
    if operation.name == "list_all_tables":
        operation = lancedb.TABLE_NAMES
    fields = lancedb.in_database(path, operation.name, fields)
    return replace(call, operation=operation, fields=fields)


@dataclass(frozen=True)
class Responder:
    """Makes responses for a client of the API."""

    gateway: Gateway
    execution: Execution
    limit: TimeLimit

    def respond(self, result: Any) -> Response:
        """Return the response with the result of an operation. Called in the operation's thread."""
        call = self.execution.call
        operation = call.operation
        if operation.answer is Answer.EMPTY:
            return Response(status_code=operation.status)
        if operation.answer is Answer.ROWS:
            return self._rows(result)
        content = _to_json(result)
        if operation.name == "list_all_tables" and call.delimiter != DELIMITER:
            content["tables"] = [
                name.replace(DELIMITER, call.delimiter) for name in content["tables"]
            ]
        if operation.answer is Answer.METADATA:
            content = content.get("metadata", {}) if isinstance(content, dict) else content
        elif operation.answer is Answer.VALUE and isinstance(content, dict):
            content = content["count"]
        headers = no_store(content)
        if self._is_lancedb:
            namespace, request = self.execution.namespace, self.execution.arguments[0]
            content = lancedb.translate_answer(namespace, operation.name, request, content)
            headers |= self._version_header(content)
        return JSONResponse(content, operation.status, headers)

    @property
    def _is_lancedb(self) -> bool:
        return self.execution.min_version is not None

    def _version_header(self, answer: Any = None) -> dict[str, str]:
        version = lancedb.version_of(answer)
        return lancedb.version_header(
            version or getattr(self.execution.state, "read_version", None)
        )

    def _rows(self, result: Any) -> Response:
        if isinstance(result, pa.RecordBatchReader):
            media_type = ARROW_STREAM if self._is_lancedb else ARROW_FILE
            seconds, senders = self.gateway.limits.stall_seconds, self.gateway.senders
            headers = self._version_header()
            return RowsResponse(result, media_type, seconds, senders, self.limit, headers=headers)
        return Response(result if isinstance(result, bytes) else result.data, media_type=ARROW_FILE)


def _to_json(result: Any) -> Any:
    if hasattr(result, "model_dump"):
        content = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        context = content.get("context")  # where a federation reports unavailable catalogs
        if context:
            unavailable = ErrorCode.SERVICE_UNAVAILABLE
            content["context"] = {
                key: public_text(text, unavailable) for key, text in context.items()
            }
        return content
    return result
