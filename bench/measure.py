"""How it is measured: pairs of operations in turn, calls on the wire, and many threads at once."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lance_namespace import LanceNamespace

Do = Callable[[LanceNamespace, int], Any]


@dataclass(frozen=True)
class Operation:
    """One thing to measure, in both ways, and what it must reach.

    ``ours`` and ``raw`` get the number of the round. ``right`` says whether an answer of ours is.
    """

    name: str
    ours: Do
    raw: Callable[[int], Any]
    raw_call: str
    right: Callable[[Any, int], bool]
    ratio_bar: float | None = None
    calls_bar: float | None = None
    repeats: int = 1
    """How often it is done in each round, with a number of its own each time."""


@dataclass
class Figures:
    """What was measured of one operation; times in seconds."""

    ours: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    calls: dict[str, float] = field(default_factory=dict)
    connections: int = 0
    wrong: int = 0

    @property
    def ours_ms(self) -> float:
        """Our median, in milliseconds."""
        return statistics.median(self.ours) * 1000

    @property
    def raw_ms(self) -> float:
        """The raw client's median, in milliseconds."""
        return statistics.median(self.raw) * 1000

    @property
    def ratio(self) -> float:
        """Our time for each of the raw client's."""
        return self.ours_ms / self.raw_ms


def take_turns(
    operations: Sequence[Operation], namespace: LanceNamespace, rounds: int
) -> dict[str, Figures]:
    """Time all operations each round, ours and the raw one, who goes first changing each time."""
    figures = {operation.name: Figures() for operation in operations}
    for number in range(rounds):
        for operation in operations:
            for each in range(number * operation.repeats, (number + 1) * operation.repeats):
                _take_turn(operation, namespace, each, figures[operation.name])
    return figures


def _take_turn(
    operation: Operation, namespace: LanceNamespace, number: int, found: Figures
) -> None:
    if number % 2:
        found.raw.append(_seconds(lambda: operation.raw(number)))
    started = time.perf_counter()
    answer = operation.ours(namespace, number)
    found.ours.append(time.perf_counter() - started)
    found.wrong += not operation.right(answer, number)
    if not number % 2:
        found.raw.append(_seconds(lambda: operation.raw(number)))


def _seconds(do: Callable[[], Any]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Wire:
    """What counts between a namespace and its server; `address` is where a client connects."""

    address: str
    reset: Callable[[], None]
    calls: Callable[[], Mapping[str, int]]
    connections: Callable[[], int]


def count_calls(
    operation: Operation, namespace: LanceNamespace, wire: Wire, rounds: range
) -> tuple[dict[str, float], int]:
    """Return the calls on the wire for one operation, by name, and the connections opened.

    ``namespace`` goes through the proxy, and is connected already.
    """
    wire.reset()
    for number in rounds:
        operation.ours(namespace, number)
    calls = {name: count / len(rounds) for name, count in wire.calls().items()}
    return calls, wire.connections()


@dataclass(frozen=True)
class Burst:
    """What a number of threads did together."""

    per_second: float
    wrong: int


def burst(threads: int, each: int, ask: Callable[[int, int], bool]) -> Burst:
    """Let ``threads`` threads ask ``each`` questions at the same time.

    ``ask`` gets the number of the thread and of the question, and says whether the answer was
    right. What it raises ends the benchmark.
    """
    start = threading.Barrier(threads + 1)
    wrong = [each] * threads
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        start.wait()
        try:
            wrong[thread] = sum(not ask(thread, question) for question in range(each))
        except BaseException as error:
            failures.append(error)
            raise

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    started = time.perf_counter()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    return Burst(threads * each / seconds, sum(wrong))
