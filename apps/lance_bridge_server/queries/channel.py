"""The channel between the server and a query process: typed messages on a socket.

A message is its kind in one byte, its length in eight, and its content. The server sends a query,
and the pieces of rows that the process asks for. The process sends log records and rows, and at the
end a result or an error.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import threading
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pydantic import BaseModel

from lance_bridge.dataset_versions import VersionChanges

from ..operations import Operation

_HEAD = struct.Struct(">BQ")


class Kind(IntEnum):
    """What a message is."""

    QUERY = 1
    """To the process: a `Query`."""
    PIECE = 2
    """To the process: bytes of the request's rows, none at their end."""
    READ = 3
    """From the process: the number of bytes that it wants to read next."""
    BEGIN = 4
    """From the process: `VersionChanges`. Rows follow."""
    ROWS = 5
    """From the process: bytes of the result, as an Arrow IPC stream."""
    END = 6
    """From the process: a `Result`. It waits for the next query."""
    ERROR = 7
    """An error. From the process, it is a `Failure`, and it waits for the next query."""
    LOG = 8
    """From the process: the fields of a log record."""


@dataclass(frozen=True)
class Query:
    """One operation for a query process. It can be pickled, and has secrets."""

    source: bytes = field(repr=False)
    """A pickled function that connects the namespace."""
    operation: Operation
    request: BaseModel
    principal: str
    """For whom it runs. No response of a query has credentials, so none of its rights matter."""
    rows: bytes | None = None
    """The rows of the request, if they are few."""
    has_upload: bool = False
    """Whether the rows of the request are read with `Kind.READ`."""
    method: Any = None
    """Replaces the namespace's own method; a function that can be pickled."""


@dataclass(frozen=True)
class Result:
    """The end of a query that succeeded."""

    value: Any
    """The response of the operation; None if it was sent as rows."""
    changes: VersionChanges


@dataclass(frozen=True)
class Failure:
    """The end of a query that failed."""

    error: Exception
    changes: VersionChanges
    trace: str = ""
    """The traceback of an internal error, for the log."""


class ChannelClosedError(Exception):
    """The other side has ended."""


class Channel:
    """Sends messages from any thread, and receives them in one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = threading.Lock()

    def send(self, kind: Kind, content: Any) -> None:
        """Send a message whose content is any object that can be pickled.

        Raises:
            ChannelClosedError:
        """
        self.send_bytes(kind, pickle.dumps(content, pickle.HIGHEST_PROTOCOL))

    def send_bytes(self, kind: Kind, content: Any) -> None:
        """Send a message whose content is bytes. Raises what `send` does."""
        try:
            with self._lock:
                self._socket.sendall(_HEAD.pack(kind, len(content)))
                self._socket.sendall(content)
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self) -> tuple[Kind, memoryview]:
        """Return the kind and the content of the next message.

        Raises:
            ChannelClosedError:
        """
        kind, size = self.receive_head()
        return kind, self.receive_content(size)

    def receive_head(self) -> tuple[Kind, int]:
        """Return the kind and the size of the next message. Raises what `receive` does."""
        kind, size = _HEAD.unpack(self.receive_content(_HEAD.size))
        return Kind(kind), size

    def receive_content(self, size: int) -> memoryview:
        """Return the content of a message whose head was received. Raises what `receive` does."""
        content = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            filled += self.receive_into(content[filled:])
        return content

    def receive_into(self, target: memoryview) -> int:
        """Receive a part of a content, and return its size. Raises what `receive` does."""
        try:
            count = self._socket.recv_into(target)
        except OSError as error:
            raise ChannelClosedError from error
        if not count:
            raise ChannelClosedError
        return count

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


class MessageFile(io.RawIOBase):
    """A file whose writes are messages."""

    def __init__(self, channel: Channel, kind: Kind) -> None:
        super().__init__()
        self._channel = channel
        self._kind = kind

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._channel.send_bytes(self._kind, view)
        return len(view)
