"""Answers that come byte by byte: each ends in time, and is taken for what it is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.catalog import TableRecord
from lance_bridge.config import load
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_unity import UnityConfig
from lance_bridge_unity.catalog import UnityCatalog

from .building import TABLE

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#connections", "unity.md#errors-of-every-operation"),
]

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
    stop = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(1 << 16)
                connection.sendall(beginning)
                sent = 0
                while sent < times and not stop.wait(LIMIT / 10):
                    connection.sendall(more)
                    sent += 1
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)


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
def closing(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that closes each connection after an answer; give its URL and the requests."""
    requests: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                requests.append(connection.recv(1 << 16))
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def test_a_change_that_a_proxy_got_is_unknown_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(b"") as (proxy, requests):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(OutcomeUnknownError):
            catalog_at("http://unity.invalid").create_table(TableRecord(TABLE, "file:///t", {}))
    assert [each.split()[0] for each in requests].count(b"POST") == 1


def test_a_change_for_which_a_proxy_opens_no_tunnel_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n") as (proxy, requests):
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
