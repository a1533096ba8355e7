"""Servers that answer with what a test wants: by HTTP, keeping what they were asked, or anyhow."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

Handler = Callable[[socket.socket], None]


@dataclass
class Replies:
    """One answer for every request, or one by its path, and the requests."""

    status: int = 200
    body: str = ""
    content_type: str = "text/xml"
    location: str = ""
    """Where the answers lead to, if they are redirects."""
    by_path: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Other answers, by the end of the path, without its query: status and body."""
    date: str | None = None
    """The time that the answers say it is; None for the real one."""
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Set at first: answers wait until it is."""
    address: str = ""
    bodies: list[str] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    """The forms in the requests' bodies."""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Their headers, by names in lower case."""
    connections: int = 0
    """How many connections clients have opened."""

    def answer(self, path: str) -> tuple[int, str]:
        """Return the status and the body for a path."""
        path = path.partition("?")[0]
        found = (answer for end, answer in self.by_path.items() if path.endswith(end))
        return next(found, (self.status, self.body))


@contextmanager
def unanswered(*, is_silent: bool = False) -> Iterator[str]:
    """Give an address that refuses connections, or one that takes them and never answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if is_silent:
            taken.listen()
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def reply_server(certificate: tuple[Path, Path] | None = None) -> Iterator[Replies]:
    """Serve on a free port of this machine, by HTTPS with a certificate and its key."""
    replies = Replies()
    replies.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            replies.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            replies.bodies.append(body)
            replies.forms.append({key: values[0] for key, values in parse_qs(body).items()})
            replies.paths.append(self.path)
            replies.headers.append({key.lower(): value for key, value in self.headers.items()})
            replies.may_answer.wait()
            status, text = replies.answer(self.path)
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", replies.content_type)
            self.send_header("Content-Length", str(len(content)))
            if replies.location:
                self.send_header("Location", replies.location)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def date_time_string(self, timestamp: float | None = None) -> str:
            return replies.date or super().date_time_string(timestamp)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    replies.address = f"http://127.0.0.1:{server.server_port}"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        replies.address = replies.address.replace("http:", "https:")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield replies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class ScriptedServer:
    """Accepts connections and hands each to ``handler``; closes it when that returns."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def url(self) -> str:
        return self.uri.replace("thrift://", "http://")

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            self._handler(client)
        except OSError:
            return
        finally:
            client.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self._open:
            client.close()
