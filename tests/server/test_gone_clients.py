"""Clients that stop, or die, while rows are sent: nothing is committed, and nothing is kept."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import lance
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace.errors import ServiceUnavailableError
from server.conftest import Recorder
from server.gateways import (
    ROWS,
    chunk,
    dial,
    done,
    head,
    read_answer,
    refused,
    require_refused,
    reset,
    send_rows,
    serve_app,
    serve_namespace,
)
from servers.processes import wait_until

from lance_bridge.testing.calls import ipc
from lance_bridge_server.access.audit import AuditLog, open_audit_log
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.gateway.limits import Limits
from lance_bridge_server.gateway.threads import TimeLimit
from lance_bridge_server.http import streams
from lance_bridge_server.http.exchange import Exchange
from lance_bridge_server.http.lifecycle import Process
from lance_bridge_server.http.streams import RowsResponse
from lance_bridge_server.queries.runs import Run
from lance_bridge_server.run import listening

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#failures")]

TABLE = "/v1/table/films$t"
STALL = 0.5
ARROW = "Content-Type: application/vnd.apache.arrow.stream"
CHUNKED = "Transfer-Encoding: chunked"
BIG = pa.table({"id": pa.array(range(500_000)), "word": ["word"] * 500_000})
HALF = ipc(BIG)[: len(ipc(BIG)) // 2]


@pytest.fixture(scope="module")
def limits() -> Limits:
    return Limits(stall_seconds=STALL)


@dataclass
class Server:
    """A gateway, with a client of plain HTTP for it."""

    url: str
    http: httpx.Client
    gateway: Gateway
    queries_before: int = 0

    @property
    def is_at_rest(self) -> bool:
        """Whether no operation is carried out, and no rows are sent."""
        return not self.gateway.running and not self.gateway.senders.borrowed_tokens

    def count(self) -> int:
        found: int = done(self.http.post(f"{TABLE}/count_rows"))
        return found

    def require_undelivered(self) -> None:
        """Check that the one query of rows of a test is recorded as not delivered."""
        wait_until(lambda: len(self.queries()) > self.queries_before)
        line, *before = self.queries()
        assert len(before) == self.queries_before
        assert (line["status"], line["code"]) == (None, None)

    def queries(self) -> list[dict[str, Any]]:
        """Return the audit log's lines of queries, the latest first."""
        assert self.gateway.audit is not None
        lines = self.gateway.audit.last_lines(1000)
        return [each for each in lines if each.get("action") == "query_table"]

    @contextmanager
    def counted(self, code: str) -> Iterator[None]:
        """Check that metrics count one query with a code, `NONE` if it was not delivered."""
        before = self._count_queries(code)
        yield
        wait_until(lambda: self._count_queries(code) == before + 1)

    def _count_queries(self, code: str) -> float:
        line = f'lance_bridge_requests_total{{code="{code}",operation="query_table"}} '
        lines = self.http.get("/metrics").text.splitlines()
        return sum(float(each.removeprefix(line)) for each in lines if each.startswith(line))

    @contextmanager
    def nothing_kept(self) -> Iterator[int]:
        """Check that what happens leaves no thread at work, and no more files open than before."""
        before = open_files()
        yield before
        wait_until(lambda: self.is_at_rest)
        wait_until(lambda: open_files() <= before)


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditLog]:
    log = open_audit_log(tmp_path_factory.mktemp("audit") / "audit.jsonl")
    yield log
    log.close()


@contextmanager
def serve(gateway: Gateway, audit: AuditLog) -> Iterator[Server]:
    """Serve a gateway that soon notices clients that are gone."""
    gateway.audit = audit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening, "CHECK_SECONDS", 0.05)
        patch.setattr(listening, "CLOSE_SECONDS", 0.2)
        with serve_app(create_app(gateway)) as url, httpx.Client(base_url=url, timeout=30) as http:
            audit.write({"action": None})  # opens the file, which uvicorn's set-up closes
            yield Server(url, http, gateway)


@pytest.fixture(scope="module")
def shared_server(gateway: Gateway, audit: AuditLog) -> Iterator[Server]:
    with serve(gateway, audit) as server:
        yield server


@pytest.fixture
def server(shared_server: Server, namespace: Any) -> Server:  # noqa: ARG001 - it is served
    wait_until(lambda: shared_server.is_at_rest)
    shared_server.queries_before = len(shared_server.queries())
    done(shared_server.http.get("/livez"))  # its connection is among the open files from now on
    return shared_server


