"""Reads a call, which is one request for an operation, from HTTP."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import Any, get_args
from urllib.parse import parse_qsl, unquote

import anyio
from lance_namespace.errors import ServiceUnavailableError
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from lance_bridge.dotted_names import DELIMITER
from lance_bridge.errors import invalid

from .. import json_limits, lancedb
from ..arrow_limits import read_schema
from ..monitoring import request_context
from ..operations import Body, Call, Operation
from ..queries.runs import Run, RunGroup

_ARROW = "application/vnd.apache.arrow.stream"
_JSON = "application/json"
_NOT_IN_QUERY = {"id", "identity", "context"}
_MAX_QUERY_PARAMETERS = 1000
_DELETE = "batch_delete_table_versions"
_BATCHES = {
    "batch_create_table_versions": "entries",
    "batch_commit_tables": "operations",
    _DELETE: "ranges",
}
"""The name of each batch's field with its entries."""
_NO_BODY = (b"", b"null")
_INTEGER = re.compile(r"-?[0-9]{1,18}")


async def read_body(request: Request, max_bytes: int, max_seconds: float) -> bytes:
    """Return a body that is not rows.

    Args:
        max_seconds: How long it may take to arrive.

    Raises:
        BodyTooLargeError: it is larger than the limit; the rest is not read.
        ServiceUnavailableError: (17) it did not arrive in time, or the client disconnected.
    """
    parts, size = list[bytes](), 0
    with receive_within(max_seconds):
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                raise BodyTooLargeError(f"The body is larger than {max_bytes} bytes")
            parts.append(part)
    return b"".join(parts)


def parse_call(request: Request, operation: Operation, body: bytes) -> Call:
    """Return the call in a request.

    Args:
        body: The body, unless it is rows.

    Raises:
        InvalidInputError: (13) it is malformed, or its path, query, headers and body disagree.
        MediaTypeError: its body is of another media type.
    """
    query = _read_query(request) if request.scope["query_string"] else None
    delimiter = (_single_value(query, "delimiter") if query else None) or DELIMITER
    fields = _without_empty_ids(_parse_body(request, operation, body))
    if query:
        fields = _merge_fields(fields, _query_fields(operation.request, query), "query")
    if operation.name == "create_table":
        fields = _merge_fields(fields, _header_fields(request.headers), "headers")
    fields = _merge_fields(fields, _path_fields(request, delimiter), "path")
    if not operation.has_id and fields.get("id"):
        raise invalid(f"{operation.name} takes no identifier")
    least = lancedb.min_version(request.headers) if lancedb.is_lancedb(request) else None
    return Call(operation, fields, delimiter, request_context(request), least)


def _path_fields(request: Request, delimiter: str) -> dict[str, Any]:
    """Return the fields in the path. An identifier that is the delimiter alone is the root."""
    found: dict[str, Any] = {}
    for name, text in request.path_params.items():
        try:
            found[name] = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise invalid(f"The {name} in the path is not UTF-8") from None
    if "id" in found:
        found["id"] = [] if found["id"] == delimiter else found["id"].split(delimiter)
    return found


# -- body ------------------------------------------------------------------------------------------


class BodyTooLargeError(Exception):
    """A request's body is larger than the server accepts."""


class MediaTypeError(Exception):
    """A request's body has a media type that the operation does not accept."""


def _parse_body(request: Request, operation: Operation, body: bytes) -> dict[str, Any]:
    is_rows = operation.body is Body.ROWS
    if not is_rows and body.strip() in _NO_BODY:
        if operation.requires_body:
            raise invalid("The body is missing; this operation takes a JSON object")
        return {}
    found, wanted = media_type(request), _ARROW if is_rows else _JSON
    if operation.name == lancedb.NEW_COLUMNS and found == _ARROW:
        return lancedb.new_columns(body)
    if found != wanted:
        shown = f"'{found[:100]}'" if found else "missing"
        raise MediaTypeError(f"The header Content-Type is {shown}; this operation takes '{wanted}'")
    if is_rows:
        return {}
    fields = _parse_json(body)
    if operation.name == lancedb.NEW_COLUMNS and isinstance(fields.get("arrow_schema"), str):
        with suppress(binascii.Error):  # the catalog says what is wrong
            read_schema(base64.b64decode(fields["arrow_schema"]))
    return {"metadata": fields} if operation.body is Body.METADATA else fields


def require_no_encoding(request: Request) -> None:
    """Refuse compressed bodies, because a few bytes can expand to any size.

    Raises:
        MediaTypeError:
    """
    found = request.headers.get("content-encoding", "identity").strip().lower()
    if found != "identity":
        raise MediaTypeError(
            f"The header Content-Encoding is '{found[:100]}'; send rows with the compression of "
            "Arrow, and JSON without any"
        )


@asynccontextmanager
async def cancelled_on_disconnect(request: Request, run: Run | RunGroup) -> AsyncIterator[None]:
    """Cancel what runs if the client disconnects during the block. Its body has been received."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        run.cancel()

    task = asyncio.create_task(wait())
    try:
        yield
    finally:
        task.cancel()


def media_type(request: Request) -> str:
    """Return the media type of a body, in lower case and without parameters, or an empty string."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@contextmanager
