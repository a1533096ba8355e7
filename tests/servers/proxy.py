"""A proxy in front of a metastore that counts the calls on the wire, and breaks them on request.

Understands Thrift's binary protocol, strict or not, buffered or framed; not TLS, SASL or HTTP.
"""

from __future__ import annotations

import enum
import select
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from pymetastore.hive_metastore import ThriftHiveMetastore as newer
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException, TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportBase

_CHUNK = 1 << 16
_HOST = "127.0.0.1"
_JOIN_SECONDS = 5.0
_HOLD_SECONDS = 60.0


@dataclass(frozen=True)
class Refusal:
    """Answer with a MetaException in the server's place, which never hears of the call."""

    message: str

    def reply_to(self, method: str, sequence: int) -> bytes:
        """Return the reply, without a frame."""
        name = f"{method}_result"
        # hmsclient's bindings are of a release without catalogs.
        module = ThriftHiveMetastore if hasattr(ThriftHiveMetastore, name) else newer
        result = getattr(module, name)()
        fields = [spec for spec in result.thrift_spec if spec is not None and spec[3]]
        name, kind = next(
            (each[2], each[3][0])
            for each in fields
            if getattr(each[3][0], "__name__", "") == "MetaException"
        )
        setattr(result, name, kind(message=self.message))
        buffer = TMemoryBuffer()
        protocol = TBinaryProtocol(buffer)
        protocol.writeMessageBegin(method, TMessageType.REPLY, sequence)
        result.write(protocol)
        protocol.writeMessageEnd()
        return bytes(buffer.getvalue())


@dataclass(frozen=True)
class Hold:
    """Set ``arrived``, and keep the call from the server until ``release`` is set."""

    arrived: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


class Fault(enum.Enum):
    """What may be done to a call. After each but DELAY_REPLY the connection is useless."""

    DROP_REQUEST = "close the connection; the server never hears of the call"
    RESET = "reset the connection (RST); the server never hears of the call"
    LOSE_REPLY = "let the server do it, then close the connection instead of replying"
    TRUNCATE_REPLY = "let the server do it, send half of the reply, then close the connection"
    DELAY_REPLY = "let the server do it, and pass the reply on later"
    STALL = "let the server do it, and never reply, with the connection open"


Treatment = Fault | Refusal | Hold


@dataclass
class _Rule:
    method: str
    how: Treatment
    times: float
    seconds: float
    passing: int
    without: bytes
    having: bytes

    def fits(self, method: str, raw: bytes) -> bool:
        if not fnmatchcase(method, self.method) or (self.without and self.without in raw):
            return False
        if self.having not in raw:
            return False
        self.passing -= 1
        return self.passing < 0