@pytest.fixture
def one_at_a_time(namespace: Any, audit: AuditLog) -> Iterator[Server]:
    """A server that runs one operation at a time, and waits long for clients that stall."""
    limits = Limits(threads=1, stall_seconds=60)
    with serve(Gateway(namespace, limits=limits), audit) as server:
        yield server


@pytest.fixture
def table(server: Server) -> str:
    """The path of a table with three rows."""
    done(send_rows(server.http, f"{TABLE}/create", ROWS.select(["id", "word"])))
    return TABLE


def open_files() -> int:
    """Return how many files and sockets this process has open."""
    return len(os.listdir("/proc/self/fd"))


# -- large rows ------------------------------------------------------------------------------------


def test_a_large_write_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is one write: of a whole copy of each row, clients that stall would hold gigabytes."""
    sent: list[bytes] = []
    monkeypatch.setattr(anyio.from_thread, "run", lambda _, part, token: sent.append(part))  # noqa: ARG005
    sender: Any = SimpleNamespace(send=None)
    content = os.urandom(5 << 20)
    with io.BufferedWriter(streams._SentFile(sender, sender), 1 << 20) as file:
        file.write(content)
    assert b"".join(sent) == content
    assert max(map(len, sent)) <= 1 << 20


# -- pages -----------------------------------------------------------------------------------------


def test_a_page_ends_its_queries_when_its_client_leaves(
    server: Server, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []

    async def wait(*_: object, run: Run, **__: object) -> None:
        runs.append(run)
        while not run.is_cancelled:
            await anyio.sleep(0.02)
        raise ServiceUnavailableError("It was cancelled")

    monkeypatch.setattr(Gateway, "call", wait)
    with dial(server.url) as connection:
        path = table.replace("/v1/table/films$", "/ui/rows/films/")
        connection.sendall(head(path, "Accept: text/html", method="GET"))
        wait_until(lambda: runs)
        assert not any(each.is_cancelled for each in runs)
    wait_until(lambda: all(each.is_cancelled for each in runs))


# -- clients that send -----------------------------------------------------------------------------


def begin_upload(url: str, operation: str, part: bytes) -> socket.socket:
    connection = dial(url)
    connection.sendall(head(f"{TABLE}/{operation}", ARROW, CHUNKED, "Connection: close"))
    connection.sendall(chunk(part))
    return connection


UPLOADS = ["insert", "insert?mode=overwrite", "merge_insert?on=id&when_not_matched_insert_all=true"]
PARTS = [pytest.param(ipc(ROWS)[:-20], id="small"), pytest.param(HALF, id="large")]
End = Callable[[socket.socket], None]
ENDS: list[End] = [socket.socket.close, reset]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("operation", UPLOADS)
def test_an_upload_whose_client_dies_changes_nothing(
    server: Server, table: str, operation: str, part: bytes, end: End
) -> None:
    versions = server.http.post(f"{table}/version/list").json()
    with server.nothing_kept():
        connection = begin_upload(server.url, operation, part)
        if len(part) > 1 << 20:
            wait_until(lambda: server.gateway.running)
        end(connection)
    assert (server.count(), server.http.post(f"{table}/version/list").json()) == (3, versions)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("operation", UPLOADS)
@pytest.mark.usefixtures("table")
def test_an_upload_that_stalls_is_ended(server: Server, operation: str, part: bytes) -> None:
    with server.nothing_kept(), begin_upload(server.url, operation, part) as connection:
        require_refused(connection, 503, 17)
    assert server.count() == 3


@pytest.mark.spec("server.md#time-limits")
@pytest.mark.parametrize("operation", ["create", *UPLOADS, "describe"])
def test_a_body_takes_no_longer_than_the_client_asked_for(namespace: Any, operation: str) -> None:
    """It may pause for two minutes, which is longer."""
    body, media_type = ipc(ROWS)[:-20], ARROW
    if operation == "describe":
        body, media_type = b"{", "Content-Type: application/json"
    headers = (media_type, CHUNKED, "Connection: close", "X-Request-Timeout-Ms: 300")
    with serve_namespace(namespace) as url, dial(url) as connection:
        connection.sendall(head(f"{TABLE}/{operation}", *headers) + chunk(body))
        status, answer = read_answer(connection)
    assert (status, answer["code"]) == (503, 17)
    assert answer["error"].endswith("to send; nothing was changed")


@pytest.mark.parametrize("part", PARTS)
def test_a_table_can_be_created_after_a_client_died_creating_it(
    server: Server, part: bytes
) -> None:
    with server.nothing_kept():
        reset(begin_upload(server.url, "create", part))
    # One whose rows were written already is declared, and holds no data.
    assert server.http.post(f"{TABLE}/count_rows").json()["code"] in (4, 19)
    done(send_rows(server.http, f"{TABLE}/create"))
    assert server.count() == 3


def corrupt(data: bytes) -> bytes:
    """Return a stream whose second half has other bytes."""
    half = len(data) // 2
    return data[:half] + bytes(255 - each for each in data[half:])


LARGE = ipc(BIG.slice(0, 200_000))
BAD = [
    pytest.param(ipc(ROWS)[:-8], id="without its end"),
    pytest.param(ipc(ROWS)[:200], id="cut in the schema"),
    pytest.param(LARGE[:-8], id="large, without its end"),
    pytest.param(LARGE[:2_000_000], id="large, cut in a batch"),
    pytest.param(corrupt(ipc(ROWS)), id="corrupt"),
    pytest.param(ipc(ROWS) + b"more", id="with more behind it"),
    pytest.param(LARGE + LARGE, id="two large ones"),
    pytest.param(b"", id="empty"),
    pytest.param(b"PAR1" * 1000, id="of another format"),
    pytest.param(np.random.default_rng(1).bytes(3 << 20), id="random"),
]


@pytest.mark.parametrize("body", BAD)
@pytest.mark.parametrize("operation", UPLOADS)
def test_a_broken_stream_is_invalid_input(
    server: Server, table: str, operation: str, body: bytes
) -> None:
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    with server.nothing_kept():
        refused(server.http.post(f"{table}/{operation}", content=body, headers=headers), 400, 13)
    assert server.count() == 3


# -- clients that read -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where rows are that fit into no buffer of the system."""
    place = str(tmp_path_factory.mktemp("large") / "t.lance")
    words = pa.array(["x" * 1000] * 20_000)
    lance.write_dataset(pa.table({"id": range(20_000), "word": words}), place)
    return place


