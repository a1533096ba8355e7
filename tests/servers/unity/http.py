"""HTTP of the double: requests, what handlers answer, routes to them, and a listener in threads."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel

from .dialects import Dialect, ErrorKind, Level
from .published import DeltaErrorResponse, check_reply

_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
HOST = "127.0.0.1"
_JOIN_SECONDS = 10.0


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


Handler = Callable[[Request], Answer]


@dataclass(frozen=True)
class Route:
    """One operation. ``template`` is a path with names in braces, after any of ``prefixes``."""

    method: str
    template: str
    handler: Handler
    prefixes: Sequence[str]
    request: type[BaseModel] | None = None
    """What a body must be."""
    query: frozenset[str] = frozenset()
    """Parameters that may come in the query."""
    required: frozenset[str] = frozenset()
    """Those of them that must come."""
    delta: bool = False
    """Errors take the shape of the API for Delta clients."""
    needs_token: bool = True
    patterns: tuple[re.Pattern[str], ...] = field(init=False)

    def __post_init__(self) -> None:
        inside = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.template))
        found = tuple(re.compile(re.escape(prefix) + inside) for prefix in self.prefixes)
        object.__setattr__(self, "patterns", found)

    @property
    def key(self) -> str:
        """Method and template: what requests are counted under."""
        return f"{self.method} {self.template}"

    def match(self, path: str) -> Mapping[str, str] | None:
        """Return the path's parameters, or None where it is another's."""
        for pattern in self.patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                return {name: unquote(text) for name, text in found.groupdict().items()}
        return None


def find(
    routes: Sequence[Route], method: str, path: str
) -> tuple[Route | None, Mapping[str, str], bool]:
    """Return the route of a request, its parameters, and whether the path has any route."""
    known = False
    for route in routes:
        parameters = route.match(path)
        if parameters is not None:
            known = True
            if route.method == method:
                return route, parameters, True
    return None, {}, known


def no_route(*, known_path: bool, databricks: bool, method: str, path: str) -> Answer:
    """Return the answer to a path or method that there is not."""
    if databricks:
        content = {
            "error_code": "ENDPOINT_NOT_FOUND",
            "message": f"No API found for '{method} {path}'",
        }
        return Answer.of_json(content, 404)
    if known_path:
        return Answer.of_text("Status: 405\nDescription: Method Not Allowed\n", 405)
    return Answer.of_text("Status: 404\nDescription: Not Found\n", 404)


class Listener(ThreadingHTTPServer):
    """Passes each request to ``answer``. Port 0 takes a free one."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, answer: Callable[[Request], Answer]) -> None:
        super().__init__((HOST, port), _Handler)
        self.answer = answer
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.01,), name="unity-double", daemon=True
        )

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()

    def kill(self) -> None:
        """Close the port and every connection, in the middle of whatever they do."""
        self.shutdown()
        self.server_close()
        self._thread.join(_JOIN_SECONDS)
        with self._guard:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that end in the middle are no news: clients are killed on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The reply goes out in one piece, at once: otherwise the client's delayed acknowledgement of
    # the first piece holds up the second for 40 ms.
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True
    server: Listener

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length) if length else b""
        if len(raw) < length:
            # The connection ended in the middle of the request, which so never came.
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        request = Request(
            self.command,
            parts.path,
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            raw=raw,
        )
        answer = self.server.answer(request)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("content-type", answer.content_type)
            self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD" and answer.status != 204:
            self.wfile.write(answer.body)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = _answer

    def log_message(self, *arguments: object) -> None:
        """Say nothing: tests read what was recorded."""
