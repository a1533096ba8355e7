"""Requests as the double's handlers see them, and what they answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .dialects import Dialect, ErrorKind, Level
from .published import DeltaErrorResponse
from .validation import check_reply

_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """One request, as it came.

    ``route`` is the method and the template of the path, ``GET /tables/{full_name}``, or the
    method and the path itself where no route fits.
    """

    method: str
    path: str
    route: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """With names in lower case."""
    raw: bytes = b""

    @property
    def body(self) -> Any:
        """The body as JSON. Raises ValueError where it is none."""
        return json.loads(self.raw)

    @property
    def fields(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ValueError where it is none."""
        body = self.body
        if not isinstance(body, dict):
            raise ValueError("the body is not a JSON object")
        return body


@dataclass(frozen=True)
class Answer:
    """A reply."""

    status: int
    body: bytes = b""
    content_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, value: object, status: int = 200) -> Answer:
        return cls(status, json.dumps(value).encode())

    @classmethod
    def of_text(cls, text: str, status: int = 200) -> Answer:
        return cls(status, text.encode(), _TEXT)


class ApiError(Exception):
    """A request that is refused with an ``error_code``."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class ServerFault(Exception):
    """What the server did not foresee: status 500."""


def missing(dialect: Dialect, level: Level, name: str) -> ApiError:
    """No object has this name."""
    message = f"{level.value} not found: {name}"
    if dialect.databricks:
        message = f"{level.value} '{name}' does not exist."
    return ApiError(dialect.missing[level], message)


def duplicate(dialect: Dialect, level: Level, name: str) -> ApiError:
    """The name is taken."""
    message = f"{level.value} already exists: {name}"
    if dialect.databricks:
        message = f"{level.value} '{name}' already exists"
    return ApiError(dialect.duplicate[level], message)


def error_answer(kind: ErrorKind, message: str, *, delta: bool = False) -> Answer:
    """Return an error as the API, or as its part for Delta clients, words it."""
    if delta:
        return _delta_error(kind, message)
    detail = {"@type": "google.rpc.ErrorInfo", "reason": kind.code}
    content = {"error_code": kind.code, "message": message, "details": [detail]}
    return Answer.of_json(content, kind.status)


def _delta_error(kind: ErrorKind, message: str) -> Answer:
    status = 409 if kind.code.endswith("ALREADY_EXISTS") else kind.status
    content = {"message": message, "type": _delta_type(kind.code), "code": status}
    return Answer.of_json(check_reply(DeltaErrorResponse, {"error": content}), status)


def _delta_type(code: str) -> str:
    if code.endswith("ALREADY_EXISTS"):
        return "AlreadyExistsException"
    return {
        "CATALOG_NOT_FOUND": "NoSuchCatalogException",
        "SCHEMA_NOT_FOUND": "NoSuchSchemaException",
        "TABLE_NOT_FOUND": "NoSuchTableException",
        "NOT_FOUND": "NotFoundException",
        "INVALID_ARGUMENT": "InvalidParameterValueException",
        "FAILED_PRECONDITION": "InvalidParameterValueException",
        "PERMISSION_DENIED": "PermissionDeniedException",
        "UNAUTHENTICATED": "NotAuthorizedException",
        "INTERNAL": "InternalServerErrorException",
    }.get(code, "BadRequestException")
