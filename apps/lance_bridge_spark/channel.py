"""Messages between the Java part and a Python process that it has started or connected to.

A message is JSON and byte strings, each prefixed with its length in four bytes.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">i")

Message = tuple[dict[str, Any], list[bytes]]


class Channel:
    """Messages over a pair of streams; several threads may write concurrently."""

    def __init__(self, calls: BinaryIO, answers: BinaryIO) -> None:
        self._calls = calls
        self._answers = answers
        self._lock = threading.Lock()

    def read(self) -> Message:
        """Return the next message.

        Raises:
            EOFError: The stream has ended.
        """
        fields: dict[str, Any] = json.loads(self._read_bytes())
        return fields, [self._read_bytes() for _ in range(self._read_length())]

    def write(self, fields: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
        """Write a message without interleaving it with others."""
        text = json.dumps(fields).encode()
        with self._lock:
            for each in (text, None, *parts):
                self._answers.write(_LENGTH.pack(len(parts) if each is None else len(each)))
                self._answers.write(each or b"")
            self._answers.flush()

    def _read_length(self) -> int:
        return int(_LENGTH.unpack(self._read(_LENGTH.size))[0])

    def _read_bytes(self) -> bytes:
        return self._read(self._read_length())

    def _read(self, size: int) -> bytes:
        found = self._calls.read(size)
        if len(found) < size:
            raise EOFError
        return found


def open_standard_channel() -> Channel:
    """Return a channel over standard input and output, and keep all other code from using them."""
    # An interrupt in the terminal is meant for Spark's shell.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    channel = Channel(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    return channel


def freeze_imports() -> None:
    """Exclude everything imported so far from later garbage collections."""
    gc.collect()
    gc.freeze()
