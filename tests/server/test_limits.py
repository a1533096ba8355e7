"""Limits of principals, and requests of no good will: answered in bounded memory and time."""

from __future__ import annotations

import asyncio
import gzip
import os
import sqlite3
import struct
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import pyarrow as pa
import pytest
from lance_namespace.errors import ServiceUnavailableError
from server.gateways import (
    ARROW,
    ROWS,
    NamedByHeader,
    chunk,
    dial,
    done,
    head,
    refused,
    require_refused,
    send_rows,
    serve_app,
    serve_namespace,
)
from server.test_http import Slow
from servers.processes import wait_until
from starlette.types import Message, Receive, Scope, Send

from lance_bridge_server import app as server_app
from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.app import create_app
from lance_bridge_server.config import ServerSettings
from lance_bridge_server.gateway import gateway as gateway_module
from lance_bridge_server.gateway import limits as limits_module
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.gateway.limits import (
    Admission,
    Limits,
    RequestCounts,
    Slot,
    TooManyRequestsError,
)
from lance_bridge_server.gateway.threads import TimeLimit
from lance_bridge_server.http import calls
from lance_bridge_server.http.exchange import Exchanges
from lance_bridge_server.http.lifecycle import Process
from lance_bridge_server.run import listening

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#principal-limits", "server.md#request-limits"),
]

TABLE = "/v1/table/films$t"
LIST = "/v1/namespace/$/list"
SOON = {"x-request-timeout-ms": "1000"}
BATCH_BYTES = 4 << 20
ONE_REQUEST_EACH = httpx.Limits(max_keepalive_connections=0)


@contextmanager
def limited(namespace: Any, **limits: Any) -> Iterator[httpx.Client]:
    settings = ServerSettings.model_validate({"catalogs": {"c": {}}, "limits": limits})
    with (
        serve_namespace(namespace, authenticator=NamedByHeader(), limits=settings.limits) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        yield client


def as_(name: str, **more: str) -> dict[str, str]:
    return {"x-user": name, **more}


@pytest.mark.parametrize("agent", ["test", "LanceDB-Test"])
def test_a_principal_has_its_own_rate(namespace: Any, agent: str) -> None:
    """LanceDB's client, too, is answered 429, after which it repeats what was refused."""
    with limited(namespace, rate="3/minute") as client:
        headers = as_("ann", **{"user-agent": agent})
        for _ in range(3):
            done(client.get(LIST, headers=headers))
        answer = client.get(LIST, headers=headers)
        assert "ann exceeded 3 requests per 60 s" in refused(answer, 429, 21)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        done(client.get(LIST, headers=as_("bob")))


@pytest.mark.parametrize(
    ("rate", "requests", "seconds"),
    [
        ("2/minute", 2, 60),
        (" 1 per 2 Minutes ", 1, 120),
        ("1per3hours", 1, 10_800),
        ("1/day", 1, 86_400),
        ("1/0 months", 1, 2_592_000),
        ("1 / 2 years", 1, 62_208_000),
        ("1/day; 2/hour", 1, 86_400),
    ],
)
def test_a_rate_is_a_number_and_a_period(rate: str, requests: int, seconds: int) -> None:
    settings = ServerSettings.model_validate({"catalogs": {"c": {}}, "limits": {"rate": rate}})
    admission, ann = Admission(), Principal("ann")
    for _ in range(requests):
        admission.admit({}, settings.limits.of(ann), ann)
    with pytest.raises(TooManyRequestsError, match=f"{requests} requests per {seconds} s;"):
        admission.admit({}, settings.limits.of(ann), ann)


def test_a_principal_has_512_concurrent_requests_by_default() -> None:
    limits, admission, ann = Limits(), Admission(), Principal("ann")
    for _ in range(512):
        admission.admit({}, limits.of(ann), ann)
    with pytest.raises(TooManyRequestsError, match="already has 512 concurrent requests"):
        admission.admit({}, limits.of(ann), ann)
    admission.admit({}, limits.of(Principal("bob")), Principal("bob"))


def test_requests_are_counted_until_they_were_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "_CONCURRENT_REQUESTS", 1)
    slow = Slow()
    with limited(slow) as client, ThreadPoolExecutor(1) as threads:
        running = threads.submit(client.post, f"{TABLE}/describe", headers=as_("ann"))
        assert slow.begun.acquire(timeout=30)
        answer = client.post(f"{TABLE}/describe", headers=as_("ann"))
        assert "ann already has 1 concurrent requests" in refused(answer, 429, 21)
        assert client.get("/ui", headers=as_("ann")).status_code == 429
        slow.go_on.set()
        done(running.result(30))
        for _ in range(3):
            done(client.post(f"{TABLE}/describe", headers=as_("ann")))
            refused(client.post(f"{TABLE}/nothing", headers=as_("ann")), 404, 13)


