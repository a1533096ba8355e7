"""The HTTP proxy counts and records what goes through, and breaks only what a rule names."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator

import pytest

from servers.http_proxy import Delay, Fault, HttpProxy
from servers.replies import Replies, reply_server

from .processes import wait_until

pytestmark = pytest.mark.quick

REPLY = b'{"number": 1, "text": "what the server says"}'
TIMEOUT = 60.0


@pytest.fixture
def server() -> Iterator[Replies]:
    with reply_server() as running:
        running.body, running.content_type = REPLY.decode(), "application/json"
        yield running


@pytest.fixture
def proxy(server: Replies) -> Iterator[HttpProxy]:
    with HttpProxy(server.address) as running:
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


def test_requests_of_unknown_length_are_cut_off_and_not_passed_on(
    server: Replies, client: http.client.HTTPConnection
) -> None:
    def call_in_chunks() -> None:
        client.request("POST", "/", iter([b"a", b"b"]), encode_chunked=True)
        client.getresponse()

    with pytest.raises(ConnectionError):
        call_in_chunks()
    assert server.bodies == []


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
    server: Replies,
    proxy: HttpProxy,
    client: http.client.HTTPConnection,
    fault: Fault,
    seen: type[Exception],
) -> None:
    proxy.fail_next("Change", fault)
    with pytest.raises(seen) as caught:
        call(client)
    assert type(caught.value) is seen
    assert server.bodies == ["{}"] * (fault in (Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY))
    assert proxy.fired == [("Change", fault)]
    client.close()
    assert call(client) == (200, REPLY)


@pytest.mark.parametrize("effect_first", [False, True])
def test_a_delayed_request_or_reply_waits_until_it_is_released(
    server: Replies, proxy: HttpProxy, client: http.client.HTTPConnection, effect_first: bool
) -> None:
    delay = Delay(effect_first=effect_first)
    proxy.fail_next("Change", delay)
    answers: list[str] = []
    thread = in_background(client, answers)
    proxy.await_requests("Change")
    if effect_first:
        wait_until(lambda: server.bodies == ["{}"])
    thread.join(0.2)
    assert answers == []
    assert server.bodies == ["{}"] * effect_first
    delay.release.set()
    thread.join(TIMEOUT)
    assert answers == ["200"]


@pytest.mark.parametrize("arrives_late", [False, True])
def test_a_client_that_gives_up_waiting_has_not_been_heard_or_is_heard_later(
    server: Replies, proxy: HttpProxy, arrives_late: bool
) -> None:
    delay = Delay(arrives_late=arrives_late)
    proxy.fail_next("Change", delay)
    impatient = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=0.2)
    with pytest.raises(TimeoutError):
        call(impatient)
    impatient.close()
    if not arrives_late:
        wait_until(lambda: proxy.open_connections == 0)
    assert server.bodies == []
    delay.release.set()
    wait_until(lambda: proxy.open_connections == 0)
    assert server.bodies == ["{}"] * arrives_late


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
    server: Replies, proxy: HttpProxy, client: http.client.HTTPConnection
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
    assert server.bodies == []


def test_stop_waits_for_what_the_server_is_doing(
    server: Replies, proxy: HttpProxy, client: http.client.HTTPConnection
) -> None:
    server.may_answer.clear()
    answers: list[str] = []
    caller = in_background(client, answers)
    proxy.await_requests("Change")
    stopper = threading.Thread(target=proxy.stop)
    stopper.start()
    stopper.join(0.3)
    assert stopper.is_alive()
    server.may_answer.set()
    stopper.join(TIMEOUT)
    assert server.bodies == ["{}"]
    caller.join(TIMEOUT)
    assert answers == ["RemoteDisconnected"]