@pytest.fixture
def large(server: Server, large_rows: str) -> str:
    """A table of these rows."""
    done(server.http.post(f"{TABLE}/register", json={"location": large_rows}))
    return TABLE


def begin_query(url: str) -> socket.socket:
    """Ask for all rows, and read the beginning of the answer."""
    connection = request_rows(url)
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def request_rows(url: str, *headers: str) -> socket.socket:
    """Ask for all rows, and read nothing."""
    connection = dial(url)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    body = b'{"vector": {}, "k": 0}'
    length = f"Content-Length: {len(body)}"
    connection.sendall(head(f"{TABLE}/query", "Content-Type: application/json", length, *headers))
    connection.sendall(body)
    return connection


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.usefixtures("large")
def test_a_query_whose_client_dies_is_ended(server: Server, end: End) -> None:
    with server.counted("NONE"), server.nothing_kept():
        end(begin_query(server.url))
    server.require_undelivered()
    assert server.count() == 20_000


@pytest.mark.usefixtures("large")
def test_a_query_whose_client_does_not_read_is_ended(server: Server) -> None:
    with (
        server.counted("NONE"),
        server.nothing_kept() as before,
        begin_query(server.url) as connection,
    ):
        own = 1
        wait_until(lambda: server.is_at_rest and open_files() <= before + own)
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert not received.endswith(b"0\r\n\r\n"), "the answer was ended as if it were whole"
    server.require_undelivered()
    assert server.count() == 20_000


@pytest.mark.usefixtures("large")
def test_many_clients_that_do_not_read_hold_no_thread_of_operations(server: Server) -> None:
    connections = [begin_query(server.url) for _ in range(8)]
    assert server.gateway.running == server.gateway.senders.borrowed_tokens
    assert server.gateway.senders.borrowed_tokens <= 8
    answer: Any = server.http.post(f"{TABLE}/query", json={"vector": {}, "k": 5})
    assert pa.ipc.open_file(answer.content).read_all().num_rows == 5
    before = threading.active_count()
    for each in connections:
        reset(each)
    wait_until(lambda: server.is_at_rest)
    assert threading.active_count() <= before


