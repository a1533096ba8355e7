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
from ..gateway.threads import TimeLimit, requested_seconds
from ..operations import Answer, Body, Call, Operation
from ..queries.pool import Run
from .calls import (
    cancelled_on_disconnect,
    check_batch,
    parse_call,
    read_body,
    receive_within,
    require_no_encoding,
    run_by_size,
)
from .streams import ARROW_FILE, ARROW_STREAM, RowsResponse, UploadedFile


async def handle(gateway: Gateway, request: Request, operation: Operation) -> Response:
    """Handle one request, and return its response.

    Raises:
        LanceNamespaceError: What the operation raises; not found for hidden objects.
    """
    limits, readers = gateway.limits, gateway.readers
    limit = TimeLimit(min(limits.operation_seconds, requested_seconds(request.headers)))
    most, seconds = request.state.limits.body_bytes, min(limits.stall_seconds, limit.seconds)
    require_no_encoding(request)
    takes_rows = operation.body is Body.ROWS
    body = b"" if takes_rows else await read_body(request, most, seconds)
    prepare = partial(_prepare, gateway, request, operation, body)
    call, model = await run_by_size(len(body), prepare, readers)
    arguments: list[Any] = [model]
    if takes_rows:
        upload = UploadedFile(request, limits.stall_seconds, limits.batch_bytes)
        with receive_within(limit.remaining):
            small = await upload.read_small()
        arguments.append(upload if small is None else small)
    run = Run(limit.remaining)
    execution = gateway.execution(request, call, arguments, run)
    work = partial(execution.run, Responder(gateway, execution, limit, run).respond)
    catalog = gateway.catalog_of(call.fields.get("id"))
    if not (operation.is_query and operation.is_read):  # a change has to be recorded
        return await gateway.run(request, work, call.operation, limit, catalog)
    async with cancelled_on_disconnect(request, run):
        return await gateway.run(request, work, call.operation, limit, catalog)


def _prepare(
    gateway: Gateway, request: Request, operation: Operation, body: bytes
) -> tuple[Call, Any]:
    """Return the call in a request, translated for the namespace, and its request model."""
    call = parse_call(request, operation, body)
    if call.is_lancedb:
        call = replace(call, fields=lancedb.translate_request(call.operation.name, call.fields))
    path = lancedb.database_of(request, gateway.databases)
    if path is not None:
        call = _in_database(call, path)
    check_batch(call, gateway.limits.batch_entries)
    return call, call.model()


def _in_database(call: Call, path: list[str]) -> Call:
    """Prepend the path of LanceDB's database to the identifiers of a call."""
    is_list = call.operation.name == "list_all_tables"
    operation = lancedb.TABLE_NAMES if is_list else call.operation
    fields = lancedb.in_database(path, operation.name, call.fields)
    return replace(call, operation=operation, fields=fields)


@dataclass(frozen=True)
class Responder:
    """Makes responses for a client of the API."""

    gateway: Gateway
    execution: Execution
    limit: TimeLimit
    run: Run

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
        if call.is_lancedb:
            namespace, request = self.execution.namespace, self.execution.arguments[0]
            content = lancedb.translate_answer(namespace, operation.name, request, content)
            headers |= self._version_header(content)
        return JSONResponse(content, operation.status, headers)

    def _version_header(self, answer: Any = None) -> dict[str, str]:
        version = lancedb.version_of(answer)
        return lancedb.version_header(
            version or getattr(self.execution.state, "read_version", None)
        )

    def _rows(self, result: Any) -> Response:
        if isinstance(result, pa.RecordBatchReader):
            media_type = ARROW_STREAM if self.execution.call.is_lancedb else ARROW_FILE
            seconds, senders = self.gateway.limits.stall_seconds, self.gateway.senders
            headers = self._version_header()
            end, limit = self.run.cancel, self.limit
            return RowsResponse(
                result, media_type, seconds, senders, limit, on_end=end, headers=headers
            )
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