class ThriftProxy:
    """Passes connections on to ``upstream_host:upstream_port``, from :meth:`start` to `close`.

    ::

        with ThriftProxy("127.0.0.1", metastore.port) as proxy:
            proxy.fail_next("create_table*", Fault.LOSE_REPLY)
    """

    def __init__(self, upstream_host: str, upstream_port: int, *, port: int = 0) -> None:
        self._upstream = (upstream_host, upstream_port)
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._connections = 0
        self._rules: list[_Rule] = []
        self._fired: list[tuple[str, Treatment]] = []
        self._open: set[_Connection] = set()
        self.closing = threading.Event()
        self._listener = socket.create_server((_HOST, port))
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="thrift-proxy", daemon=True)

    @property
    def uri(self) -> str:
        """``thrift://127.0.0.1:PORT``."""
        return f"thrift://{_HOST}:{self.port}"

    @property
    def calls(self) -> Counter[str]:
        """How many calls clients have sent, by method name; a copy."""
        with self._lock:
            return Counter(self._calls)

    @property
    def connections(self) -> int:
        """How many connections clients have opened."""
        with self._lock:
            return self._connections

    @property
    def open_connections(self) -> int:
        """How many of them are open now."""
        with self._lock:
            return len(self._open)

    @property
    def fired(self) -> list[tuple[str, Treatment]]:
        """The faults that happened, in order, with the method each happened to; a copy."""
        with self._lock:
            return list(self._fired)

    def fail_next(
        self,
        method: str = "*",
        how: Treatment = Fault.LOSE_REPLY,
        *,
        times: float = 1,
        seconds: float = 0.0,
        passing: int = 0,
        without: bytes = b"",
        having: bytes = b"",
    ) -> None:
        """Do ``how`` to the next ``times`` calls whose name fits ``method`` (``create_table*``).

        ``float("inf")`` means until `reset`. ``seconds`` is how long DELAY_REPLY waits. Let the
        first ``passing`` calls that fit through, and all that hold the bytes ``without`` or lack
        the bytes ``having``. The earliest rule that fits is used first.
        """
        with self._lock:
            self._rules.append(_Rule(method, how, times, seconds, passing, without, having))

    def reset(self) -> None:
        """Forget counts and rules; connections stay open, and are not counted again."""
        with self._lock:
            self._calls.clear()
            self._connections = 0
            self._rules.clear()
            self._fired.clear()

    def clear_rules(self) -> None:
        """Break no more calls; counts stay."""
        with self._lock:
            self._rules.clear()

    def disconnect(self) -> None:
        """Close all connections that are open, as a load balancer does with idle ones."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.close()
        for connection in connections:
            connection.join(_JOIN_SECONDS)

    def start(self) -> ThriftProxy:
        """Begin to accept connections."""
        self._acceptor.start()
        return self

    def close(self) -> None:
        """Stop accepting, and close all connections."""
        self.closing.set()
        # A thread blocked in accept() does not notice close(); shutdown wakes it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(_JOIN_SECONDS)
        self.disconnect()

    def __enter__(self) -> ThriftProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, method: str, raw: bytes) -> _Rule | None:
        """Count a call, and return the rule that applies to it."""
        with self._lock:
            self._calls[method] += 1
            for rule in self._rules:
                if rule.fits(method, raw):
                    rule.times -= 1
                    if rule.times <= 0:
                        self._rules.remove(rule)
                    self._fired.append((method, rule.how))
                    return rule
        return None

    def forget(self, connection: _Connection) -> None:
        """A connection has ended."""
        with self._lock:
            self._open.discard(connection)

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections += 1
            try:
                upstream = socket.create_connection(self._upstream)
            except OSError:
                client.close()
                continue
            connection = _Connection(self, client, upstream)
            with self._lock:
                self._open.add(connection)
            connection.start()


class _Connection(threading.Thread):
    """One client's connection. Clients send a call only after the reply to the one before."""

    def __init__(self, proxy: ThriftProxy, client: socket.socket, upstream: socket.socket) -> None:
        super().__init__(name="thrift-proxy-connection", daemon=True)
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        for side in (client, upstream):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        try:
            while self._pass_on_what_comes():
                pass
        except (OSError, EOFError, TException, ValueError):
            # Either side has gone, or close() was called: that is how connections end.
            return
        finally:
            self._client.close()
            self._upstream.close()
            self._proxy.forget(self)

    def close(self) -> None:
        """End it, from another thread."""
        for side in (self._client, self._upstream):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _pass_on_what_comes(self) -> bool:
        readable, _, _ = select.select([self._client, self._upstream], [], [])
        if self._upstream in readable:
            data = self._upstream.recv(_CHUNK)
            self._client.sendall(data)
            return bool(data)
        request = _read_message(self._client)
        rule = self._proxy.take(request.method, request.raw)
        if rule is None:
            self._upstream.sendall(request.raw)
            return True
        return self._break(request, rule)

    def _break(self, request: _Message, rule: _Rule) -> bool:
        """Apply a fault; say whether the connection goes on."""
        if isinstance(rule.how, Refusal):
            self._client.sendall(rule.how.reply_to(request.method, request.sequence))
            return True
        if isinstance(rule.how, Hold):
            rule.how.arrived.set()
            rule.how.release.wait(_HOLD_SECONDS)
            self._upstream.sendall(request.raw)
            return True
        if rule.how is Fault.DROP_REQUEST:
            return False
        if rule.how is Fault.RESET:
            linger_no_time = struct.pack("ii", 1, 0)
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_no_time)
            return False
        self._upstream.sendall(request.raw)
        if request.kind == TMessageType.ONEWAY:
            return True
        return self._break_reply(_read_message(self._upstream).raw, rule)

    def _break_reply(self, reply: bytes, rule: _Rule) -> bool:
        if rule.how is Fault.DELAY_REPLY:
            self._proxy.closing.wait(rule.seconds)
            self._client.sendall(reply)
            return True
        if rule.how is Fault.TRUNCATE_REPLY:
            self._client.sendall(reply[: len(reply) // 2])
        elif rule.how is Fault.STALL:
            self._wait_until_client_leaves()
        return False

    def _wait_until_client_leaves(self) -> None:
        while self._client.recv(_CHUNK):
            continue


@dataclass(frozen=True)
class _Message:
    method: str
    kind: int
    sequence: int
    raw: bytes


def _read_message(source: socket.socket) -> _Message:
    """Read one whole message, framed or not; raises EOFError where the connection ends."""
    recorder = _Recorder(source)
    start = recorder.peek(5)
    # Unframed, the first byte is 0x80 (strict), or the fifth is the first letter of the name; in a
    # frame, the fifth begins the message, and is 0x80 or the zero of a length.
    framed = start[0] != 0x80 and start[4] in (0x80, 0x00)
    if framed:
        recorder.read(4)
    protocol: Any = TBinaryProtocol(recorder)
    method, kind, sequence = protocol.readMessageBegin()
    protocol.skip(TType.STRUCT)
    return _Message(method, kind, sequence, bytes(recorder.taken))


class _Recorder(TTransportBase):  # type: ignore[misc]  # thrift has no types
    """Lets Thrift's own parser find the end of a message, and keeps the bytes as they came."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._ahead = b""
        self.taken = bytearray()

    def peek(self, count: int) -> bytes:
        self._ahead = self._receive(count)
        return self._ahead

    def read(self, count: int) -> bytes:
        from_ahead, self._ahead = self._ahead[:count], self._ahead[count:]
        data = from_ahead + self._receive(count - len(from_ahead))
        self.taken += data
        return data

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            # Never more than asked for: what follows belongs to the next message.
            part = self._source.recv(count - len(data))
            if not part:
                raise EOFError("the connection ended")
            data += part
        return bytes(data)
