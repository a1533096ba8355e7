"""The HTTP proxy counts and records what goes through, and breaks only what a rule names."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from servers.http_proxy import Delay, Fault, HttpProxy
from servers.processes import wait_until

pytestmark = pytest.mark.quick

REPLY = b'{"number": 1, "text": "what the server says"}'
TIMEOUT = 60.0


class Effects(ThreadingHTTPServer):
    """A server that remembers the bodies of the requests that reached it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Effect)
        self.bodies: list[bytes] = []
        self.may_act = threading.Event()
        self.may_act.set()


class _Effect(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Effects

    def do_POST(self) -> None:
        self.server.may_act.wait(TIMEOUT)
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def effects() -> Iterator[Effects]:
    server = Effects()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(effects: Effects) -> Iterator[HttpProxy]:
    with HttpProxy(f"http://127.0.0.1:{effects.server_port}") as running:
        yield running


@pytest.fixture
def client(proxy: HttpProxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=TIMEOUT)
    yield connection
    connection.close()


def call(
    connection: http.client.HTTPConnection, name: str = "Change", body: bytes = b"{}"
) -> tuple[int, bytes]:
    """Send a request as AWS's JSON services get it; return status and body."""
    connection.request("POST", "/", body, {"X-Amz-Target": f"AWSGlue.{name}"})
    response = connection.getresponse()
    return response.status, response.read()


def test_requests_pass_with_their_body_and_replies_with_theirs(
    effects: Effects, client: http.client.HTTPConnection
) -> None:
    assert call(client, body=b'{"a": 1}') == (200, REPLY)
    assert effects.bodies == [b'{"a": 1}']


def test_requests_of_unknown_length_are_cut_off_and_not_passed_on(
    effects: Effects, client: http.client.HTTPConnection
) -> None:
    def call_in_chunks() -> None:
        client.request("POST", "/", iter([b"a", b"b"]), encode_chunked=True)
        client.getresponse()

    with pytest.raises(ConnectionError):
        call_in_chunks()
    assert effects.bodies == []


def test_requests_are_counted_by_operation_or_by_method_and_path(
    proxy: HttpProxy, client: http.client.HTTPConnection
) -> None:
    call(client, "GetTables")
    call(client, "GetTables")
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    client.request("POST", "/", b"Action=AssumeRole&Version=1", form)
    client.getresponse().read()
    client.request("GET", "/tables/a.b.c?full=true")
    client.getresponse().read()
    assert proxy.counts == {"GetTables": 2, "AssumeRole": 1, "GET /tables/a.b.c": 1}


def test_a_recorded_request_shows_no_header_and_no_body(
    proxy: HttpProxy, client: http.client.HTTPConnection
) -> None:
    client.request("POST", "/", b"the-secret", {"Authorization": "Bearer the-secret"})
    client.getresponse().read()
    assert "the-secret" not in repr(proxy.requests)


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (Fault.RESET, ConnectionResetError),
        (Fault.DROP_REQUEST, http.client.RemoteDisconnected),
        (Fault.LOSE_REPLY, ConnectionResetError),
        (Fault.TRUNCATE_REPLY, http.client.IncompleteRead),
    ],
)
def test_a_broken_connection_has_or_has_not_let_the_request_through(
    effects: Effects,
    proxy: HttpProxy,
    client: http.client.HTTPConnection,
    fault: Fault,
    seen: type[Exception],
) -> None:
    proxy.fail_next("Change", fault)
    with pytest.raises(seen) as caught:
        call(client)
    assert type(caught.value) is seen
    assert effects.bodies == [b"{}"] * (fault in (Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY))
    assert proxy.fired == [("Change", fault)]
    client.close()
    assert call(client) == (200, REPLY)


@pytest.mark.parametrize("effect_first", [False, True])
def test_a_delayed_request_or_reply_waits_until_it_is_released(
    effects: Effects, proxy: HttpProxy, client: http.client.HTTPConnection, effect_first: bool
) -> None:
    delay = Delay(effect_first=effect_first)
    proxy.fail_next("Change", delay)
    answers: list[str] = []
    thread = in_background(client, answers)
    proxy.await_requests("Change")
    if effect_first:
        wait_until(lambda: effects.bodies == [b"{}"])
    thread.join(0.2)
    assert answers == []
    assert effects.bodies == [b"{}"] * effect_first
    delay.release.set()
    thread.join(TIMEOUT)
    assert answers == ["200"]


@pytest.mark.parametrize("arrives_late", [False, True])
def test_a_client_that_gives_up_waiting_has_not_been_heard_or_is_heard_later(
    effects: Effects, proxy: HttpProxy, arrives_late: bool
) -> None:
    delay = Delay(arrives_late=arrives_late)
    proxy.fail_next("Change", delay)
    impatient = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=0.2)
    with pytest.raises(TimeoutError):
        call(impatient)
    impatient.close()
    if not arrives_late:
        wait_until(lambda: proxy.open_connections == 0)
    assert effects.bodies == []
    delay.release.set()
    wait_until(lambda: proxy.open_connections == 0)
    assert effects.bodies == [b"{}"] * arrives_late


def in_background(client: http.client.HTTPConnection, answers: list[str]) -> threading.Thread:
    """Send a request from a thread, and note what came of it."""

    def send() -> None:
        try:
            answers.append(str(call(client)[0]))
        except (http.client.HTTPException, OSError) as error:
            answers.append(type(error).__name__)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_stop_ends_requests_that_wait_and_they_never_reach_the_server(
    effects: Effects, proxy: HttpProxy, client: http.client.HTTPConnection
) -> None:
    delay, answers = Delay(), list[str]()
    proxy.fail_next("Change", delay)
    thread = in_background(client, answers)
    proxy.await_requests("Change")
    began = time.monotonic()
    proxy.stop()
    assert time.monotonic() - began < TIMEOUT
    delay.release.set()
    thread.join(TIMEOUT)
    assert answers == ["RemoteDisconnected"]
    assert effects.bodies == []


def test_stop_waits_for_what_the_server_is_doing(
    effects: Effects, proxy: HttpProxy, client: http.client.HTTPConnection
) -> None:
    effects.may_act.clear()
    answers: list[str] = []
    caller = in_background(client, answers)
    proxy.await_requests("Change")
    stopper = threading.Thread(target=proxy.stop)
    stopper.start()
    stopper.join(0.3)
    assert stopper.is_alive()
    effects.may_act.set()
    stopper.join(TIMEOUT)
    assert effects.bodies == [b"{}"]
    caller.join(TIMEOUT)
    assert answers == ["RemoteDisconnected"]