def test_a_client_that_waits_for_the_given_time_is_served(namespace: Any) -> None:
    with limited(namespace, rate="2/second") as client:
        codes = [client.get(LIST, headers=as_("ann")) for _ in range(10)]
        answer = next(each for each in codes if each.status_code == 429)
        time.sleep(int(answer.headers["retry-after"]))
        done(client.get(LIST, headers=as_("ann")))


def test_what_has_no_credentials_counts_for_nobody(namespace: Any) -> None:
    with limited(namespace, rate="1/minute") as client:
        for _ in range(5):
            refused(client.get(LIST), 401, 16)
            assert client.get("/livez").status_code == 200
        done(client.get(LIST, headers=as_("ann")))


def test_requests_at_once_are_limited_until_they_were_answered() -> None:
    slow = Slow()
    with (
        limited(slow, concurrent_requests=2) as client,
        ThreadPoolExecutor(2) as threads,
    ):
        headers = as_("ann")
        running = [
            threads.submit(client.post, f"{TABLE}{number}/describe", headers=headers)
            for number in range(2)
        ]
        for _ in range(2):
            assert slow.begun.acquire(timeout=30)
        answer = client.post(f"{TABLE}/describe", headers=headers)
        assert "concurrent requests, the limit; nothing was done" in refused(answer, 429, 21)
        assert answer.headers["retry-after"] == "1"
        slow.go_on.set()
        assert [each.result(30).status_code for each in running] == [200, 200]
        done(client.post(f"{TABLE}/describe", headers=headers))


@pytest.mark.parametrize("operation", ["describe", "drop"])
def test_an_operation_counts_until_it_ends_even_after_its_request(operation: str) -> None:
    """A client with a short timeout of its own holds no more threads than its limit."""
    slow = Slow()
    with limited(slow, concurrent_requests=1) as client:
        refused(client.post(f"{TABLE}/{operation}", headers=as_("ann", **SOON)), 503, 17)
        assert slow.begun.acquire(timeout=30)
        refused(client.post(f"{TABLE}/describe", headers=as_("ann", **SOON)), 429, 21)
        refused(client.post(f"{TABLE}/describe", headers=as_("bob", **SOON)), 503, 17)
        slow.go_on.set()
        wait_until(lambda: client.post(f"{TABLE}/describe", headers=as_("ann")).is_success)


def test_requests_that_never_began_are_released_too() -> None:
    slow = Slow()
    with limited(slow, concurrent_requests=1, threads=1) as client:
        refused(client.post(f"{TABLE}/drop", headers=as_("bob", **SOON)), 503, 17)
        for _ in range(2):
            refused(client.post(f"{TABLE}/drop", headers=as_("ann", **SOON)), 503, 17)
        slow.go_on.set()


def test_requests_that_fail_are_released_too(namespace: Any) -> None:
    with limited(namespace, concurrent_requests=1) as client:
        for _ in range(5):
            refused(client.post("/v1/table/films$gone/describe", headers=as_("ann")), 404, 4)


def test_a_request_is_released_before_its_answer_ends(namespace: Any) -> None:
    """Who has the whole answer may send the next one at once."""
    events: list[str] = []

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        scope["state"]["slot"] = Slot(lambda: events.append("released"))
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "more_body": True})
        await send({"type": "http.response.body"})

    async def send(message: Message) -> None:
        events.append(message["type"])

    async def receive() -> Message:
        return {"type": "http.request"}

    exchanges = Exchanges(app, Gateway(namespace), Process(), lambda *_: pytest.fail("no end"))
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/", "headers": []}
    anyio.run(exchanges, {**scope, "state": {}}, receive, send)
    head, part = "http.response.start", "http.response.body"
    assert events == [head, part, "released", part]


