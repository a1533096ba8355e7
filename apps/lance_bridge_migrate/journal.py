"""The append-only journal of a migration, with one JSON object per line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from lance_namespace.errors import InvalidTableStateError, ServiceUnavailableError
from pydantic import Field, ValidationError

from lance_bridge.user_files import STATE_VARIABLE

from .plan import Facts, Model, now

Name = Literal[
    "run", "started", "note", "done", "failed", "verified", "ended", "stopped",
    "undo", "undo_started", "undo_done", "undo_failed",
]  # fmt: skip


_DEFERRED = ("done", "verified", "undo_done")
"""Events that a crash may lose, because the next run detects again what they say."""


class Failure(Model):
    """The code and the message of an error; the message contains no secrets."""

    code: int
    message: str


class Check(Model):
    """One comparison made by verification.

    Attributes:
        name: What was compared: ``rows``, ``schema``, ``checksum``, ….
        column: The compared column, or "" for the whole table.
    """

    name: str
    ok: bool
    expected: Any = None
    found: Any = None
    column: str = ""


class Event(Model):
    """One line of the journal.

    Attributes:
        event: ``run`` and ``undo`` start a run; ``started``, ``note``, ``done`` and ``failed``
            belong to a step of an item; ``verified`` to an item; ``ended`` and ``stopped`` end a
            run.
        at: The time, in ISO 8601 and UTC.
        facts: What the step found or is about to do; for ``run``, its options.
        seconds: The duration of the step.
        is_last: Whether this was the item's last step.
    """

    event: Name
    at: str = Field(default_factory=now)
    item: str | None = None
    step: str | None = None
    facts: Facts = Field(default_factory=dict)
    seconds: float | None = None
    is_last: bool = False
    error: Failure | None = None
    checks: tuple[Check, ...] = ()
    level: str | None = None

    def to_line(self) -> bytes:
        fields = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps({"event": self.event, "at": self.at, **fields}).encode() + b"\n"


@contextmanager
def file_errors(directory: Path) -> Iterator[None]:
    """Translate file errors in the state directory into ServiceUnavailable (17)."""
    try:
        yield
    except OSError as error:
        raise ServiceUnavailableError(
            f"The migration's files in {directory} cannot be used ({error}): check the directory, "
            f"or set ${STATE_VARIABLE} to another one"
        ) from error


def read(path: Path) -> list[Event]:
    """Return all events, without the incomplete last lines that a crash may leave.

    Raises:
        InvalidTableStateError: (19) a line before the last ones is not an event.
    """
    events, _ = _parse(path)
    return events


def _parse(path: Path) -> tuple[list[Event], int]:
    """Return all events and their size in bytes."""
    content = path.read_bytes() if path.exists() else b""
    events: list[Event] = []
    size, torn = 0, 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        event = _parse_line(line)
        if event is None:
            torn = torn or number
        elif torn:
            raise InvalidTableStateError(
                f"Line {torn} of {path} is damaged, and later lines are not: the migration cannot "
                "be resumed. Inspect its tables, and plan again for the rest"
            )
        else:
            events.append(event)
            size += len(line)
    return events, size


def _parse_line(line: bytes) -> Event | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return Event.model_validate(json.loads(line))
    except (ValueError, ValidationError):
        return None


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that the names of its files are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Journal:
    """Appends events. The process must hold the migration's lock; its threads may share a journal.

    When `append` returns, the operating system has the event, so that it survives the process.
    Events that must also survive a crash of the machine are then on disk; those in `_DEFERRED` are
    synced with a later event or on close. Threads share one fsync.
    """

    def __init__(self, path: Path) -> None:
        """Open a journal, and remove incomplete last lines that a crash left."""
        self._path = path
        _, size = _parse(path)
        self._file = path.open("ab")
        self._file.truncate(size)
        sync_directory(path.parent)
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._written = 0
        self._synced = 0

    def append(self, event: Event) -> None:
        """Append an event, as the class describes. Raises ServiceUnavailable (17)."""
        with file_errors(self._path.parent):
            with self._writing:
                self._file.write(event.to_line())
                self._file.flush()
                self._written += 1
                own = self._written
            if event.event not in _DEFERRED:
                self._sync(own)

    def _sync(self, wanted: int) -> None:
        with self._syncing:
            if self._synced >= wanted:
                return  # another thread's fsync included this event
            with self._writing:
                reached = self._written
            os.fsync(self._file.fileno())
            self._synced = reached

    def close(self) -> None:
        """Sync and close the file. Raises ServiceUnavailable (17)."""
        with file_errors(self._path.parent), self._file:
            self._sync(self._written)
