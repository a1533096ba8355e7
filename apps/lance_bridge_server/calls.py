"""A call: one request for an operation, read from HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args
from urllib.parse import unquote

from pydantic import BaseModel
from pydantic_core import from_json
from starlette.datastructures import QueryParams
from starlette.requests import Request

from lance_bridge.errors import invalid
from lance_bridge.requests import as_model

from . import lancedb
from .operations import Body, Operation

DEFAULT_DELIMITER = "$"
_ARROW = "application/vnd.apache.arrow.stream"
_HEADERS = {"location": "x-lance-table-location", "properties": "x-lance-table-properties"}
_NOT_OF_THE_QUERY = {"id", "identity", "context"}


@dataclass(frozen=True)
class Call:
    """One request for an operation."""

    operation: Operation
    fields: dict[str, Any]
    """The request's fields, as JSON has them."""
    delimiter: str

    @property
    def id(self) -> list[str] | None:
        """The namespace or table that it is for, if the operation has one."""
        return self.fields.get("id")

    def model(self) -> BaseModel:
        """Return the request as a namespace takes it.

        Raises:
            InvalidInputError: (13) a field is missing or has a wrong value.
        """
        return as_model(self.operation.request, self.fields)


async def read_call(request: Request, operation: Operation, max_bytes: int) -> Call:
    """Read a request, but not the rows that it carries.

    Args:
        max_bytes: The limit for a JSON body.

    Raises:
        InvalidInputError: (13) it is malformed, or says different things in different places.
    """
    query = request.query_params
    delimiter = query.get("delimiter", DEFAULT_DELIMITER)
    fields = await _read_body(request, operation, max_bytes)
    fields = _merged(fields, _query_fields(operation.request, query), "query")
    if operation.body is Body.ROWS:
        fields = _merged(fields, _header_fields(request.headers, operation), "headers")
    for name, text in request.path_params.items():
        decoded = _decoded(name, text)
        value = parse_id(decoded, delimiter) if name == "id" else decoded
        fields = _merged(fields, {name: value}, "path")
    return Call(operation, fields, delimiter)


def parse_id(text: str, delimiter: str) -> list[str]:
    """Return the names in an identifier; the delimiter alone is the root.

    Raises:
        InvalidInputError: (13) the delimiter is empty.
    """
    if not delimiter:
        raise invalid("The query parameter delimiter is empty")
    return [] if text == delimiter else text.split(delimiter)


def _decoded(name: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise invalid(f"The {name} in the path is not UTF-8") from None


# -- body ------------------------------------------------------------------------------------------


async def _read_body(request: Request, operation: Operation, max_bytes: int) -> dict[str, Any]:
    if operation.body is Body.ROWS:
        _require_media_type(request, _ARROW)
        return {}
    body = await _limited_body(request, max_bytes)
    if operation.body is Body.NONE or not body.strip():
        return {}
    if operation.name == lancedb.NEW_COLUMNS and _media_type(request) == _ARROW:
        return lancedb.new_columns(body)
    _require_media_type(request, "application/json")
    found = _parse_json(body)
    return {"metadata": found} if operation.body is Body.METADATA else found


def _require_media_type(request: Request, wanted: str) -> None:
    found = _media_type(request)
    if found != wanted:
        shown = f"'{found[:100]}'" if found else "missing"
        raise invalid(f"The header Content-Type is {shown}; this operation takes '{wanted}'")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _limited_body(request: Request, max_bytes: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise BodyTooLargeError(f"The body is larger than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        found = from_json(body)
    except ValueError as error:
        raise invalid(f"The body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise invalid("The body is not a JSON object")
    return found


class BodyTooLargeError(Exception):
    """A request's body is larger than the server takes."""


# -- fields in other places ------------------------------------------------------------------------


def _merged(fields: dict[str, Any], others: Mapping[str, Any], place: str) -> dict[str, Any]:
    for name, value in others.items():
        if fields.get(name) not in (None, value):
            raise invalid(f"The {place} has another `{name}` than the rest of the request")
    return {**fields, **others}


def _header_fields(headers: Mapping[str, str], operation: Operation) -> dict[str, Any]:
    found = {}
    for name, header in _HEADERS.items():
        if header in headers and name in operation.request.model_fields:
            found[name] = _READERS[_type_name(operation.request, name)](name, headers[header])
    return found


def _query_fields(request: type[BaseModel], query: QueryParams) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in query:
        if name not in request.model_fields or name in _NOT_OF_THE_QUERY:
            continue
        values, type_name = query.getlist(name), _type_name(request, name)
        if type_name == "list":
            found[name] = values
        elif len(set(values)) > 1:
            raise invalid(f"The query parameter {name} is given more than once")
        else:
            found[name] = _READERS[type_name](name, values[0])
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


def _bool(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise invalid(f"The query parameter {name} is neither true nor false")
    return text == "true"


def _number(parse: Callable[[str], Any]) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            raise invalid(f"The query parameter {name} is not a number") from None

    return read


def _map(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise invalid(f"The parameter {name} is not a JSON object")
    return found


_READERS: dict[str, Callable[[str, str], Any]] = {
    "str": lambda _, text: text,
    "int": _number(int),
    "float": _number(float),
    "bool": _bool,
    "dict": _map,
}
