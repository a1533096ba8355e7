"""A proxy in front of an HTTP server that counts and records requests, and breaks them on request.

Runs in threads of the test's own process, and understands HTTP/1.1 whose requests say how long
their bodies are; not TLS.
"""

from __future__ import annotations

import enum
import http.client
import json
import select
import socket
import socketserver
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_HOST = "127.0.0.1"
_UPSTREAM_SECONDS = 60.0
_JOIN_SECONDS = 10.0
_POLL_SECONDS = 0.02
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"}
_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_NO_TIME = struct.pack("ii", 1, 0)


class Fault(enum.Enum):
    """What may be done to a request, where nothing more needs to be said."""

    RESET = "reset the connection (RST); the server never hears of the request"
    DROP_REQUEST = "close the connection; the server never hears of the request"
    LOSE_REPLY = "let the server do it, then reset the connection instead of replying"
    TRUNCATE_REPLY = "let the server do it, send the head and half of the body, then close"
    MALFORMED_REPLY = "let the server do it, and send half of the body as if it were all"
    EMPTY_REPLY = "let the server do it, and send its head with an empty body"


@dataclass(frozen=True)
class Answer:
    """A reply that is given in the server's place; it never hears of the request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, status: int, content: Any, **headers: str) -> Answer:
        """Return one with a JSON body; ``_`` in a header's name stands for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps(content).encode()
        return cls(status, body, {"Content-Type": "application/json", **named})

    @classmethod
    def of_aws(cls, code: str, message: str = "injected by a test", status: int = 400) -> Answer:
        """Return an error as AWS's JSON services give it."""
        body = json.dumps({"__type": code, "Message": message}).encode()
        return cls(status, body, {"Content-Type": "application/x-amz-json-1.1"})


@dataclass(frozen=True)
class Delay:
    """Wait until ``release`` is set, or the client has left.

    Args:
        effect_first: The server does it at once, and its reply waits; else the request waits.
        arrives_late: The request reaches the server after the wait though the client has left.
    """

    release: threading.Event = field(default_factory=threading.Event)
    effect_first: bool = False
    arrives_late: bool = False


Treatment = Fault | Answer | Delay


