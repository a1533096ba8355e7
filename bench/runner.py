"""What all suites share: alternating ways, calls on the wire, limits, and the report."""

from __future__ import annotations

import argparse
import operator
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
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

Way = Callable[[Any], Any]
"""Does an operation once and returns its answer, or a `Timed` one; gets the turn."""
MakeTurn = Callable[[int], AbstractContextManager[Any]]
"""Makes the arguments of the ways for the round of that number."""


@dataclass(frozen=True)
class Bar:
    """A limit that a figure of an operation must keep: ``calls <= 2``."""

    figure: str
    sign: str
    limit: float

    def is_met(self, value: float) -> bool:
        """Return whether a value of the figure keeps the limit."""
        return _COMPARE[self.sign](value, self.limit)


@dataclass(frozen=True)
class Timed:
    """An answer that brings its own seconds, because only a part of the call is measured.

    ``parts`` are further figures of the call, by the name that they have in the report.
    """

    seconds: float
    answer: Any = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """One operation to measure.

    Attributes:
        ways: By name, ``ours`` first, then what it is compared with.
        is_right: Judges the answers (by way) of one turn.
        repeats: How many turns it takes in each round.
        rounds: The number of rounds it takes part in, where it is too slow for all.
        unit: Of its times in the report: ``ms`` or ``s``.
    """

    name: str
    ways: Mapping[str, Way]
    is_right: Callable[[Mapping[str, Any], Any], bool]
    bars: Sequence[Bar] = ()
    repeats: int = 1
    rounds: int | None = None
    unit: str = "ms"


@dataclass
class Figures:
    """What was measured of one operation."""

    seconds: dict[str, list[float]]
    """The times of each way, one for each turn."""
    parts: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, float] = field(default_factory=dict)
    """Calls on the wire for one operation, by name."""
    connections: int = 0
    wrong: int = 0

    def median(self, way: str) -> float:
        """Return the median of a way's times, in seconds."""
        return statistics.median(self.seconds[way])

    def ratio(self) -> float:
        """Return the median of the first way as a multiple of the second's."""
        first, second = list(self.seconds)[:2]
        return self.median(first) / self.median(second)


@contextmanager
def _just_the_number(number: int) -> Iterator[int]:
    yield number


def take_turns(
    operations: Sequence[Operation],
    rounds: int,
    rehearsals: int,
    make_turn: MakeTurn = _just_the_number,
) -> dict[str, Figures]:
    """Time all operations in each round; the way that goes first changes with every turn.

    Args:
        rehearsals: Rounds before the others. Their times do not count, wrong answers do.
        make_turn: Makes what the ways get; by default the number of the turn.
    """
    figures = {each.name: Figures({way: [] for way in each.ways}) for each in operations}
    for number in range(rehearsals + rounds):
        with make_turn(number) as turn:
            for operation in operations:
                if operation.rounds is not None and number >= rehearsals + operation.rounds:
                    continue
                for repeat in range(operation.repeats):
                    index = number * operation.repeats + repeat
                    chosen = index if make_turn is _just_the_number else turn
                    found = figures[operation.name]
                    _take_turn(operation, index, chosen, found, counts=number >= rehearsals)
    return figures


def _take_turn(
    operation: Operation, index: int, turn: Any, found: Figures, *, counts: bool
) -> None:
    ways = list(operation.ways.items())
    first = index % len(ways)
    answers: dict[str, Any] = {}
    for name, way in ways[first:] + ways[:first]:
        timed = _time(way, turn)
        answers[name] = timed.answer
        if counts:
            found.seconds[name].append(timed.seconds)
            for part, value in timed.parts.items():
                found.parts.setdefault(part, []).append(value)
    found.wrong += not operation.is_right(answers, turn)


def _time(way: Way, turn: Any) -> Timed:
    started = time.perf_counter()
    answer = way(turn)
    seconds = time.perf_counter() - started
    return answer if isinstance(answer, Timed) else Timed(seconds, answer)


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
    numbers: range,
    make_turn: MakeTurn = _just_the_number,
) -> None:
    """Count the calls and new connections of ours, in rounds of those numbers.

    The ways ``ours`` must go through the proxy, on a client that is connected already.
    """
    totals: dict[str, Counter[str]] = {each.name: Counter() for each in operations}
    for number in numbers:
        with make_turn(number) as turn:
            for operation in operations:
                wire.reset()
                operation.ways["ours"](turn)
                totals[operation.name].update(wire.calls())
                figures[operation.name].connections += wire.connections()
    for name, total in totals.items():
        figures[name].calls = {call: count / len(numbers) for call, count in total.items()}


def operation_row(operation: Operation, found: Figures, **more: Any) -> dict[str, Any]:
    """Return the row of an operation: medians of its ways, ``more`` figures, calls on the wire."""
    values: dict[str, Any] = {"operation": operation.name}
    scale = {"ms": 1000, "s": 1}[operation.unit]
    for way in operation.ways:
        values[f"{way}_{operation.unit}"] = round(found.median(way) * scale, 3)
    values.update({"ratio": round(found.ratio(), 3), **more})
    values.update({part: round(statistics.median(all_), 3) for part, all_ in found.parts.items()})
    if found.calls:
        values["calls"] = sum(found.calls.values())
        values["calls_by_name"] = found.calls
        values["connections_opened"] = found.connections
    return make_row(values, operation.bars, found.wrong)


def make_row(values: Mapping[str, Any], bars: Sequence[Bar], wrong: int) -> dict[str, Any]:
    """Return a row of the report: figures, each followed by its bar and whether that is met."""
    by_figure = {bar.figure: bar for bar in bars}
    row: dict[str, Any] = {}
    for key, value in values.items():
        row[key] = value
        if key in by_figure:
            row[f"{key}_bar"] = f"{by_figure[key].sign} {by_figure[key].limit:g}"
            row[f"{key}_passed"] = by_figure[key].is_met(value)
    return {**row, "wrong": wrong}


def make_report(
    facts: Mapping[str, Any], tables: Mapping[str, list[dict[str, Any]]], other_wrong: int = 0
) -> dict[str, Any]:
    """Return the report of a suite: facts, tables of rows, missed bars, and wrong answers.

    Args:
        other_wrong: Wrong answers beside those of the rows.
    """
    rows = [row for table in tables.values() for row in table]
    missed = [
        f"{next(iter(row.values()))}: {key} {row[key]:g}, bar {row[f'{key}_bar']}"
        for row in rows
        for key in row
        if row.get(f"{key}_passed") is False
    ]
    return {
        **facts,
        "load_average": round(os.getloadavg()[0], 1),
        **tables,
        "missed": missed,
        "wrong_answers": other_wrong + sum(row["wrong"] for row in rows),
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
            lines.append(f"{_label(key)}: {_cell(value)}")
    return "\n".join(lines)


def _table_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [
        [_label(key) for key in keys],
        *([_cell(row.get(key)) for key in keys] for row in rows),
    ]
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
