"""The journal of a migration: one JSON object a line, appended, and on disk before it counts."""

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
"""Events that a crash may lose: what they say is found out again."""


class Failure(Model):
    """An error of the library: its code, and its message, which holds no secret."""

    code: int
    message: str


class Check(Model):
    """One thing that verifying compared.

    Attributes:
        name: What was compared: ``rows``, ``schema``, ``checksum``, ….
        column: Of which column, or "" for the whole table.
    """

    name: str
    ok: bool
    expected: Any = None
    found: Any = None
    column: str = ""


class Event(Model):
    """One line.

    Attributes:
        event: ``run`` and ``undo`` start a run; ``started``, ``note``, ``done`` and ``failed`` are
            of one step of one item; ``verified`` of an item; ``ended`` and ``stopped`` end a run.
        at: When, in ISO 8601 and UTC.
        facts: What the step found out or is about to do; for ``run``, its options.
        seconds: How long the step took.
        is_last: Whether the item is done with this step.
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
    """Translate errors of files in the state directory into ServiceUnavailable (17)."""
    try:
        yield
    except OSError as error:
        raise ServiceUnavailableError(
            f"The migration's files in {directory} cannot be used ({error}): check the directory, "
            f"or set ${STATE_VARIABLE} to another one"
        ) from error


def read(path: Path) -> list[Event]:
    """Return all events; what a crash left of the last lines is left out.

    Raises:
        InvalidTableStateError: (19) a line before the last ones is not an event.
    """
    events, _ = _parse(path)
    return events


def _parse(path: Path) -> tuple[list[Event], int]:
    """Return all events, and how many bytes they have."""
    content = path.read_bytes() if path.exists() else b""
    events: list[Event] = []
    size, torn = 0, 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        event = _event(line)
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


def _event(line: bytes) -> Event | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return Event.model_validate(json.loads(line))
    except (ValueError, ValidationError):
        return None


def sync_directory(directory: Path) -> None:
    """Write the names of a directory's files to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Journal:
    """Appends events. For one process, which holds the migration's lock, and its threads.

    When `append` returns, the operating system has the event, so that it outlives the process. All
    events but `_DEFERRED` are on disk then, to outlive the machine before the next change is made;
    those go to disk with the next event, and at the end. Threads share a write to the disk.
    """

    def __init__(self, path: Path) -> None:
        """Open a journal; remove what a crash left of its last lines."""
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
        """Add one event; see the class. Raises ServiceUnavailable (17)."""
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
                return  # another thread's write to the disk had this one in it
            with self._writing:
                reached = self._written
            os.fsync(self._file.fileno())
            self._synced = reached

    def close(self) -> None:
        """Write all to disk, and close the file. Raises ServiceUnavailable (17)."""
        with file_errors(self._path.parent), self._file:
            self._sync(self._written)
