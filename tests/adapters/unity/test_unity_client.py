"""Requests under faults: what is repeated, what is never repeated, and how long it takes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from core.forking import returns_in_child
from lance_namespace.errors import (
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
)
from servers.http_proxy import Answer, Delay, Fault, HttpProxy
from servers.replies import ScriptedServer, unanswered
from servers.unity import UnityServer

from lance_bridge.catalog import TableRecord
from lance_bridge.config import load
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_unity import UnityConfig
from lance_bridge_unity.catalog import UnityCatalog
from lance_bridge_unity.client import route

from .building import TABLE, Connect, record

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#connections", "unity.md#errors-of-every-operation"),
]

CREATE = "POST /api/2.1/unity-catalog/tables"
READ = "GET /api/2.1/unity-catalog/tables/c.s.t"
THROTTLED = Answer.of_json(429, {"error_code": "RESOURCE_EXHAUSTED", "message": "slow down"})
LOST = [
    Fault.RESET,
    Fault.DROP_REQUEST,
    Fault.LOSE_REPLY,
    Fault.TRUNCATE_REPLY,
    Fault.MALFORMED_REPLY,
    Fault.EMPTY_REPLY,
]


@pytest.mark.parametrize("fault", LOST)
def test_a_read_is_repeated_until_it_is_answered(
    server: UnityServer, proxy: HttpProxy, connect: Connect, fault: Fault
) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, fault, times=2)
    assert connect().load_table(TABLE).path == TABLE
    assert proxy.counts[READ] == 3


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("fault", LOST)
def test_a_read_that_is_never_answered_is_not_absence(
    server: UnityServer, proxy: HttpProxy, connect: Connect, fault: Fault, exists: bool
) -> None:
    if exists:
        server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, fault, times=99)
    with pytest.raises(ServiceUnavailableError) as caught:
        connect(max_retries="2").load_table(TABLE)
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert proxy.counts[READ] == 3


def test_a_throttled_change_is_repeated(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(CREATE, THROTTLED, times=2)
    assert connect().create_table(record()).identity is not None
    assert proxy.counts[CREATE] == 3


def test_a_server_that_only_throttles_is_given_up(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next("*", THROTTLED, times=99)
    with pytest.raises(ThrottlingError):
        connect(max_retries="2").load_table(TABLE)
    assert sum(proxy.counts.values()) == 3


def test_retry_after_is_respected(server: UnityServer, proxy: HttpProxy, connect: Connect) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, Answer.of_json(503, {}, Retry_After="1"))
    started = time.monotonic()
    connect().load_table(TABLE)
    assert time.monotonic() - started >= 1.0


def test_a_wait_beyond_the_budget_is_not_started(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(READ, Answer.of_json(429, {}, Retry_After="3600"))
    started = time.monotonic()
    with pytest.raises(ThrottlingError):
        connect().load_table(TABLE)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("status", [408, 502, 503, 504])
def test_a_failure_that_may_pass_is_asked_about_again(
    server: UnityServer, proxy: HttpProxy, connect: Connect, status: int
) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, Answer.of_json(status, {}))
    assert connect().load_table(TABLE).path == TABLE
    assert proxy.counts[READ] == 2


def test_a_failure_that_will_not_pass_is_not_repeated(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(READ, Answer.of_json(500, {"error_code": "INTERNAL"}), times=99)
    with pytest.raises(ServiceUnavailableError):
        connect().load_table(TABLE)
    assert proxy.counts[READ] == 1


def test_a_change_that_a_silent_server_got_is_unknown(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(CREATE, Delay(effect_first=True))
    with pytest.raises(OutcomeUnknownError):
        connect(read_timeout="0.3").create_table(record())
    assert proxy.counts[CREATE] == 1


def test_a_dead_server_is_service_unavailable_and_not_a_doubt(
    proxy: HttpProxy, connect: Connect
) -> None:
    catalog = connect(retry_timeout="0.5")
    proxy.stop()
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError) as caught:
        catalog.create_table(record())
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert time.monotonic() - started < 30


def test_a_change_reaches_a_server_that_comes_back(proxy: HttpProxy, connect: Connect) -> None:
    catalog = connect(max_retries="50", retry_timeout="20")
    proxy.stop()
    timer = threading.Timer(0.5, proxy.start)
    timer.start()
    assert catalog.create_table(record()).identity is not None
    timer.join()
    assert proxy.counts[CREATE] == 1


def test_a_redirect_is_not_followed(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(CREATE, Answer(302, b"", {"Location": "http://elsewhere/login"}))
    with pytest.raises(Exception, match="redirects to http://elsewhere/login"):
        connect().create_table(record())
    assert list(proxy.counts) == [CREATE]


def test_a_web_server_that_is_no_catalog_is_not_absence(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(READ, Answer(404, b"<html>Not Found</html>"))
    with pytest.raises(Exception, match="check host") as caught:
        connect().load_table(TABLE)
    assert not isinstance(caught.value, TableNotFoundError)


# -- who one is ----------------------------------------------------------------------------------


def test_a_token_is_sent_and_not_logged(
    server: UnityServer, proxy: HttpProxy, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server.token = "right-hush"
    server.add_table("c", "s", "t", properties={"k": "v"})
    connect(token="right-hush").load_table(TABLE)
    with pytest.raises(UnauthenticatedError) as caught:
        connect(auth_token="wrong-hush").load_table(TABLE)
    assert proxy.requests[0].headers["authorization"] == "Bearer right-hush"
    assert "hush" not in str(caught.value)
    assert "hush" not in caplog.text


def test_without_a_token_none_is_sent(
    server: UnityServer, proxy: HttpProxy, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-of-somewhere-else")
    server.add_table("c", "s", "t", properties={"k": "v"})
    connect().load_table(TABLE)
    assert "authorization" not in proxy.requests[0].headers


def test_a_netrc_file_does_not_replace_the_token(
    server: UnityServer,
    proxy: HttpProxy,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.add_table("c", "s", "t", properties={"k": "v"})
    connect(token="mine").load_table(TABLE)
    assert proxy.requests[0].headers["authorization"] == "Bearer mine"


# -- names and pages -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "..", "a?b", "a#b", "a%2Fb", "ä"])
def test_names_are_escaped_in_urls(name: str) -> None:
    path = route("tables", "c", "s", name)
    assert path.startswith("/tables/c.s.")
    assert path.count("/") == 2
    assert not set(path) & set("?# ")


def test_an_empty_page_is_not_the_end(proxy: HttpProxy, connect: Connect) -> None:
    listing = "GET /api/2.1/unity-catalog/tables"
    for page in (
        {"next_page_token": "one"},
        {"tables": [], "next_page_token": "two"},
        {"tables": [{"name": "t"}, None, {"name": 7}]},
    ):
        proxy.fail_next(listing, Answer.of_json(200, page))
    found = list(connect().scan_tables(("c", "s")))
    assert [record.path for record in found if record.is_readable] == [TABLE]
    assert len(found) == 2  # a row whose name is no text is an entry that cannot be read


def test_a_page_that_comes_again_does_not_go_on_for_ever(
    proxy: HttpProxy, connect: Connect
) -> None:
    listing = "GET /api/2.1/unity-catalog/tables"
    proxy.fail_next(listing, Answer.of_json(200, {"next_page_token": "same"}), times=99)
    with pytest.raises(ServiceUnavailableError):
        list(connect().scan_tables(("c", "s")))
    assert proxy.counts[listing] == 2


# -- threads and processes -----------------------------------------------------------------------


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
def test_a_child_process_does_not_use_its_parents_connection(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    catalog = connect()
    catalog.load_table(TABLE)
    assert returns_in_child(lambda: catalog.load_table(TABLE))
    catalog.load_table(TABLE)
    assert proxy.counts[READ] == 3
    assert proxy.connections == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda catalog: catalog.load_table(TABLE),
        lambda catalog: list(catalog.scan_tables(("c", "s"))),
        lambda catalog: catalog.list_namespaces(()),
        lambda catalog: catalog.drop_namespace(("c", "s")),
    ],
)
def test_nothing_waits_for_ever(connect: Connect, ask: Callable[[object], object]) -> None:
    limits = {"read_timeout": "0.3", "retry_timeout": "1", "max_retries": "1"}
    with unanswered(is_silent=True) as address:
        catalog = connect(host=f"http://{address}", **limits)
        started = time.monotonic()
        with pytest.raises(ServiceUnavailableError):
            ask(catalog)
        assert time.monotonic() - started < 30


# -- answers that come byte by byte ---------------------------------------------------------------


LIMIT = 0.5
OK = b"HTTP/1.1 200 OK\r\n"
BEGINNINGS = {
    "a head": (OK + b"X-Slow: ", b"."),
    "a body": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "a body in pieces": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a body until the end": (OK + b"Connection: close\r\n\r\n", b" "),
    "an error": (b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n", b" "),
    "many heads": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@contextmanager
def trickling(beginning: bytes, more: bytes, times: float = float("inf")) -> Iterator[str]:
    """Run a server that begins an answer and goes on with it a little at a time; give its URL."""

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(beginning)
        sent = 0
        while sent < times:
            time.sleep(LIMIT / 10)  # the pace of this server, not a wait for something
            connection.sendall(more)
            sent += 1

    with closing(ScriptedServer(serve)) as server:
        yield server.url


def catalog_at(url: str) -> UnityCatalog:
    given = {"host": url, "root": "/data", "read_timeout": str(LIMIT), "max_retries": "1"}
    return UnityCatalog(load(UnityConfig, "unity", given))


def test_a_read_whose_answer_trickles_is_given_up_in_time() -> None:
    def read(url: str) -> None:
        with pytest.raises(ServiceUnavailableError, match="timed out"):
            catalog_at(url).load_table(TABLE)

    while_answers_trickle(read)


def test_a_change_whose_answer_trickles_is_unknown_in_time() -> None:
    def change(url: str) -> None:
        with pytest.raises(OutcomeUnknownError):
            catalog_at(url).create_table(TableRecord(TABLE, "file:///data/t", {}))

    while_answers_trickle(change)


def while_answers_trickle(call: Callable[[str], None]) -> None:
    """Call a server for each of `BEGINNINGS`, all at once, and require that each call ends."""
    started = time.monotonic()
    with ExitStack() as servers, ThreadPoolExecutor(len(BEGINNINGS)) as pool:
        urls = [servers.enter_context(trickling(*each)) for each in BEGINNINGS.values()]
        list(pool.map(call, urls))
    assert time.monotonic() - started < 30


def test_a_slow_answer_that_comes_in_time_counts() -> None:
    beginning = OK + b'Connection: close\r\n\r\n{"name": "t"'
    with trickling(beginning, b" }", times=1) as url:
        assert catalog_at(url).load_table(TABLE).path == TABLE


@contextmanager
def answering_once(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that closes each connection after an answer; give its URL and the requests."""
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        requests.append(connection.recv(1 << 16))
        connection.sendall(answer)

    with closing(ScriptedServer(serve)) as server:
        yield server.url, requests


def test_a_change_that_a_proxy_got_is_unknown_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering_once(b"") as (proxy, requests):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(OutcomeUnknownError):
            catalog_at("http://unity.invalid").create_table(TableRecord(TABLE, "file:///t", {}))
    assert [each.split()[0] for each in requests].count(b"POST") == 1


def test_a_change_for_which_a_proxy_opens_no_tunnel_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering_once(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n") as (proxy, requests):
        monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(ServiceUnavailableError, match="Tunnel connection failed") as caught:
            catalog_at("https://unity.invalid").create_table(TableRecord(TABLE, "file:///t", {}))
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert [each.split()[0] for each in requests] == [b"CONNECT", b"CONNECT"]


def test_an_answer_through_a_proxy_that_trickles_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = time.monotonic()
    with trickling(*BEGINNINGS["a body"]) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(ServiceUnavailableError, match="timed out"):
            catalog_at("http://unity.invalid").load_table(TABLE)
    assert time.monotonic() - started < 30