def receive_within(max_seconds: float) -> Iterator[None]:
    """Raise ServiceUnavailable (17) if receiving from a client takes longer, or it disconnects."""
    try:
        with anyio.fail_after(max_seconds):
            yield
    except TimeoutError:
        message = f"The client took longer than {round(max_seconds, 3):g} seconds to send"
        raise ServiceUnavailableError(f"{message}; nothing was changed") from None
    except ClientDisconnect:
        raise ServiceUnavailableError("The client disconnected; nothing was changed") from None


def _parse_json(body: bytes) -> dict[str, Any]:
    is_small = len(body) <= json_limits.SMALL_BYTES
    if not is_small:
        json_limits.check_body(body)
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(f"The body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise invalid("The body is not a JSON object")
    if not is_small:
        json_limits.check_values(found)
    return found


def check_batch(call: Call, most: int) -> None:
    """Refuse a batch with too many entries.

    Raises:
        BodyTooLargeError:
    """
    name = call.operation.name
    count = _count_entries(name, call.fields) if name in _BATCHES else 0
    if count > most:
        raise BodyTooLargeError(f"The batch has {count} entries; the limit is {most}: split it")


def _count_entries(operation: str, fields: Mapping[str, Any]) -> int:
    entries = fields.get(_BATCHES.get(operation, ""))
    if not isinstance(entries, list):
        return 0
    inner = (each.get("delete_table_versions") for each in entries if isinstance(each, dict))
    ranges = (_count_entries(_DELETE, each) for each in inner if isinstance(each, dict))
    return len(entries) + sum(ranges)


# -- query -----------------------------------------------------------------------------------------


def _read_query(request: Request) -> QueryParams:
    try:
        text = request.scope["query_string"].decode()
        return QueryParams(
            parse_qsl(text, True, errors="strict", max_num_fields=_MAX_QUERY_PARAMETERS)
        )
    except UnicodeDecodeError:
        raise invalid("The query is not UTF-8") from None
    except ValueError:
        raise invalid(f"The query has more than {_MAX_QUERY_PARAMETERS} parameters") from None


def _single_value(query: QueryParams, name: str) -> str | None:
    """Return the only value of a query parameter, or None for a missing one."""
    values = set(query.getlist(name))
    if len(values) > 1:
        raise invalid(f"The query parameter {name} is given more than once")
    return values.pop() if values else None


# -- fields outside of the body --------------------------------------------------------------------


def _without_empty_ids(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields without empty identifiers, which Java's client sends for missing ones.

    A table is never renamed to be in the root: catalogs have no tables there.
    """
    kept = {name: each for name, each in fields.items() if (name, each) != ("new_namespace_id", [])}
    query = kept.get("query")
    if isinstance(query, dict) and query.get("id") == []:
        kept["query"] = {name: each for name, each in query.items() if name != "id"}
    return kept


def _merge_fields(fields: dict[str, Any], others: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return fields merged with those from the path, query or headers.

    Nulls and empty lists in a body count as missing. A boolean is true if either value is: clients
    set it in the query of describe, and leave its default in the body.
    """
    merged = {**fields, **others}
    for name, value in others.items():
        given = fields.get(name)
        if isinstance(given, bool) and isinstance(value, bool):
            merged[name] = given or value
        elif given not in (None, [], value):
            shown = f"`{name}` {value}" if name == "id" else f"`{name}`"
            raise invalid(f"{shown} in the {place} contradicts the rest of the request")
    return merged


def _header_fields(headers: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, (header, read) in _HEADERS.items():
        if header in headers:
            found[name] = read(name, headers[header])
    return found


def _query_fields(request: type[BaseModel], query: QueryParams) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in query:
        if name not in request.model_fields or name in _NOT_IN_QUERY:
            continue
        type_name = _type_name(request, name)
        if type_name == "list":
            found[name] = query.getlist(name)
        else:
            found[name] = _READERS[type_name](name, _single_value(query, name) or "")
    return found


@cache
def _type_name(request: type[BaseModel], name: str) -> str:
    """Return the plain type of a field: str, int, float, bool, list or dict."""
    pending = [request.model_fields[name].annotation]
    while pending:
        each = pending.pop()
        plain = getattr(each, "__origin__", each)
        if plain in (str, int, float, bool, list, dict):
            return str(plain.__name__)
        pending.extend(get_args(each))
    return "str"


def _parse_bool(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise invalid(f"The query parameter {name} is neither true nor false")
    return text == "true"


def _parse_int(name: str, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise invalid(f"The query parameter {name} is not an integer")
    return int(text)


def _parse_map(name: str, text: str) -> dict[str, Any]:
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise invalid(f"The parameter {name} is not a JSON object")
    return found


_READERS: dict[str, Callable[[str, str], Any]] = {
    "str": lambda _, text: text,
    "int": _parse_int,
    "bool": _parse_bool,
    "dict": _parse_map,
}

_HEADERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "location": ("x-lance-table-location", lambda _, text: text),
    "properties": ("x-lance-table-properties", _parse_map),
}
"""CreateTable's fields that are sent in headers. Source: the specification's text on REST."""