@dataclass(frozen=True)
class Request:
    """One request as the client sent it. ``key`` is what it is counted under."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    """Names are in lower case."""
    body: bytes = field(repr=False)
    key: str = ""

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


Matcher = str | Callable[[Request], bool]
"""A pattern for keys (``Get*``), or a function of the whole request."""


def operation(request: Request) -> str:
    """Return what a request asks for: an AWS operation (``GetTables``), or ``METHOD /path``."""
    target = request.headers.get("x-amz-target", "")
    if target:
        return target.rpartition(".")[2]
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        action = parse_qs(request.body.decode(errors="replace")).get("Action")
        if action:
            return action[0]
    return f"{request.method} {urlsplit(request.path).path}"


@dataclass
class _Rule:
    matcher: Matcher
    how: Treatment
    times: float

    def fits(self, request: Request) -> bool:
        if isinstance(self.matcher, str):
            return fnmatchcase(request.key, self.matcher)
        return self.matcher(request)


class HttpProxy:
    """Passes requests on to ``upstream`` (``http://host:port``), from `start` to `stop`.

    ::

        with HttpProxy(server.endpoint) as proxy:
            proxy.fail_next("CreateTable", Fault.LOSE_REPLY)
            proxy.fail_next("Get*", Answer.of_aws("ThrottlingException"), times=2)

    The port stays the same through `stop` and `start`; in between connections are refused.

    Args:
        upstream: Base URL of the server; its path, if any, is ignored.
        key: What requests are counted under, and patterns are compared with.
    """

    def __init__(self, upstream: str, key: Callable[[Request], str] = operation) -> None:
        parts = urlsplit(upstream)
        assert parts.scheme == "http", f"{upstream}: the proxy speaks plain HTTP only"
        assert parts.hostname, f"{upstream}: no host"
        self.upstream = (parts.hostname, parts.port or 80)
        self._key = key
        self._lock = threading.Condition()
        self._requests: list[Request] = []
        self._connections = 0
        self._rules: list[_Rule] = []
        self._fired: list[tuple[str, Treatment]] = []
        # Holds the port while it does not listen, so that no other process is given it.
        self._port_holder = _bound_socket(0)
        self.port: int = self._port_holder.getsockname()[1]
        self._server: _Server | None = None

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://{_HOST}:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """The requests that came, in order; a copy."""
        with self._lock:
            return list(self._requests)

    @property
    def counts(self) -> Counter[str]:
        """How many requests came, by key."""
        return Counter(request.key for request in self.requests)

    @property
    def connections(self) -> int:
        """How many connections clients have opened."""
        with self._lock:
            return self._connections

    @property
    def open_connections(self) -> int:
        """How many of them are open now."""
        return self._server.open_connections if self._server is not None else 0

    @property
    def fired(self) -> list[tuple[str, Treatment]]:
        """What was done to requests, in order, with the key of each; a copy."""
        with self._lock:
            return list(self._fired)

    def fail_next(self, matcher: Matcher, how: Treatment, *, times: float = 1) -> None:
        """Do ``how`` to the next ``times`` requests that fit; ``float("inf")``: until `reset`.

        The earliest rule that fits is used first.
        """
        with self._lock:
            self._rules.append(_Rule(matcher, how, times))

    def reset(self) -> None:
        """Forget requests, counts and rules; connections stay open, and are not counted again."""
        with self._lock:
            self._requests.clear()
            self._connections = 0
            self._rules.clear()
            self._fired.clear()

    def await_requests(self, matcher: Matcher, count: int = 1, seconds: float = 20.0) -> None:
        """Return when so many requests that fit have come since the last `reset`.

        Raises:
            TimeoutError: they have not.
        """
        rule = _Rule(matcher, Fault.RESET, 0)
        with self._lock:
            if not self._lock.wait_for(
                lambda: sum(map(rule.fits, self._requests)) >= count, timeout=seconds
            ):
                came = [request.key for request in self._requests]
                raise TimeoutError(f"not {count} requests like {matcher!r}, but {came}")

    def start(self) -> HttpProxy:
        """Begin to accept connections; again, after `stop`."""
        assert self._server is None, "it runs already"
        self._server = _Server(self)
        self._server.start()
        return self

    def stop(self) -> None:
        """Refuse connections and cut the open ones; afterwards nothing reaches the server."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def close(self) -> None:
        """Stop, and give the port back."""
        self.stop()
        self._port_holder.close()

    def __enter__(self) -> HttpProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def connected(self) -> None:
        """Count a connection."""
        with self._lock:
            self._connections += 1

    def take(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Treatment | None:
        """Record a request, and return what is to be done to it."""
        bare = Request(method, path, headers, body)
        request = Request(method, path, headers, body, self._key(bare))
        with self._lock:
            self._requests.append(request)
            self._lock.notify_all()
            for rule in self._rules:
                if rule.fits(request):
                    rule.times -= 1
                    if rule.times <= 0:
                        self._rules.remove(rule)
                    self._fired.append((request.key, rule.how))
                    return rule.how
        return None


def _bound_socket(port: int) -> socket.socket:
    """Return a socket that has the port and does not listen; a listener may share it."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((_HOST, port))
    return holder


class _Server(ThreadingHTTPServer):
    """The listener between one `start` and `stop`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, proxy: HttpProxy) -> None:
        super().__init__((_HOST, proxy.port), _Handler)
        self.proxy = proxy
        self.closing = threading.Event()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._open_lock = threading.Lock()
        self._acceptor = threading.Thread(
            target=self.serve_forever, args=(_POLL_SECONDS,), name="http-proxy", daemon=True
        )

    @property
    def open_connections(self) -> int:
        with self._open_lock:
            return len(self._open)

    def start(self) -> None:
        self._acceptor.start()

    def stop(self) -> None:
        self.closing.set()
        self.shutdown()
        self._acceptor.join(_JOIN_SECONDS)
        self.server_close()
        self.disconnect()

    def disconnect(self) -> None:
        with self._open_lock:
            connections = dict(self._open)
        for connection in connections:
            _shut(connection)
        for thread in connections.values():
            thread.join(_JOIN_SECONDS)

    def server_bind(self) -> None:
        # HTTPServer's own asks a name server for this machine's name.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        # Known before it runs, so that stop() misses none.
        with self._open_lock:
            self._open[request] = thread
            self.proxy.connected()
            thread.start()

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.pop(request, None)
        if request.getsockopt(*_LINGER):
            # The usual way says goodbye first, and the client would see that instead of the reset.
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: either side has gone, and that is how connections end."""


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    """One client's connection, and the connection to the server that serves it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.upstream = http.client.HTTPConnection(
            *self.server.proxy.upstream, timeout=_UPSTREAM_SECONDS
        )

    def finish(self) -> None:
        self.upstream.close()
        super().finish()

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(1 << 16)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        # As it came: parse_request() makes one of several slashes.
        path = self.requestline.split()[1]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "Transfer-Encoding" in self.headers:
            self._leave(reset=True)
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._serve(path, body, self.server.proxy.take(self.command, path, headers, body))

    def _serve(self, path: str, body: bytes, how: Treatment | None) -> None:
        if isinstance(how, Answer):
            reason = http.client.responses.get(how.status, "")
            self._send(how.status, reason, list(how.headers.items()), how.body)
        elif how in (Fault.RESET, Fault.DROP_REQUEST):
            self._leave(reset=how is Fault.RESET)
        else:
            if isinstance(how, Delay) and not how.effect_first and not self._wait(how):
                return
            self._pass_on(path, body, how)

    def _pass_on(self, path: str, body: bytes, how: Treatment | None) -> None:
        try:
            response, content = self._ask(path, body)
        except (OSError, http.client.HTTPException):
            self._leave(reset=False)
            return
        if isinstance(how, Delay) and how.effect_first and not self._wait(how):
            return
        if how is Fault.LOSE_REPLY:
            self._leave(reset=True)
            return
        length = len(content)
        if how in (Fault.TRUNCATE_REPLY, Fault.MALFORMED_REPLY):
            content = content[: length // 2]
        elif how is Fault.EMPTY_REPLY:
            content = b""
        declared = length if how is Fault.TRUNCATE_REPLY else None
        self._send(response.status, response.reason, response.getheaders(), content, declared)
        if how is Fault.TRUNCATE_REPLY:
            self._leave(reset=False)

    def _ask(self, path: str, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        """Send the request on, and return the whole reply."""
        self.upstream.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.upstream.putheader(name, value)
        self.upstream.endheaders(body or None)
        response = self.upstream.getresponse()
        return response, response.read()

    def _send(
        self,
        status: int,
        reason: str,
        headers: list[tuple[str, str]],
        body: bytes,
        declared: int | None = None,
    ) -> None:
        """Send a reply in one piece; ``declared`` is a length that is not the body's."""
        lines = [f"HTTP/1.1 {status} {reason}"]
        about_head = self.command == "HEAD" or status == 304
        for name, value in headers:
            length = name.lower() == "content-length"
            if name.lower() not in _HOP_BY_HOP and (not length or about_head):
                lines.append(f"{name}: {value}")
        if not about_head and status != 204:
            lines.append(f"Content-Length: {len(body) if declared is None else declared}")
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def _leave(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(*_LINGER, _NO_TIME)

    def _wait(self, how: Delay) -> bool:
        """Wait as the rule says; return whether the client is still connected."""
        while not how.release.wait(_POLL_SECONDS):
            gone = bool(select.select([self.connection], [], [], 0)[0])
            if self.server.closing.is_set() or (gone and not how.arrives_late):
                self.close_connection = True
                return False
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
