"""The runner of all suites: alternating ways, calls on the wire, limits, and the report."""

from __future__ import annotations

import argparse
import operator
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_type_hints

from lance_namespace import LanceNamespace

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
}

Row = dict[str, Any]
"""A row of the report: figures by their names."""
Bars = Mapping[str, str]
"""The limits that figures must keep: ``{"calls": "<= 2"}``."""
Way = Callable[[Any], Any]
"""Does an operation once and returns its answer, or a `Timed` one; gets the turn."""
MakeTurn = Callable[[int], AbstractContextManager[Any]]
"""Makes the turn of the round of that number; by default the number itself."""


@dataclass(frozen=True)
class Timed:
    """An answer that brings its own seconds, because only a part of the call is measured.

    ``parts`` are further figures of the call, by the name that they have in the report; ``cpu`` is
    seconds of CPU, where they are measured too.
    """

    seconds: float
    answer: Any = None
    parts: Mapping[str, float] = field(default_factory=dict)
    cpu: float | None = None


def time_cpu(
    do: Callable[[int], Any], cpu: Callable[[], float], turn: int, times: int = 1
) -> Timed:
    """Do something so many times; return seconds and seconds of CPU of one, and the last answer.

    Args:
        do: Gets a number that differs between times and turns.
        cpu: Returns the seconds of CPU used so far.
    """
    started, cpu_before = time.perf_counter(), cpu()
    for number in range(turn * times, (turn + 1) * times):
        answer = do(number)
    used = cpu() - cpu_before
    return Timed((time.perf_counter() - started) / times, answer, cpu=used / times)


@dataclass(frozen=True)
class Operation:
    """One operation to measure.

    Attributes:
        ways: By name, ``ours`` first, then what it is compared with, if anything.
        is_right: Judges the answers (by way) of one turn.
        unit: Of its times in the report: ``ms`` or ``s``.
        more: Returns further figures for the report.
    """

    name: str
    ways: Mapping[str, Way]
    is_right: Callable[[Mapping[str, Any], Any], bool]
    bars: Bars = field(default_factory=dict)
    unit: str = "ms"
    more: Callable[[Figures], Row] = lambda _: {}


@dataclass
class Figures:
    """What was measured of one operation: times of each way, and other figures by name."""

    seconds: dict[str, list[float]]
    cpu: dict[str, list[float]] = field(default_factory=dict)
    parts: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, float] = field(default_factory=dict)
    """Calls on the wire for one operation, by name."""
    connections: int = 0
    wrong: int = 0


def take_turns(
    operations: Sequence[Operation], rounds: int, rehearsals: int, make_turn: MakeTurn = nullcontext
) -> dict[str, Figures]:
    """Time all operations in each round; the way that goes first changes with every turn.

    Args:
        rehearsals: Rounds before the others. Their times do not count, wrong answers do.
    """
    figures = {each.name: Figures({way: [] for way in each.ways}) for each in operations}
    for number in range(rehearsals + rounds):
        with make_turn(number) as turn:
            for each in operations:
                first, counts = number % len(each.ways), number >= rehearsals
                _take_turn(each, turn, first, figures[each.name], counts)
    return figures


def _take_turn(operation: Operation, turn: Any, first: int, found: Figures, counts: bool) -> None:
    ways = list(operation.ways)
    answers: dict[str, Any] = {}
    for name in ways[first:] + ways[:first]:
        started = time.perf_counter()
        answer = operation.ways[name](turn)
        seconds = time.perf_counter() - started
        timed = answer if isinstance(answer, Timed) else Timed(seconds, answer)
        answers[name] = timed.answer
        if counts:
            found.seconds[name].append(timed.seconds)
            if timed.cpu is not None:
                found.cpu.setdefault(name, []).append(timed.cpu)
            for part, value in timed.parts.items():
                found.parts.setdefault(part, []).append(value)
    found.wrong += not operation.is_right(answers, turn)


@dataclass(frozen=True)
class Wire:
    """A proxy that counts between a client and its server.

    ``address`` is where the client connects, ``calls`` and ``connections`` count since ``reset``.
    """

    address: str
    reset: Callable[[], None]
    calls: Callable[[], Mapping[str, int]]
    connections: Callable[[], int]


