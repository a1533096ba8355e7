"""The record of a migration: its plan, and what the journal says became of each item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from pydantic import BaseModel, Field

from .journal import Check, Event, Failure
from .plan import Facts, Item, Plan


class State(str, Enum):
    """Where a migration, or one item of it, stands."""

    PLANNED = "planned"
    NOTHING_TO_DO = "nothing to do"
    BLOCKED = "blocked"
    BEGUN = "begun"
    """Begun, and neither done nor failed: it runs, or was interrupted."""
    FAILED = "failed"
    DIFFERS = "differs"
    """Done, and verifying found a difference."""
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"


class StepState(BaseModel):
    """What became of one step of one item. Times are ISO 8601 in UTC."""

    begun: str
    done: str | None = None
    seconds: float | None = None
    undone: str | None = None


class ItemState(BaseModel):
    """What became of one item.

    Attributes:
        steps: By name, in the order in which they were begun.
        facts: Those of the plan and all that steps noted, the latest of a name last.
        error: Of the last attempt, where that failed.
        checks: Of the last time it was verified.
        verified: How thoroughly that was: a `Level`.
    """

    item: Item
    steps: dict[str, StepState] = Field(default_factory=dict)
    facts: Facts = Field(default_factory=dict)
    error: Failure | None = None
    checks: tuple[Check, ...] = ()
    verified: str | None = None
    is_done: bool = False
    undo_begun: bool = False
    is_undone: bool = False

    @property
    def key(self) -> str:
        return self.item.key

    @property
    def has_begun(self) -> bool:
        return bool(self.steps)

    @property
    def seconds(self) -> float:
        """How long its steps took, all attempts that came to an end."""
        return sum(step.seconds or 0.0 for step in self.steps.values())

    @property
    def state(self) -> State:
        if self.undo_begun:
            return State.UNDONE if self.is_undone else State.UNDOING
        if self.error is not None:
            return State.FAILED
        if self.is_done:
            return State.DONE if all(check.ok for check in self.checks) else State.DIFFERS
        return State.BEGUN if self.has_begun else self._state_before()

    def _state_before(self) -> State:
        if self.item.nothing_to_do:
            return State.NOTHING_TO_DO
        return State.BLOCKED if self.item.blockers else State.PLANNED


class RunState(BaseModel):
    """One run of the migration or of its undoing; ``ended`` is None for one that was cut off.

    Attributes:
        is_stopped: Whether Ctrl-C ended it.
        gave_up: Why it began no more items before the last one, or "".
    """

    event: str
    begun: str
    options: Facts = Field(default_factory=dict)
    ended: str | None = None
    is_stopped: bool = False
    gave_up: str = ""


class Record(BaseModel):
    """All that is known of a migration."""

    plan: Plan
    items: dict[str, ItemState]
    runs: list[RunState] = Field(default_factory=list)

    @classmethod
    def of(cls, plan: Plan, events: Iterable[Event]) -> Record:
        """Return the record that a journal stands for."""
        states = {item.key: ItemState(item=item, facts=dict(item.facts)) for item in plan.items}
        record = cls(plan=plan, items=states)
        for event in events:
            record.apply(event)
        return record

    def apply(self, event: Event) -> None:
        """Take in one more event."""
        if event.item is not None:
            _apply_to_item(self.items[event.item], event)
        elif event.event in ("run", "undo"):
            self.runs.append(RunState(event=event.event, begun=event.at, options=event.facts))
        elif self.runs:
            self.runs[-1].ended = event.at
            self.runs[-1].is_stopped = event.event == "stopped"
            self.runs[-1].gave_up = str(event.facts.get("gave_up", ""))

    @property
    def undo_has_begun(self) -> bool:
        return any(run.event == "undo" for run in self.runs)

    @property
    def counts(self) -> dict[State, int]:
        """How many items stand where."""
        return dict(Counter(each.state for each in self.items.values()))

    @property
    def state(self) -> State:
        """Where the migration as a whole stands."""
        found = {each.state for each in self.items.values()}
        if self.undo_has_begun:
            left = {State.UNDOING, State.DONE, State.FAILED, State.BEGUN, State.DIFFERS}
            return State.UNDOING if found & left else State.UNDONE
        for state in (State.FAILED, State.DIFFERS):
            if state in found:
                return state
        if not self.runs:
            return State.PLANNED
        return State.BEGUN if found & {State.BEGUN, State.PLANNED} else State.DONE


def _apply_to_item(state: ItemState, event: Event) -> None:
    step = state.steps.get(event.step or "")
    state.facts.update(event.facts)
    if event.event == "begun" and event.step is not None:
        state.error = None
        state.steps.setdefault(event.step, StepState(begun=event.at))
    elif event.event == "done" and step is not None:
        step.done, step.seconds = event.at, event.seconds
        state.is_done = event.is_last
    elif event.event in ("failed", "undo_failed"):
        state.error = event.error
    elif event.event == "verified":
        state.checks, state.verified, state.error = event.checks, event.level, None
    elif event.event == "undo_begun":
        state.undo_begun, state.error = True, None
    elif event.event == "undo_done" and step is not None:
        step.undone = event.at
    elif event.event == "undo_done":
        state.is_undone, state.error = True, None