def test_a_principal_may_have_limits_of_its_own(namespace: Any) -> None:
    principals = {"loader": {"rate": "5/minute", "body_bytes": 100_000}}
    with limited(namespace, rate="1/minute", body_bytes=100, principals=principals) as client:
        body = {"properties": {"x": "y" * 200}, "mode": "exist_ok"}
        path = "/v1/namespace/films/create"
        refused(client.post(path, json=body, headers=as_("ann")), 413, 13)
        for _ in range(5):
            done(client.post(path, json=body, headers=as_("loader")))
        refused(client.post(path, json=body, headers=as_("loader")), 429, 21)


def ranges(count: int) -> dict[str, Any]:
    return {"ranges": [{"start_version": 1, "end_version": 2}] * count}


DROPPED = {"deregister_table": {"id": ["films", "t"]}}
VERSION = {"id": ["films", "t"], "version": 1, "manifest_path": "m"}
BATCHES: list[tuple[str, dict[str, Any]]] = [
    ("version/batch-create", {"entries": [VERSION] * 4}),
    ("batch-commit", {"operations": [DROPPED] * 4}),
    ("batch-commit", {"operations": [{"delete_table_versions": ranges(3)}]}),
    ("films$t/version/delete", ranges(4)),
]


@pytest.mark.spec("server.md#request-limits")
def test_entries_of_a_batch_are_limited(namespace: Any) -> None:
    for most in (3, 4):
        with limited(namespace, batch_entries=most) as client:
            for path, body in BATCHES:
                answer = client.post(f"/v1/table/{path}", json=body, headers=as_("ann"))
                if most == 3:
                    assert "4 entries; the limit is 3" in refused(answer, 413, 13)
                else:
                    assert answer.status_code != 413


# -- requests that are counted in a file -----------------------------------------------------------


MINUTE = 60.0


def test_those_who_share_a_file_count_together(tmp_path: Path) -> None:
    file = tmp_path / "counts"
    RequestCounts(file)  # as the process that starts the others

    def add_many(count: int) -> int:
        counts = RequestCounts(file)
        return sum(not counts.add("ann", 50, MINUTE) for _ in range(count))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(add_many, [40] * 4)) == 50
    assert 0 < RequestCounts(file).add("ann", 50, MINUTE) <= MINUTE
    assert not RequestCounts(file).add("bob", 50, MINUTE)


def test_what_was_counted_long_ago_is_forgotten(tmp_path: Path) -> None:
    counts = RequestCounts(tmp_path / "counts")
    assert not counts.add("ann", 1, seconds=0.0)
    assert not counts.add("ann", 1, MINUTE)
    assert counts.wait("ann", 1)
    rows = sqlite3.connect(tmp_path / "counts").execute("SELECT count(*) FROM recent")
    assert rows.fetchone() == (1,)


def test_what_a_dead_process_has_begun_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, dead = RequestCounts(tmp_path / "counts"), os.getpid() + 1
    with monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: dead)
        assert RequestCounts(tmp_path / "counts").begin("ann", 2)
    assert counts.begin("ann", 2)
    assert not counts.begin("ann", 2)
    counts.forget_process(dead)
    assert counts.begin("ann", 2)
    assert not counts.begin("ann", 2)


def test_a_file_that_cannot_be_used_counts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts = RequestCounts(tmp_path / "counts")
    assert counts.begin("ann", 1)
    other = sqlite3.connect(tmp_path / "counts", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ServiceUnavailableError, match="nothing was done"):
        counts.add("ann", 1, MINUTE)
    counts.end("ann")
    assert "limits cannot be checked" in caplog.text
    other.execute("ROLLBACK")
    assert not counts.add("ann", 1, MINUTE)
    assert not counts.begin("ann", 1)  # not uncounted yet
    assert counts.begin("ann", 2)
    counts.end("ann")
    assert counts.begin("ann", 1)


@pytest.fixture(scope="module")
def limits() -> Limits:
    return Limits(body_bytes=1 << 16, batch_bytes=BATCH_BYTES, stall_seconds=0.5)


