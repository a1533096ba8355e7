"""The handshakes of SASL, and what servers can do wrong in them. No server is needed."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from types import SimpleNamespace

import pytest
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError, UnauthenticatedError
from servers.replies import ScriptedServer

from lance_bridge.config import load
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.transport import ClientPool, sasl

from .test_transport_without_metastore import header, names

pytestmark = [pytest.mark.quick, pytest.mark.spec("hive.md#delegation-tokens", "hive.md#security")]

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


def ask(
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

    assert ask(serve, PLAIN, times=2) == ["a", "b" * 200_000]
    start, response, first, second = seen
    assert start == (START, b"PLAIN")
    assert response == (OK, b"\0alice\0wonderland")
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert b"get_all_databases" in first
    assert len(first) == len(second)


def answering(*messages: Message) -> Callable[[socket.socket], None]:
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
        ask(answering(*messages), properties)


def test_a_handshake_of_any_size_is_not_read() -> None:
    def serve(client: socket.socket) -> None:
        receive(client)
        receive(client)
        client.sendall(struct.pack("!BI", OK, 1 << 21))
        client.recv(1)

    with pytest.raises(ServiceUnavailableError, match=r"client\.max-message-size"):
        ask(serve, PLAIN)


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
        ask(answering(), {"auth.mechanism": "kerberos"})
