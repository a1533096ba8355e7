"""Thrift's binary protocol, which here also checks that a reply answers the request.

The generated clients number every request 0 and never look at the number of the reply.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException

from .sockets import DeadlineSocket

_MAX_CONTAINER = 10_000_000
_SEQUENCE_LIMIT = 0x7FFFFFFF


class ReplyMismatch(TProtocolException):  # type: ignore[misc]  # thrift ships no types
    """A reply came that answers another request."""


class CheckedProtocol(TBinaryProtocolAccelerated):  # type: ignore[misc]  # thrift ships no types
    """Numbers requests, checks replies, and starts the deadline of each call.

    ``at_rest`` is True between calls: no request is half written, no reply half read.
    """

    def __init__(
        self, transport: Any, line: DeadlineSocket, *, timeout: float, max_bytes: int
    ) -> None:
        super().__init__(
            transport,
            strictRead=True,
            string_length_limit=max_bytes,
            container_length_limit=min(_MAX_CONTAINER, max_bytes),
        )
        self._line = line
        self.timeout = timeout
        """Seconds that a call may take."""
        self._numbers = count(1)
        self._asked: tuple[str, int] | None = None

    @property
    def at_rest(self) -> bool:
        """True where the next call may begin."""
        return self._asked is None

    def writeMessageBegin(self, name: str, type: int, seqid: int) -> None:  # noqa: ARG002 - Thrift passes it
        """Begin a call; Thrift's signature, but ``seqid`` is replaced by a number of our own."""
        number = next(self._numbers) & _SEQUENCE_LIMIT
        self._asked = (name, number)
        self._line.begin(self.timeout)
        super().writeMessageBegin(name, type, number)

    def readMessageBegin(self) -> tuple[str, int, int]:
        """Begin a reply. Raises ReplyMismatch where it belongs to another request."""
        name, kind, number = super().readMessageBegin()
        if self._asked != (name, number):
            raise ReplyMismatch(
                TProtocolException.INVALID_DATA, "a reply came that answers another request"
            )
        return name, kind, number

    def readMessageEnd(self) -> None:
        """End a reply."""
        super().readMessageEnd()
        self._asked = None
