"""A whole benchmark of one catalog: what all of them have in common, from options to exit code."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from lance_namespace import DescribeTableRequest, LanceNamespace

from bench import report
from bench.fixture import NAMESPACE
from bench.measure import Burst, Figures, Operation, burst, count_calls, take_turns
from bench.subject import Subject, operations

_UNUSED = 1_000_000
_WARM_UP = 5
_COUNTED = 5
_BURSTS = 5

SubjectT = TypeVar("SubjectT", bound=Subject)
Start = Callable[[argparse.Namespace], AbstractContextManager[SubjectT]]
MeasureRefresh = Callable[[SubjectT, int], report.Refresh]


def parser(doc: str | None, *, tables: int, rounds: int, each: int) -> argparse.ArgumentParser:
    """Return a parser with the options that all have."""
    made = argparse.ArgumentParser(description=(doc or "").split("\n\n", 1)[0])
    made.add_argument("--tables", type=int, default=tables, help="half of them are Lance's")
    made.add_argument("--databases", type=int, default=300, help="or schemas")
    made.add_argument("--rounds", type=int, default=rounds, help="of all operations")
    made.add_argument("--threads", type=int, default=8)
    made.add_argument("--each", type=int, default=each, help="operations of a thread in a burst")
    made.add_argument("--output", choices=["text", "json"], default="text")
    return made


def main(
    options: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    start: Start[SubjectT],
    refresh: MeasureRefresh[SubjectT] | None = None,
) -> int:
    """Measure and print; return 1 where an answer was wrong, else 0.

    Args:
        options: As `parser` makes it.
        arguments: Of the command line.
        start: Runs and fills the catalog.
        refresh: Measures what happens while credentials run out, with so many threads.
    """
    given = options.parse_args(arguments)
    if given.tables < 2 or min(given.databases - 1, given.rounds, given.each, given.threads) < 1:
        options.error("at least 2 tables, 2 databases, 1 round, thread and operation are needed")
    _tell("starting and filling the catalog …")
    with start(given) as subject:
        _tell(f"measuring operations on {subject.title} …")
        todo, figures = measure_operations(subject, given.rounds)
        _tell("measuring threads …")
        threads = measure_threads(subject, given.threads, given.each)
        refreshed = None
        if refresh is not None:
            _tell("letting credentials run out …")
            refreshed = refresh(subject, given.threads)
        about = _about(subject, given.rounds)
    found = report.collect(about, todo, figures, threads, refreshed)
    print(json.dumps(found, indent=2) if given.output == "json" else report.as_text(found))
    return 1 if found["wrong_answers"] else 0


def _about(subject: Subject, rounds: int) -> dict[str, Any]:
    return {
        "catalog": subject.title,
        "tables": subject.fixture.tables,
        "lance_tables": len(subject.fixture.locations),
        "databases": subject.fixture.namespaces,
        "rounds": rounds,
        "raw_client": subject.calls.client,
        "load_average": round(os.getloadavg()[0], 1),
    }


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure_operations(subject: Subject, rounds: int) -> tuple[list[Operation], dict[str, Figures]]:
    """Time all operations on direct connections, then count their calls through the proxy."""
    raw = subject.raw()
    todo = operations(subject, raw)
    namespace = subject.connect()
    _warm_up(namespace, todo)
    figures = take_turns(todo, namespace, rounds)
    with subject.wire() as wire:
        counted = subject.connect(wire.address)
        _warm_up(counted, todo[:1])
        for operation in todo:
            numbers = range(rounds, rounds + _COUNTED)
            calls, connections = count_calls(operation, counted, wire, numbers)
            figures[operation.name].calls = calls
            figures[operation.name].connections = connections
        counted.close()
    raw.close()
    namespace.close()
    return todo, figures


def _warm_up(namespace: LanceNamespace, todo: Sequence[Operation]) -> None:
    for number in range(_UNUSED, _UNUSED + _WARM_UP):
        for operation in todo:
            operation.ours(namespace, number)
            operation.raw(number)


def measure_threads(subject: Subject, threads: int, each: int) -> report.Threads:
    """Let threads describe tables, on one namespace object and on a raw client for each."""
    namespace = subject.connect()
    clients = [subject.raw() for _ in range(threads)]
    ask_ours = describer(subject, namespace)

    def ask_raw(thread: int, question: int) -> bool:
        name = _name_of(subject, thread, question)
        return subject.is_right(name, clients[thread].location_of(name))

    burst(threads, _WARM_UP, ask_ours)
    burst(threads, _WARM_UP, ask_raw)
    ours: list[Burst] = []
    raw: list[Burst] = []
    for _ in range(_BURSTS):
        ours.append(burst(threads, each, ask_ours))
        raw.append(burst(threads, each, ask_raw))
    for client in clients:
        client.close()
    namespace.close()
    return report.Threads(
        threads=threads,
        operations=threads * each * _BURSTS,
        ours_per_second=statistics.median(b.per_second for b in ours),
        raw_per_second=statistics.median(b.per_second for b in raw),
        wrong=sum(b.wrong for b in ours),
        bar=subject.bars.threads,
    )


def describer(subject: Subject, namespace: LanceNamespace) -> Callable[[int, int], bool]:
    """Return what asks for some table on a namespace, and says whether the answer is right."""

    def ask(thread: int, question: int) -> bool:
        name = _name_of(subject, thread, question)
        answer = namespace.describe_table(DescribeTableRequest(id=[NAMESPACE, name]))
        return subject.is_right(name, answer.location)

    return ask


def _name_of(subject: Subject, thread: int, question: int) -> str:
    names = subject.fixture.names
    return names[(thread * 7919 + question * 31) % len(names)]