@pytest.fixture(scope="module")
def address(gateway: Gateway) -> Iterator[str]:
    """A server that loses its patience soon."""
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in (("CHECK", 0.05), ("REQUEST", 0.5), ("CLOSE", 0.2)):
            patch.setattr(listening, f"{name}_SECONDS", seconds)
        with serve_app(create_app(gateway)) as address:
            yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    """A client that sends nothing on a connection which the server may be closing."""
    with httpx.Client(base_url=address, timeout=30, limits=ONE_REQUEST_EACH) as client:
        yield client


@pytest.fixture
def url(address: str, namespace: Any) -> str:  # noqa: ARG001 - it is served
    return address


# -- connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"P", b"POST /v1", head(LIST)[:-2]])
def test_a_request_that_does_not_come_whole_ends_its_connection(url: str, sent: bytes) -> None:
    with dial(url) as connection:
        connection.sendall(sent)
        require_refused(connection, 408, 13)


def test_headers_that_come_byte_by_byte_end_their_connection(url: str) -> None:
    with dial(url) as connection:
        connection.sendall(b"GET /")
        connection.settimeout(0.02)
        received = b""
        while not received:
            connection.sendall(b"a")
            with suppress(TimeoutError):  # the pace of the client
                received = connection.recv(1 << 16)
    assert received.startswith(b"HTTP/1.1 408")


def test_a_connection_is_ended_after_its_last_request(url: str) -> None:
    with dial(url) as connection:
        connection.sendall(head(LIST, method="GET"))
        assert connection.recv(12) == b"HTTP/1.1 200"
        assert b"HTTP/1.1 408" in b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_a_connection_in_use_is_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "REQUEST_SECONDS", 3.0)  # a busy machine pauses between requests
    with httpx.Client(base_url=url) as client:
        answers = []
        for _ in range(10):
            answers.append(client.get(LIST).extensions["network_stream"])
            time.sleep(0.4)  # requests over a longer time than a connection may be idle
    assert len(set(map(id, answers))) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10,
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nx\x00y: z\r\n\r\n",
        head(LIST, "x-large: " + "x" * (400 << 10)),
        head("/" + "x" * (400 << 10)),
        head(LIST, *[f"x-{each}: {each}" for each in range(40_000)]),
    ],
)
def test_what_is_no_http_is_answered_as_an_error(url: str, data: bytes) -> None:
    with dial(url) as connection:
        connection.sendall(data)
        require_refused(connection, 400, 13)


@pytest.mark.parametrize(
    "body",
    [b"zz\r\n{}\r\n", b"2\r\n{}\r\n0\r\n" + b"x-large: 123456789\r\n" * 20_000],
    ids=["broken chunks", "large trailers"],
)
def test_a_body_that_is_no_http_is_refused(http: httpx.Client, url: str, body: bytes) -> None:
    with dial(url) as connection:
        connection.sendall(head(f"{TABLE}/describe", "Transfer-Encoding: chunked") + body)
        require_refused(connection, 400, 13)
    assert http.get(LIST).status_code == 200


def test_a_json_body_that_does_not_end_is_given_up(url: str) -> None:
    with dial(url) as connection:
        headers = ("Content-Type: application/json", "Content-Length: 9", "Connection: close")
        connection.sendall(head(f"{TABLE}/describe", *headers) + b"{")
        require_refused(connection, 503, 17)


@pytest.mark.usefixtures("namespace")
def test_connections_beyond_the_limit_are_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: not listening.WatchedProtocol.open_connections)  # of other servers
    monkeypatch.setattr(listening, "REQUEST_SECONDS", 20.0)
    with serve_app(create_app(gateway), connections=3) as url, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(dial(url)).sendall(b"P")
        wait_until(lambda: _status(url) == 503)
        answer = httpx.get(f"{url}{LIST}")
        assert refused(answer, 503, 17).startswith("The server has too many connections")
        stack.close()
        wait_until(lambda: _status(url) == 200)


