"""Messages between the Java part and a Python process that it has started, or connected to.

A message is JSON and byte strings, each with its length in four bytes before it.
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
    """Messages of one pair of streams; many threads may write."""

    def __init__(self, calls: BinaryIO, answers: BinaryIO) -> None:
        self._calls = calls
        self._answers = answers
        self._lock = threading.Lock()

    def read(self) -> Message:
        """Return the next message.

        Raises:
            EOFError: There is none.
        """
        fields: dict[str, Any] = json.loads(self._read_bytes())
        return fields, [self._read_bytes() for _ in range(self._read_length())]

    def write(self, fields: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
        """Write a message, whole before any other."""
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
    """Return a channel over the standard input and output, which nothing else uses from here on."""
    # An interrupt in the terminal is for Spark's shell.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    channel = Channel(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    return channel


def freeze_imports() -> None:
    """Leave all that was imported out of later collections of garbage."""
    gc.collect()
    gc.freeze()
