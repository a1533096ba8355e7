"""Steps that are done on a Lance table and on Parquet in turns, and what they took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """One figure. Both get the number of the round and return an answer to compare."""

    name: str
    ours: Callable[[int], Any]
    parquet: Callable[[int], Any]
    bar: float | None
    """The most that ours may take, in times of Parquet's."""
    same: Callable[[Any, Any], bool] = lambda a, b: bool(a == b)
    rounds: int | None = None
    """Where it is too slow to be done in every round."""


@dataclass
class Found:
    """Seconds of each round, and how many answers were not those of Parquet."""

    ours: list[float] = field(default_factory=list)
    parquet: list[float] = field(default_factory=list)
    wrong: int = 0

    @property
    def ratio(self) -> float:
        """Times of Parquet's that ours takes, by the medians."""
        return statistics.median(self.ours) / statistics.median(self.parquet)


def take_turns(steps: Sequence[Step], rounds: int, tell: Callable[[str], None]) -> dict[str, Found]:
    """Do all steps in every round, who goes first changing; the first round is a rehearsal."""
    found = {step.name: Found() for step in steps}
    for number in range(rounds + 1):
        tell(f"round {number} of {rounds} …")
        for step in steps:
            if step.rounds is None or number <= step.rounds:
                _take_turn(step, number, found[step.name])
    return found


def _take_turn(step: Step, number: int, found: Found) -> None:
    turns = [(found.ours, step.ours), (found.parquet, step.parquet)]
    answers: dict[int, Any] = {}
    for seconds, do in turns if number % 2 else reversed(turns):
        started = time.perf_counter()
        answers[id(seconds)] = do(number)
        taken = time.perf_counter() - started
        if number:
            seconds.append(taken)
    found.wrong += not step.same(answers[id(found.ours)], answers[id(found.parquet)])


def timed(do: Callable[[], Any]) -> float:
    """Return how many seconds something takes."""
    started = time.perf_counter()
    do()
    return time.perf_counter() - started