@pytest.mark.spec("server.md#time-limits")
@pytest.mark.usefixtures("large")
def test_a_query_that_may_not_be_sent_in_time_is_refused(one_at_a_time: Server) -> None:
    server = one_at_a_time
    with server.nothing_kept(), begin_query(server.url):
        late = request_rows(server.url, "X-Request-Timeout-Ms: 3000", "Connection: close")
        with late:
            status, answer = read_answer(late)
        assert (status, answer["code"]) == (503, 17)
        assert answer["error"].startswith("The rows could not be sent within 3 seconds")
        waiting = request_rows(server.url)
        wait_until(lambda: server.gateway.senders.statistics().tasks_waiting)
        reset(waiting)
        wait_until(lambda: not server.gateway.senders.statistics().tasks_waiting)
    answer = server.http.post(f"{TABLE}/query", json={"vector": {}, "k": 5})
    assert answer.status_code == 200


@pytest.fixture
def download(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], socket.socket]]:
    """Begins a download of 16 MiB from a server that soon closes connections without a request."""
    rows = pa.table({"id": range(16), "word": ["x" * (1 << 20)] * 16})
    done(send_rows(server.http, f"{TABLE}/create", rows))
    monkeypatch.setattr(listening, "KEEP_ALIVE_SECONDS", 1)
    monkeypatch.setattr(listening, "CLOSE_SECONDS", 1.0)
    with serve_app(create_app(server.gateway)) as url:

        def begin() -> socket.socket:
            connection = dial(url)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            path = "/ui/download/films/t?format=arrow&size=20"
            connection.sendall(head(path, "Connection: close", method="GET"))
            return connection

        yield begin


@pytest.mark.spec("server.md#request-limits")
def test_a_download_by_a_slow_client_is_complete(
    server: Server, download: Callable[[], socket.socket]
) -> None:
    with server.nothing_kept(), download() as connection:
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
            time.sleep(0.01)  # the pace of the client
    headers, _, body = b"".join(parts).partition(b"\r\n\r\n")
    assert headers.startswith(b"HTTP/1.1 200")
    assert pa.ipc.open_file(body).read_all().num_rows == 16


@pytest.mark.spec("server.md#request-limits")
def test_a_download_whose_client_does_not_read_is_ended(
    server: Server, download: Callable[[], socket.socket]
) -> None:
    with server.nothing_kept(), download():
        server.require_undelivered()


def test_a_client_that_does_not_read_the_last_rows_is_ended() -> None:
    async def send(message: Any) -> None:
        if not message.get("more_body", True):
            await anyio.sleep_forever()  # as uvicorn does while a client reads nothing

    async def answer() -> Any:
        scope: Any = {"method": "GET", "path": "/", "headers": []}
        namespace: Any = Recorder()
        receive: Any = anyio.sleep_forever
        exchange = Exchange(scope, receive, send, Gateway(namespace), Process())
        senders = anyio.CapacityLimiter(1)
        response = RowsResponse(ROWS.to_reader(), ARROW, 0.1, senders, TimeLimit(9), run=Run(9))
        await response(scope, exchange.receive, exchange.send)
        return senders.borrowed_tokens, exchange.status

    assert anyio.run(answer) == (0, None)


# -- queries that fail -----------------------------------------------------------------------------

END_OF_FILE = b"ARROW1"
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@pytest.mark.parametrize(
    ("agent", "end"), [("python", END_OF_FILE), ("lancedb-python", END_OF_STREAM)]
)
@pytest.mark.parametrize("row", [15_000, 19_999])
@pytest.mark.usefixtures("large")
def test_a_query_that_fails_after_its_first_rows_has_no_end(
    server: Server, agent: str, end: bytes, row: int, caplog: pytest.LogCaptureFixture
) -> None:
    columns = {"column_aliases": {"inverse": f"100 / (id - {row})", "word": "word"}}
    query = {"vector": {}, "k": 0, "columns": columns}
    parts: list[bytes] = []
    with (
        server.counted("INVALID_INPUT"),
        server.nothing_kept(),
        caplog.at_level("ERROR", logger=streams.__name__),
        httpx.Client(base_url=server.url, headers={"user-agent": agent}, timeout=30) as http,
        http.stream("POST", f"{TABLE}/query", json=query) as answer,
    ):
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            parts.extend(answer.iter_bytes())
    received = b"".join(parts)
    assert len(received) > 1 << 20
    assert not received.endswith(end)
    assert "failed after its first rows" in caplog.text
