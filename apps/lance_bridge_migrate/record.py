"""The record of a migration: its plan, and the state of each item according to the journal."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum

from pydantic import BaseModel, Field

from lance_bridge.names import written

from .journal import Check, Event, Failure
from .plan import Address, Facts, Item, Plan


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
    def key(self) -> str:
        return self.item.key

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
        return State.STARTED if self.has_started else self._planned_state()

    def _planned_state(self) -> State:
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