def _status(url: str) -> int:
    # Idle connections, which could be in its way, are ended after 20 seconds.
    return httpx.get(f"{url}{LIST}", timeout=15).status_code


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
@pytest.mark.parametrize("operation", ["describe", "insert"])
def test_compressed_bodies_are_refused(http: httpx.Client, encoding: str, operation: str) -> None:
    content = gzip.compress(b" " * (1 << 20))
    headers = {"content-encoding": encoding, "content-type": ARROW}
    if operation == "describe":
        headers["content-type"] = "application/json"
    answer = http.post(f"{TABLE}/{operation}", content=content, headers=headers)
    assert "Content-Encoding" in refused(answer, 415, 13)


@pytest.mark.parametrize("length", [f"Content-Length: {1 << 40}", "Transfer-Encoding: chunked"])
def test_a_large_body_is_refused_before_it_has_come(url: str, length: str) -> None:
    with dial(url) as connection:
        headers = ("Content-Type: application/json", "Connection: close", length)
        connection.sendall(head(f"{TABLE}/describe", *headers))
        part = b" " * (100 << 10)
        connection.sendall(chunk(part) if "chunked" in length else part)
        require_refused(connection, 413, 13)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"id": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"version": ' + b"9" * 60_000 + b"}",
        b'{"version": 1e999999}',
        b'{"unknown": NaN}',
        b'{"version": Infinity}',
        b"{",
        b"\xff\xfe{\x00}\x00",
        b'{"id": ["\\ud800"]}',
        b'{"id": ["\xff"]}',
        b"\x00" * 100,
        b'{"a": 1}{"a": 2}',
    ],
)
@pytest.mark.parametrize(
    "operation", ["describe", "query", "drop_columns", "schema_metadata/update"]
)
def test_hostile_json_is_refused(
    http: httpx.Client, table: str, operation: str, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    answer = http.post(f"{table}/{operation}", content=body, headers=headers)
    refused(answer, 400, 13)


@pytest.mark.parametrize(("size", "is_in_loop"), [(1 << 10, True), (1 << 17, False)])
def test_other_requests_do_not_wait_for_a_large_json_body(
    namespace: Any, monkeypatch: pytest.MonkeyPatch, size: int, is_in_loop: bool
) -> None:
    loops: list[bool] = []

    def watch(work: Any) -> Any:
        def watched(*arguments: Any, **options: Any) -> Any:
            loops.append(asyncio._get_running_loop() is not None)
            return work(*arguments, **options)

        return watched

    for module, name in ((calls, "from_json"), (server_app, "check_batch")):
        monkeypatch.setattr(module, name, watch(getattr(module, name)))
    with serve_namespace(namespace) as address:
        body = {"properties": {"comment": "x" * size}, "mode": "exist_ok"}
        done(httpx.post(f"{address}/v1/namespace/films/create", json=body))
    assert loops == [is_in_loop] * 2


def test_few_large_json_bodies_are_in_memory_at_once(
    namespace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "_LARGE_BODIES", 4)
    gateway = Gateway(namespace)
    go_on = asyncio.Event()

    async def send(begun: list[str], name: str, seconds: float = 30) -> None:
        async with gateway.room_for_body(Principal(name), TimeLimit(seconds)):
            begun.append(name)
            await go_on.wait()

    async def run() -> None:
        begun: list[str] = []
        sent = [asyncio.ensure_future(send(begun, name)) for name in ["ada"] * 5 + ["bob"] * 2]
        await asyncio.sleep(0.01)
        assert sorted(begun) == ["ada"] * 3 + ["bob"]
        with pytest.raises(ServiceUnavailableError, match="the server is busy; nothing was"):
            await send(begun, "carl", seconds=0.01)
        go_on.set()
        await asyncio.gather(*sent)
        assert len(begun) == 7

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "content", "waits"),
    [
        ("describe", b"{" + b" " * (1 << 20) + b"}", True),
        ("describe", b"{}", False),
        ("describe", iter([b"{}"]), True),
        ("insert", b"x" * (2 << 20), False),
    ],
    ids=["large", "small", "in chunks", "rows"],
)
def test_only_large_json_bodies_wait_for_room(
    namespace: Any, monkeypatch: pytest.MonkeyPatch, path: str, content: Any, waits: bool
) -> None:
    asked: list[str] = []

    @asynccontextmanager
    async def note(_: Gateway, principal: Principal, __: TimeLimit) -> AsyncIterator[None]:
        asked.append(principal.name)
        yield

    monkeypatch.setattr(Gateway, "room_for_body", note)
    kinds = {"describe": "application/json", "insert": "application/vnd.apache.arrow.stream"}
    with serve_namespace(namespace) as address:
        headers = {"content-type": kinds[path]}
        answer = httpx.post(f"{address}{TABLE}/{path}", content=content, headers=headers)
    assert answer.status_code in (400, 404)
    assert bool(asked) is waits


