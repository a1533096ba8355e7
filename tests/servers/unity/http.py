"""HTTP/1.1 with connections that stay open, in threads of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .messages import Answer, Request

HOST = "127.0.0.1"
_JOIN_SECONDS = 10.0


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
