"""The pool without a metastore: threads in line for a connection, and servers that are none.

Also the handshakes of SASL, and what servers can do wrong in them.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from types import SimpleNamespace

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from servers.processes import wait_until
from servers.replies import Handler, ScriptedServer
from thrift.Thrift import TApplicationException

from lance_bridge.config import load
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive import sasl
from lance_bridge_hive.client import ClientPool, FairSlots
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.sockets import refuse_self_connection

pytestmark = [pytest.mark.quick, pytest.mark.spec("hive.md#delegation-tokens", "hive.md#security")]

_STRING, _STRUCT, _MAP, _LIST = 11, 12, 13, 15
_REPLY = 2
_LATEST = 8.0
"""Seconds in which a call ends whose limit is one. A busy machine adds to it; the shortest limit by
default is ten."""
_TOO_LARGE = r"announces, a size that client\.max-message-size"
Serve = Callable[[Handler], ScriptedServer]
PoolOf = Callable[..., ClientPool]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda handler: stack.enter_context(closing(ScriptedServer(handler)))


@pytest.fixture
def pool_of() -> Iterator[PoolOf]:
    """Makes pools for a URI that give up soon; closes them."""
    defaults = {"client.timeout": "1", "client.retry-timeout": "0", "client.connect-timeout": "1"}
    with ExitStack() as stack:

        def make(uri: str, **properties: str) -> ClientPool:
            config = load(HiveConfig, "hive", {"uri": uri, **defaults, **properties})
            return stack.enter_context(closing(ClientPool(config)))

        yield make


def ask(pool: ClientPool, *, repeatable: bool = True) -> object:
    return pool.call(
        lambda c: c.hms.get_all_databases(), name="get_all_databases", repeatable=repeatable
    )


def header(name: bytes = b"get_all_databases", number: int = 1, kind: int = _REPLY) -> bytes:
    return struct.pack(f"!Ii{len(name)}si", 0x80010000 | kind, len(name), name, number)


def names(*values: bytes) -> bytes:
    """The rest of a reply of get_all_databases."""
    items = b"".join(struct.pack("!i", len(value)) + value for value in values)
    return struct.pack("!bhbi", _LIST, 0, _STRING, len(values)) + items + b"\0"


def answer_once(reply: bytes) -> Handler:
    """Send ``reply`` once a request has come, and wait for the client to leave."""

    def handler(client: socket.socket) -> None:
        while client.recv(65_536):
            client.sendall(reply)

    return handler


def answer_http(reply: bytes) -> Handler:
    """As ``answer_once``, once the whole of a request has come."""

    def handler(client: socket.socket) -> None:
        request = b""
        while piece := client.recv(65_536):
            request += piece
            if b"get_all_databases" in request:
                client.sendall(reply)
                request = b""

    return handler


def test_a_correct_reply_is_read(serve: Serve, pool_of: PoolOf) -> None:
    server = serve(answer_once(header() + names(b"a", b"b")))
    assert ask(pool_of(server.uri)) == ["a", "b"]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not Thrift"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", r"set tls\.enabled=true"),
        (b"\x03\0\0\0\x14Unexpected status -128", r"set auth\.mechanism"),
        (b"220 mail.example ESMTP\r\n", "cannot be decoded"),
        (header(b"get_table") + names(b"a"), "a reply to another request"),
        (header(number=7) + names(b"a"), "a reply to another request"),
        (
            header() + struct.pack("!bhbi", _LIST, 0, _STRING, 0x7FFFFFFF),
            _TOO_LARGE,
        ),
        (header() + struct.pack("!bhbi", _LIST, 0, _STRING, -1), _TOO_LARGE),
        (
            header() + struct.pack("!bhbii", _LIST, 0, _STRING, 1, 0x7FFFFFFF),
            _TOO_LARGE,
        ),
        (header() + struct.pack("!bhbii", _LIST, 0, _STRING, 1, -5), _TOO_LARGE),
        (header() + bytes([_STRUCT, 0, 9]) * 100_000, "cannot be decoded|depth|within"),
    ],
)
def test_a_malformed_answer_gives_a_typed_error_in_time(
    serve: Serve, pool_of: PoolOf, reply: bytes, says: str
) -> None:
    server = serve(answer_once(reply))
    pool = pool_of(server.uri)
    tracemalloc.start()
    started = time.monotonic()
    try:
        with pytest.raises(ServiceUnavailableError, match=says) as caught:
            ask(pool)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.monotonic() - started < _LATEST
    assert peak < 150_000_000
    assert server.uri in str(caught.value)


def test_random_bytes_never_give_an_untyped_error(serve: Serve, pool_of: PoolOf) -> None:
    source = random.Random(7)

    def handler(client: socket.socket) -> None:
        client.recv(65_536)
        start = source.choice([b"", header(), header() + names(b"x")[:9]])
        client.sendall(start + source.randbytes(source.randrange(200)))

    pool = pool_of(serve(handler).uri)
    for _ in range(150):
        with pytest.raises((ServiceUnavailableError, TApplicationException)):
            ask(pool)


def test_a_change_answered_with_garbage_may_have_happened(serve: Serve, pool_of: PoolOf) -> None:
    pool = pool_of(serve(answer_once(b"HTTP/1.1 500 Oops\r\n\r\n")).uri)
    with pytest.raises(OutcomeUnknownError, match="may have happened or not"):
        ask(pool, repeatable=False)


def test_a_server_that_answers_a_byte_at_a_time_is_left_in_time(
    serve: Serve, pool_of: PoolOf
) -> None:
    def handler(client: socket.socket) -> None:
        client.recv(65_536)
        for byte in header() + names(b"a" * 100):
            client.sendall(bytes([byte]))
            time.sleep(0.1)  # the pace of this server, not a wait for something

    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match="no complete reply within 1 s"):
        ask(pool_of(serve(handler).uri))
    assert time.monotonic() - started < _LATEST


def test_a_reply_that_never_ends_is_cut_off_at_the_largest_size(
    serve: Serve, pool_of: PoolOf
) -> None:
    def handler(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(header() + struct.pack("!bhbi", _LIST, 0, _STRING, 1_000_000))
        while True:
            client.sendall(struct.pack("!i", 1000) + b"x" * 1000)

    pool = pool_of(serve(handler).uri, **{"client.max-message-size": "1000000"})
    with pytest.raises(ServiceUnavailableError, match=r"client\.max-message-size"):
        ask(pool)


def test_a_reply_in_two_parts_of_which_one_was_not_asked_for_spoils_the_connection(
    serve: Serve,
    pool_of: PoolOf,
) -> None:
    def handler(client: socket.socket) -> None:
        number = 0
        while client.recv(65_536):
            number += 1
            client.sendall((header(number=number) + names(b"mine")) * 2)

    server = serve(handler)
    pool = pool_of(server.uri, **{"client.retry-timeout": "5"})
    assert [ask(pool) for _ in range(3)] == [["mine"]] * 3


@pytest.mark.parametrize(
    ("scheme", "fits"),
    [
        ("thrift", r"do client\.framed, tls\.enabled and auth\.mechanism fit this metastore\?\)$"),
        ("http", r"is it a metastore's HTTP transport, without TLS\?\)$"),
    ],
)
@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (lambda _: None, r"(closed the connection|reset by peer|broken pipe) \("),
        (answer_once(b""), r"within 1 s \(is it stopped or overloaded\? if not, "),
    ],
)
def test_a_server_that_never_answered_is_named_with_what_to_check(
    serve: Serve, pool_of: PoolOf, *, scheme: str, fits: str, handler: Handler, says: str
) -> None:
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match=says + fits):
        ask(pool_of(serve(handler).uri.replace("thrift", scheme)))
    assert time.monotonic() - started < _LATEST


def test_https_to_a_server_without_tls_names_the_scheme(serve: Serve, pool_of: PoolOf) -> None:
    server = serve(answer_once(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(
        ServiceUnavailableError, match="does not speak TLS: write http://"
    ) as caught:
        ask(pool_of(server.uri.replace("thrift", "https")))
    assert "tls.enabled" not in str(caught.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"tls.enabled": "true"},
        {"auth.mechanism": "plain", "auth.username": "u", "auth.password": "hunter2"},
        {"ugi": "me"},
    ],
)
def test_opening_a_connection_ends_in_time(
    serve: Serve, pool_of: PoolOf, properties: dict[str, str]
) -> None:
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError) as caught:
        ask(pool_of(serve(answer_once(b"")).uri, **properties))
    assert time.monotonic() - started < _LATEST
    assert "hunter2" not in str(caught.value)


def test_a_large_request_to_a_server_that_does_not_read_was_not_executed(
    serve: Serve, pool_of: PoolOf
) -> None:
    release = threading.Event()

    def handler(_: socket.socket) -> None:
        release.wait(10)

    pool = pool_of(serve(handler).uri)
    with pytest.raises(ServiceUnavailableError, match="no complete request within") as caught:
        pool.call(
            lambda c: c.hms.get_database("x" * 50_000_000), name="get_database", repeatable=False
        )
    release.set()
    assert not isinstance(caught.value, OutcomeUnknownError)


def test_a_socket_that_the_system_connected_to_itself_is_refused() -> None:
    with socket.socket() as echo:
        echo.bind(("127.0.0.1", 0))
        echo.connect(echo.getsockname())
        with pytest.raises(ConnectionRefusedError):
            refuse_self_connection(echo)


# -- HTTP ----------------------------------------------------------------------------------------


def http_reply(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.spec("common.md#errors-of-every-operation", "hive.md#errors-of-every-operation")
@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (http_reply("401 Unauthorized", b""), "UnauthenticatedError", r"401.*check http\.token"),
        (http_reply("403 Forbidden", b""), "PermissionDeniedError", "403"),
        (http_reply("404 Not Found", b""), "ServiceUnavailableError", "404.*check the path"),
        (http_reply("302 Found", b""), "ServiceUnavailableError", "302"),
        (http_reply("500 Oops", b""), "OutcomeUnknownError", "500"),
        (http_reply("200 OK", b"<html>"), "OutcomeUnknownError", "cannot be decoded"),
        (http_reply("200 OK", b""), "OutcomeUnknownError", "reply ended before"),
        (b"220 mail.example ESMTP\r\n", "OutcomeUnknownError", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", "OutcomeUnknownError", "within 1 s"),
    ],
)
def test_http_answers_are_classified(
    serve: Serve, pool_of: PoolOf, reply: bytes, error: str, says: str
) -> None:
    pool = pool_of(serve(answer_http(reply)).url, **{"http.token": "hunter2"})
    with pytest.raises(Exception, match=says) as caught:
        ask(pool, repeatable=False)
    assert type(caught.value).__name__ == error
    assert "hunter2" not in str(caught.value)


def test_the_bearer_token_is_sent_and_the_connection_kept(serve: Serve, pool_of: PoolOf) -> None:
    requests: list[bytes] = []

    def handler(client: socket.socket) -> None:
        while request := client.recv(65_536):
            while b"\r\n\r\n" not in request or b"get_all_databases" not in request:
                request += client.recv(65_536)
            requests.append(request)
            reply = header(number=len(requests)) + names(b"a")
            client.sendall(http_reply("200 OK", reply))

    server = serve(handler)
    pool = pool_of(server.url, **{"http.token": "abc"})
    assert [ask(pool) for _ in range(3)] == [["a"]] * 3
    assert server.connections == 1
    assert all(request.startswith(b"POST /metastore HTTP/1.1\r\n") for request in requests)
    assert all(b"Authorization: Bearer abc\r\n" in request for request in requests)
    assert all(b"x-actor-username" not in request for request in requests)


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("repeatable", [True, False])
def test_a_connection_that_the_server_ends_is_read_to_its_end_and_not_used_again(
    serve: Serve, pool_of: PoolOf, sized: bool, repeatable: bool
) -> None:
    body = header() + names(b"a", b"b")
    size = f"Content-Length: {len(body)}\r\nConnection: close\r\n" if sized else ""

    def handler(client: socket.socket) -> None:
        request = b""
        while b"get_all_databases" not in request:
            request += client.recv(65_536)
        client.sendall(f"HTTP/1.1 200 OK\r\n{size}\r\n".encode())
        time.sleep(0.05)  # the pace of this server, not a wait for something
        client.sendall(body)
        if sized:  # it takes its time to hang up, and would leave a second request unanswered
            client.recv(1)

    server = serve(handler)
    pool = pool_of(server.url)
    assert [ask(pool, repeatable=repeatable) for _ in range(3)] == [["a", "b"]] * 3
    assert server.connections == 3


def test_nothing_is_sent_on_a_connection_that_the_server_ends(
    serve: Serve, pool_of: PoolOf
) -> None:
    body = header() + names(b"a")
    reply = http_reply("200 OK\r\nConnection: close", body)
    pool = pool_of(serve(answer_http(reply)).url)
    with pytest.raises(ServiceUnavailableError, match="only one request per connection"):
        pool.call(
            lambda c: [c.hms.get_all_databases() for _ in range(2)], name="both", repeatable=True
        )


def test_a_refusal_counts_before_its_body_has_come(serve: Serve, pool_of: PoolOf) -> None:
    reply = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nab"
    with pytest.raises(PermissionDeniedError, match="403"):
        ask(pool_of(serve(answer_http(reply)).url))


def test_a_chunked_reply_that_breaks_off_is_a_lost_connection(
    serve: Serve, pool_of: PoolOf
) -> None:
    def handler(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab")
        client.shutdown(socket.SHUT_WR)
        client.recv(65_536)

    with pytest.raises(ServiceUnavailableError, match="the server closed the connection"):
        ask(pool_of(serve(handler).url))


# -- threads that wait for a connection ------------------------------------------------------------


def waiting(slots: FairSlots, count: int) -> bool:
    return len(slots._waiting) == count


def started(count: int, target: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=target, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_slots_are_given_in_the_order_in_which_threads_came() -> None:
    slots = FairSlots(1)
    assert slots.acquire(1)
    served: list[int] = []

    def wait(number: int) -> None:
        assert slots.acquire(30)
        served.append(number)
        slots.release()

    threads = []
    for number in range(20):
        thread = threading.Thread(target=wait, args=(number,), daemon=True)
        thread.start()
        threads.append(thread)
        wait_until(partial(waiting, slots, number + 1), every=0.001)
    slots.release()
    for thread in threads:
        thread.join(30)
    assert served == list(range(20))


def test_a_thread_that_calls_without_a_pause_passes_none_that_waits() -> None:
    slots = FairSlots(1)
    assert slots.acquire(1)
    served, leave = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        assert slots.acquire(30)
        served.set()
        leave.wait(30)
        slots.release()

    [thread] = started(1, wait)
    wait_until(lambda: slots._waiting, every=0.001)
    slots.release()
    assert not slots.acquire(0.01), "the place is the other's, whether it runs already or not"
    assert served.wait(30)
    leave.set()
    thread.join(30)
    assert slots.acquire(1)


def test_a_thread_that_times_out_leaves_the_queue_and_no_slot_is_lost() -> None:
    slots = FairSlots(2)
    assert slots.acquire(1)
    assert slots.acquire(1)
    begun = time.monotonic()
    assert not slots.acquire(0.1)
    assert time.monotonic() - begun < 20
    assert not slots._waiting
    slots.release()
    slots.release()
    assert slots.acquire(1)
    assert slots.acquire(1)
    assert not slots.acquire(0.01)


def test_an_interrupted_thread_loses_no_slot() -> None:
    slots = FairSlots(1)
    assert slots.acquire(1)

    class InterruptedLock:
        """A turn that comes at the same moment as Ctrl-C."""

        def acquire(self, timeout: float = -1) -> bool:
            if timeout > 0:
                slots.release()
                raise KeyboardInterrupt
            return True

        def release(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lance_bridge_hive.client.threading.Lock", InterruptedLock)
        with pytest.raises(KeyboardInterrupt):
            slots.acquire(5)
    assert slots.acquire(1)


def test_many_threads_with_short_waits_lose_no_slot() -> None:
    slots = FairSlots(3)
    inside, most = 0, 0
    lock = threading.Lock()

    def call(number: int) -> None:
        nonlocal inside, most
        for turn in range(50):
            if slots.acquire(0.0005 * ((number + turn) % 4) + 0.0001):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1
                slots.release()

    for thread in started(40, call):
        thread.join(120)
    assert most <= 3
    assert [slots.acquire(0.01) for _ in range(4)] == [True, True, True, False]


PLAIN = {"auth.mechanism": "plain", "auth.username": "alice", "auth.password": "wonderland"}
TOKEN = {"auth.mechanism": "delegation-token", "auth.token": "AWEBYgFjAWQ"}
CHALLENGE = b'realm="default",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess'
START, OK, BAD, ERROR, COMPLETE = range(1, 6)
Message = tuple[int, bytes]


def read(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (piece := client.recv(size - len(found))):
        found += piece
    return bytes(found)


def receive(client: socket.socket) -> Message:
    status, size = struct.unpack("!BI", read(client, 5))
    return status, read(client, size)


def send(client: socket.socket, message: Message) -> None:
    status, body = message
    client.sendall(struct.pack("!BI", status, len(body)) + body)


def frame(content: bytes) -> bytes:
    return struct.pack("!I", len(content)) + content


def ask_server(
    handler: Callable[[socket.socket], None], properties: dict[str, str], times: int = 1
) -> object:
    with closing(ScriptedServer(handler)) as server:
        given = {"uri": server.uri, "client.retry-timeout": "0", "client.timeout": "5"}
        config = load(HiveConfig, "hive", {**given, **properties})
        with closing(ClientPool(config)) as pool:
            for _ in range(times):
                answer: object = pool.call(
                    lambda c: c.hms.get_all_databases(), name="get_all_databases", repeatable=True
                )
        return answer


def test_messages_come_in_frames_after_the_handshake() -> None:
    seen: list[Message | bytes] = []

    def serve(client: socket.socket) -> None:
        seen.extend([receive(client), receive(client)])
        send(client, (COMPLETE, b""))
        for number in (1, 2):
            (size,) = struct.unpack("!I", read(client, 4))
            seen.append(read(client, size))
            reply = header(number=number) + names(b"a", b"b" * 200_000)
            client.sendall(frame(reply[:9]) + frame(b"") + frame(reply[9:]))

    assert ask_server(serve, PLAIN, times=2) == ["a", "b" * 200_000]
    start, response, first, second = seen
    assert start == (START, b"PLAIN")
    assert response == (OK, b"\0alice\0wonderland")
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert b"get_all_databases" in first
    assert len(first) == len(second)


def answer_responses(*messages: Message) -> Callable[[socket.socket], None]:
    """Send one message for each response of the client, then wait for it to leave."""

    def serve(client: socket.socket) -> None:
        receive(client)
        for message in messages:
            receive(client)
            send(client, message)
        client.recv(1)

    return serve


@pytest.mark.parametrize(
    ("properties", "messages", "says"),
    [
        (PLAIN, [(BAD, b"Error\n\x1b[2J")], r"PLAIN was refused: Error\\n\\x1b\[2J"),
        (PLAIN, [(ERROR, b"No")], "PLAIN was refused: No"),
        (PLAIN, [(72, b"TTP")], "PLAIN was refused: status 72"),
        (PLAIN, [(OK, b"more")], "PLAIN failed in the client: .*a challenge"),
        (TOKEN, [(ERROR, b"No")], "DIGEST-MD5 was refused: No .is the delegation token expired"),
        (TOKEN, [(OK, CHALLENGE), (COMPLETE, b"")], "did not finish the handshake"),
        (TOKEN, [(COMPLETE, b"")], "did not finish the handshake"),
        (TOKEN, [(OK, CHALLENGE), (COMPLETE, b"rspauth=" + b"0" * 32)], "does not prove that it"),
        (TOKEN, [(OK, CHALLENGE), (OK, CHALLENGE)], "does not prove that it knows the token"),
        (TOKEN, [(OK, b'realm="default",qop="auth"')], "challenge has no nonce"),
        (TOKEN, [(OK, b'realm="default,nonce="n"')], "challenge is malformed"),
        (TOKEN, [(OK, b'nonce="n",qop="auth-int,auth-conf"')], r"hadoop\.rpc\.protection"),
    ],
)
def test_a_handshake_that_fails_is_unauthenticated(
    properties: dict[str, str], messages: Iterable[Message], says: str
) -> None:
    with pytest.raises(UnauthenticatedError, match=says):
        ask_server(answer_responses(*messages), properties)


def test_a_handshake_of_any_size_is_not_read() -> None:
    def serve(client: socket.socket) -> None:
        receive(client)
        receive(client)
        client.sendall(struct.pack("!BI", OK, 1 << 21))
        client.recv(1)

    with pytest.raises(ServiceUnavailableError, match=r"client\.max-message-size"):
        ask_server(serve, PLAIN)


def test_a_digest_is_that_of_the_example_in_its_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 2831, section 4."""
    monkeypatch.setattr(sasl, "_DIGEST_ADDRESS", b"imap/elwood.innosoft.com")
    monkeypatch.setattr("secrets.token_hex", lambda _: "OA6MHXh6VqTrRk")
    chris = SimpleNamespace(sasl_username="chris", sasl_password="secret")
    digest = sasl._Digest(chris)  # type: ignore[arg-type]  # a token whose texts are no base64
    assert digest.respond(b"") == b""
    response = digest.respond(
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
        b"algorithm=md5-sess,charset=utf-8"
    )
    assert sasl._directives(response) == {
        "charset": b"utf-8",
        "username": b"chris",
        "realm": b"elwood.innosoft.com",
        "nonce": b"OA6MG9tEQGm2hh",
        "nc": b"00000001",
        "cnonce": b"OA6MHXh6VqTrRk",
        "digest-uri": b"imap/elwood.innosoft.com",
        "response": b"d388dad90d4bbd760a152321f2143af7",
        "qop": b"auth",
    }
    assert not digest.is_complete
    assert digest.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") == b""
    assert digest.is_complete


@pytest.mark.parametrize(
    ("challenge", "value"),
    [
        (b'a="x"', b"x"),
        (b" a = x , b=c", b"x"),
        (b'b="c",A="x, y"', b"x, y"),
        (rb'a="\"x\\",b="c"', b'"x\\'),
        (b"a=x,a=y", b"x"),
    ],
)
def test_directives_are_quoted_or_not(challenge: bytes, value: bytes) -> None:
    assert sasl._directives(challenge)["a"] == value
    assert sasl._directives(b"a=" + sasl._quote(value))["a"] == value


def test_kerberos_without_its_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'lance-bridge\[hive-kerberos\]'"):
        ask_server(answer_responses(), {"auth.mechanism": "kerberos"})