@pytest.fixture
def table(http: httpx.Client) -> str:
    done(send_rows(http, f"{TABLE}/create"))
    return TABLE


def zeros(size: int, compression: str | None, times: int = 1) -> bytes:
    """Return a stream of batches with so many bytes of zeros each."""
    column = pa.array([bytes(size)], pa.large_binary())
    batch = pa.record_batch({"id": pa.array([1], pa.int64()), "word": column})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(times):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def with_claim(size: int) -> bytes:
    """Return a stream whose compressed buffers claim a size that they do not have."""
    data = zeros(1 << 20, "zstd")
    return data.replace(struct.pack("<q", 1 << 20), struct.pack("<q", size))


def with_metadata(size: int) -> bytes:
    return struct.pack("<II", 0xFFFFFFFF, size) + bytes(3 << 20)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(zeros(64 << 20, "zstd"), "smaller batches", id="zstd"),
        pytest.param(zeros(8 << 20, "lz4"), "smaller batches", id="lz4"),
        pytest.param(zeros(8 << 20, None), "smaller batches", id="plain"),
        pytest.param(with_claim(1 << 50), "smaller batches", id="a size of a petabyte"),
        pytest.param(with_claim(-5), "", id="a negative size"),
        pytest.param(with_metadata(2_000_000_000), "of metadata", id="large metadata"),
        pytest.param(with_metadata(1 << 20), "", id="metadata of zeros"),
    ],
)
@pytest.mark.parametrize("operation", ["create", "insert", "merge_insert?on=id"])
def test_batches_that_would_take_too_much_memory_are_refused(
    http: httpx.Client, table: str, operation: str, body: bytes, text: str
) -> None:
    path = "/v1/table/films$other" if operation == "create" else table
    answer = http.post(f"{path}/{operation}", content=body, headers={"content-type": ARROW})
    assert text in refused(answer, 400, 13)
    assert done(http.post(f"{table}/count_rows")) == 3


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("times", [1, 5])
def test_batches_up_to_the_limit_are_taken(
    http: httpx.Client, compression: str | None, times: int
) -> None:
    body = zeros(BATCH_BYTES - (1 << 10), compression, times)
    headers = {"content-type": ARROW}
    done(http.post(f"{TABLE}/create", content=body, headers=headers))
    assert done(http.post(f"{TABLE}/count_rows")) == times


def test_many_small_batches_are_taken(http: httpx.Client, table: str) -> None:
    rows = pa.table({"id": pa.array(range(5_000), pa.int64()), "word": ["x"] * 5_000})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=1)
    headers = {"content-type": ARROW}
    done(http.post(f"{table}/insert", content=bytes(sink.getvalue()), headers=headers))
    assert done(http.post(f"{table}/count_rows")) == 5_003


@pytest.mark.parametrize("metadata", [b"\xff" * 8, b"\x04\0\0\0"], ids=["outside", "short"])
def test_metadata_that_points_outside_of_itself_is_refused(
    http: httpx.Client, table: str, metadata: bytes
) -> None:
    body = struct.pack("<II", 0xFFFFFFFF, len(metadata)) + metadata
    answer = http.post(f"{table}/insert", content=body, headers={"content-type": ARROW})
    assert refused(answer, 400, 13) == "The body is not a valid Arrow IPC stream"
    assert done(http.post(f"{table}/count_rows")) == 3


def test_dictionaries_count_as_batches(http: httpx.Client, table: str) -> None:
    words = pa.array(["x" * (6 << 20)]).dictionary_encode()
    answer = send_rows(http, f"{table}/create", pa.table({"word": words}))
    assert "smaller batches" in refused(answer, 400, 13)


def test_a_stream_without_batches_is_taken(http: httpx.Client, table: str) -> None:
    done(send_rows(http, f"{table}/insert", ROWS.slice(0, 0)))
    assert done(http.post(f"{table}/count_rows")) == 3