def count_calls(
    operations: Sequence[Operation],
    wire: Wire,
    figures: Mapping[str, Figures],
    rounds: int,
    make_turn: MakeTurn = nullcontext,
) -> None:
    """Count the calls and new connections of ours.

    The ways ``ours`` must go through the proxy, on a client that is connected already.
    """
    totals: dict[str, Counter[str]] = {each.name: Counter() for each in operations}
    for number in range(rounds):
        with make_turn(number) as turn:
            for operation in operations:
                wire.reset()
                operation.ways["ours"](turn)
                totals[operation.name].update(wire.calls())
                figures[operation.name].connections += wire.connections()
    for name, total in totals.items():
        figures[name].calls = {call: count / rounds for call, count in total.items()}


def measure_in_turns(operations: Sequence[Operation], rounds: int, rehearsals: int) -> list[Row]:
    """Time all operations in turns, and return their rows."""
    return operation_rows(operations, take_turns(operations, rounds, rehearsals))


def operation_rows(operations: Iterable[Operation], figures: Mapping[str, Figures]) -> list[Row]:
    """Return the row of each operation: medians of its ways, more figures, calls on the wire."""
    return [_operation_row(each, figures[each.name]) for each in operations]


def _operation_row(operation: Operation, found: Figures) -> Row:
    row: Row = {"operation": operation.name}
    scale = {"ms": 1000, "s": 1}[operation.unit]
    for prefix, times in (("", found.seconds), ("cpu_", found.cpu)):
        medians = [statistics.median(times[way]) for way in operation.ways if way in times]
        for way, each in zip(operation.ways, medians, strict=False):
            row[f"{way}_{prefix}{operation.unit}"] = round(each * scale, 3)
        if len(medians) > 1:
            row[f"{prefix}ratio"] = round(medians[0] / (medians[1] or 0.001), 3)
    row |= operation.more(found)
    row |= {part: round(statistics.median(values), 3) for part, values in found.parts.items()}
    if found.calls:
        row |= {"calls": sum(found.calls.values()), "calls_by_name": found.calls}
        row["connections_opened"] = found.connections
    return make_row(row, operation.bars, found.wrong)


def make_row(values: Mapping[str, Any], bars: Bars, wrong: int) -> Row:
    """Return a row of the report: figures, each followed by its bar and whether that is met."""
    row: Row = {}
    for key, value in values.items():
        row[key] = value
        if key in bars:
            sign, limit = bars[key].split()
            row[f"{key}_bar"] = bars[key]
            row[f"{key}_passed"] = _COMPARE[sign](value, float(limit))
    return {**row, "wrong": wrong}


def make_report(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of a suite: facts and lists of rows, missed bars, and wrong answers."""
    rows = [row for table in found.values() if isinstance(table, list) for row in table]
    missed = [
        f"{next(iter(row.values()))}: {key} {row[key]:g}, bar {row[f'{key}_bar']}"
        for row in rows
        for key in row
        if row.get(f"{key}_passed") is False
    ]
    return {
        **found,
        "load_average": round(os.getloadavg()[0], 1),
        "missed": missed,
        "wrong_answers": sum(row["wrong"] for row in rows),
    }


def to_text(report: Mapping[str, Any]) -> str:
    """Return a report as tables for people."""
    lines = []
    for key, value in report.items():
        if key == "missed":
            lines += ["", *(f"bar missed: {each}" for each in value)]
        elif isinstance(value, list):
            lines += ["", f"{_label(key)}:", *_table_lines(value)]
        else:
            # Whether an option was given is no limit that was met.
            text = str(value) if isinstance(value, bool) else _cell(value)
            lines.append(f"{_label(key)}: {text}")
    return "\n".join(lines)


def _table_lines(rows: Sequence[Row]) -> Iterator[str]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_label(key) for key in keys]]
    cells += [[_cell(row.get(key)) for key in keys] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(map(str.ljust, line, widths)).rstrip()


def _label(key: str) -> str:
    return key.replace("_", " ")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "pass" if value else "MISS"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{count:g} {name}" for name, count in value.items())
    return "-" if value is None else str(value)


def request(namespace: Any, method: str, data: bytes | None = None, **fields: Any) -> Any:
    """Call a namespace's method with a request of its type, built from the fields."""
    made = _request_type(method)(**fields)
    return getattr(namespace, method)(*((made,) if data is None else (made, data)))


@cache
def _request_type(method: str) -> Any:
    return get_type_hints(getattr(LanceNamespace, method))["request"]


def show_progress(text: str) -> None:
    """Print what is being done, to standard error."""
    print(text, file=sys.stderr, flush=True)


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number of at least so much."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return int(text)

    return number
