"""The append-only journal of a migration, with one JSON object per line."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    ServiceUnavailableError,
)
from pydantic import BaseModel, Field, ValidationError

from lance_bridge.dotted_names import written
from lance_bridge.errors import invalid
from lance_bridge.user_files import MIGRATIONS, STATE_VARIABLE, default_directory

from .plan import Address, Facts, Item, Model, Plan, now

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
    return _parse(path)[0]


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


# -- record ----------------------------------------------------------------------------------------


class State(str, Enum):
    """The state of a migration, or of one item."""

    PLANNED = "planned"
    NOTHING_TO_DO = "nothing to do"
    BLOCKED = "blocked"
    STARTED = "started"
    """Running or interrupted: started, but neither done nor failed."""
    FAILED = "failed"
    DIFFERS = "differs"
    """Done, but verification found a difference."""
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"


class StepState(BaseModel):
    """The state of one step of one item. Times are ISO 8601 in UTC."""

    started: str
    done: str | None = None
    seconds: float | None = None
    undone: str | None = None


class ItemState(BaseModel):
    """The state of one item.

    Attributes:
        steps: By name, in the order in which they were started.
        facts: The facts of the plan, updated with those that steps noted.
        error: The error of the last attempt, if it failed.
        checks: The checks of the last verification.
        verified: The `Level` of the last verification.
    """

    item: Item
    steps: dict[str, StepState] = Field(default_factory=dict)
    facts: Facts = Field(default_factory=dict)
    error: Failure | None = None
    checks: tuple[Check, ...] = ()
    verified: str | None = None
    is_done: bool = False
    undo_started: bool = False
    is_undone: bool = False

    @property
    def has_started(self) -> bool:
        return bool(self.steps)

    @property
    def seconds(self) -> float:
        """The duration of all completed steps."""
        return sum(step.seconds or 0.0 for step in self.steps.values())

    @property
    def state(self) -> State:
        if self.undo_started:
            return State.UNDONE if self.is_undone else State.UNDOING
        if self.error is not None:
            return State.FAILED
        if self.is_done:
            return State.DONE if all(check.ok for check in self.checks) else State.DIFFERS
        if self.has_started:
            return State.STARTED
        if self.item.nothing_to_do:
            return State.NOTHING_TO_DO
        return State.BLOCKED if self.item.blockers else State.PLANNED


class RunState(BaseModel):
    """One run of the migration or of its undo; ``ended`` is None if it was cut off.

    Attributes:
        is_stopped: Whether Ctrl-C ended it.
        stop_reason: Why it started no more items, or "".
    """

    event: str
    started: str
    options: Facts = Field(default_factory=dict)
    ended: str | None = None
    is_stopped: bool = False
    stop_reason: str = ""


class Record(BaseModel):
    """The plan of a migration, and the state of its items and runs."""

    plan: Plan
    items: dict[str, ItemState]
    runs: list[RunState] = Field(default_factory=list)

    @classmethod
    def of(cls, plan: Plan, events: Iterable[Event]) -> Record:
        """Return the record that results from the events of a journal."""
        states = {item.key: ItemState(item=item, facts=dict(item.facts)) for item in plan.items}
        record = cls(plan=plan, items=states)
        for event in events:
            record.apply(event)
        return record

    def apply(self, event: Event) -> None:
        """Apply an event."""
        if event.item is not None:
            _apply_to_item(self.items[event.item], event)
        elif event.event in ("run", "undo"):
            self.runs.append(RunState(event=event.event, started=event.at, options=event.facts))
        elif self.runs:
            self.runs[-1].ended = event.at
            self.runs[-1].is_stopped = event.event == "stopped"
            self.runs[-1].stop_reason = str(event.facts.get("stop_reason", ""))

    @property
    def undo_has_started(self) -> bool:
        return any(run.event == "undo" for run in self.runs)

    @property
    def counts(self) -> dict[State, int]:
        """The number of items in each state."""
        return dict(Counter(each.state for each in self.items.values()))

    @property
    def state(self) -> State:
        """The state of the migration as a whole."""
        found = {each.state for each in self.items.values()}
        if self.undo_has_started:
            # An item that failed before its first step has nothing to undo.
            left = any(each.has_started and not each.is_undone for each in self.items.values())
            return State.UNDOING if left else State.UNDONE
        for state in (State.FAILED, State.DIFFERS):
            if state in found:
                return state
        if not self.runs:
            return State.PLANNED
        return State.STARTED if found & {State.STARTED, State.PLANNED} else State.DONE


def _apply_to_item(state: ItemState, event: Event) -> None:
    step = state.steps.get(event.step or "")
    state.facts.update(event.facts)
    if event.event == "started" and event.step is not None:
        state.error = None
        state.steps.setdefault(event.step, StepState(started=event.at))
    elif event.event == "done" and step is not None:
        step.done, step.seconds = event.at, event.seconds
        state.is_done = event.is_last
    elif event.event in ("failed", "undo_failed"):
        state.error = event.error
    elif event.event == "verified":
        state.checks, state.verified, state.error = event.checks, event.level, None
    elif event.event == "undo_started":
        state.undo_started, state.error = True, None
    elif event.event == "undo_done" and step is not None:
        step.undone = event.at
    elif event.event == "undo_done":
        state.is_undone, state.error = True, None


def leftover_messages(state: ItemState, target: Address) -> Iterator[str]:
    """Yield messages about orphaned files of loads, which no version of a table references."""
    if state.undo_started:
        return
    removed = state.facts.get("orphaned_bytes_deleted")
    if removed:
        yield f"{removed:,} bytes that interrupted loads had left were deleted"
    if not state.is_done:
        if state.has_started:
            yield "Files of the interrupted load may be left: resuming and undoing delete them"
        return
    left, count = state.facts.get("orphaned_bytes_left"), state.facts.get("orphaned_files_left")
    if left:
        words = ["lance-bridge", "maintain", "clean-up", target.name, written(state.item.target)]
        yield (
            f"{left:,} bytes in {count} files of tasks that failed are left, which no version "
            "names. Once they are a week old, this deletes them, with versions of that age: "
            f"{shlex.join([*words, '--older-than', '7d'])}"
        )


# -- store -----------------------------------------------------------------------------------------


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_PLAN, _JOURNAL, _LOCK = "plan.json", "journal.jsonl", "lock"


class Migrations:
    """The migrations in a state directory, by default `default_directory`."""

    def __init__(self, directory: Path | str | None = None) -> None:
        self.directory = Path(directory or default_directory()) / MIGRATIONS

    def add(self, plan: Plan) -> Migration:
        """Store a new plan. Raises ServiceUnavailable (17): it cannot be written."""
        migration = Migration(self._directory(plan.id))
        with file_errors(migration.directory):
            migration.directory.mkdir(mode=0o700, parents=True, exist_ok=False)
            _write_atomically(migration.directory / _PLAN, plan.to_json())
            sync_directory(self.directory)
        return migration

    def get(self, id: str) -> Migration:
        """Return a stored migration. Raises InvalidInput (13): it does not exist."""
        migration = Migration(self._directory(id))
        with file_errors(self.directory):
            exists = (migration.directory / _PLAN).exists()
        if not exists:
            raise invalid(
                f"There is no migration '{id}' in {self.directory}: see `lance-bridge migrate list`"
            )
        return migration

    def ids(self) -> list[str]:
        """Return the identifiers of all migrations, sorted by creation time."""
        with file_errors(self.directory):
            if not self.directory.exists():
                return []
            found = (each for each in self.directory.iterdir() if _ID.fullmatch(each.name))
            return sorted(each.name for each in found if (each / _PLAN).exists())

    def _directory(self, id: str) -> Path:
        if not _ID.fullmatch(id):
            raise invalid(f"{id[:60]!r} is not an identifier of a migration")
        return self.directory / id


@dataclass(frozen=True)
class Migration:
    """One migration on disk."""

    directory: Path

    def plan(self) -> Plan:
        """Return the plan. Raises InvalidInput (13): the file is not a plan."""
        path = self.directory / _PLAN
        with file_errors(self.directory):
            content = path.read_bytes()
        try:
            return Plan.from_json(content)
        except InvalidInputError as error:
            raise invalid(f"{path}: {error}") from error

    def record(self) -> Record:
        """Return the current record. Raises InvalidTableState (19): the journal is damaged."""
        plan = self.plan()
        with file_errors(self.directory):
            return Record.of(plan, read(self.directory / _JOURNAL))

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """Open the journal, and lock the migration until the block ends or the process dies.

        Raises:
            ConcurrentModificationError: (14) another process holds the lock.
        """
        with self._locked():
            with file_errors(self.directory):
                journal = Journal(self.directory / _JOURNAL)
            try:
                yield journal
            finally:
                journal.close()

    @property
    def is_running(self) -> bool:
        """True while a process holds the migration's lock."""
        try:
            with self._locked():
                return False
        except ConcurrentModificationError:
            return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The operating system releases the lock when the process dies.
        with file_errors(self.directory):
            lock = (self.directory / _LOCK).open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConcurrentModificationError(
                    f"Migration {self.directory.name} is being run by another process: wait until "
                    "it ends, or stop it"
                ) from error
            yield


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)
