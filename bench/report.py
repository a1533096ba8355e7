"""What was found, as one JSON object and as a table for people, with the bars beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import Figures, Operation

_ROW = "{:<22}{:>9}{:>9}{:>8}  {:<14}{:>6}  {:<12}{}"


@dataclass(frozen=True)
class Threads:
    """What many threads did on one namespace object, and on a raw client each."""

    threads: int
    operations: int
    ours_per_second: float
    raw_per_second: float
    wrong: int
    bar: float | None

    @property
    def ratio(self) -> float:
        """Our operations for each of the raw clients'."""
        return self.ours_per_second / self.raw_per_second


@dataclass(frozen=True)
class Refresh:
    """What many threads saw while the credentials of their namespace object ran out."""

    threads: int
    operations: int
    per_second: float
    wrong: int
    refreshes: int
    """How many requests asked for new credentials meanwhile; one is enough."""


def collect(
    about: Mapping[str, Any],
    operations: Sequence[Operation],
    figures: Mapping[str, Figures],
    threads: Threads,
    refresh: Refresh | None = None,
) -> dict[str, Any]:
    """Return everything as one object; times are medians in milliseconds."""
    wrong = [threads.wrong, refresh.wrong if refresh else 0, *(f.wrong for f in figures.values())]
    return {
        **about,
        "operations": [_operation(each, figures[each.name]) for each in operations],
        "threads": {
            "threads": threads.threads,
            "operations": threads.operations,
            "ours_per_second": round(threads.ours_per_second, 1),
            "raw_per_second": round(threads.raw_per_second, 1),
            "ratio": round(threads.ratio, 2),
            "ratio_bar": threads.bar,
            "ratio_passed": None if threads.bar is None else threads.ratio >= threads.bar,
            "wrong": threads.wrong,
        },
        "refresh": _refresh(refresh) if refresh else None,
        "wrong_answers": sum(wrong),
    }


def _refresh(found: Refresh) -> dict[str, Any]:
    return {
        "threads": found.threads,
        "operations": found.operations,
        "per_second": round(found.per_second, 1),
        "wrong": found.wrong,
        "refreshes": found.refreshes,
        "refreshes_bar": 1,
        "refreshes_passed": found.refreshes == 1,
    }


def _operation(operation: Operation, found: Figures) -> dict[str, Any]:
    calls = sum(found.calls.values())
    return {
        "operation": operation.name,
        "ours_ms": round(found.ours_ms, 3),
        "raw_ms": round(found.raw_ms, 3),
        "raw_call": operation.raw_call,
        "ratio": round(found.ratio, 2),
        "ratio_bar": operation.ratio_bar,
        "ratio_passed": _within(found.ratio, operation.ratio_bar),
        "calls": calls,
        "calls_by_name": found.calls,
        "calls_bar": operation.calls_bar,
        "calls_passed": _within(calls, operation.calls_bar),
        "connections_opened": found.connections,
        "wrong": found.wrong,
    }


def _within(value: float, bar: float | None) -> bool | None:
    return None if bar is None else value <= bar


def as_text(found: Mapping[str, Any]) -> str:
    """Return a table of what :func:`collect` returned."""
    lines = [
        f"{found['catalog']}: {found['tables']} tables, "
        f"{found['lance_tables']} of them Lance's, {found['databases']} namespaces; "
        f"medians of {found['rounds']} rounds",
        f"raw client: {found['raw_client']}; load average: {found['load_average']}",
        "",
        _ROW.format(
            "operation", "ours ms", "raw ms", "ratio", "bar", "calls", "bar", "on the wire"
        ),
    ]
    lines += [_row(each) for each in found["operations"]]
    opened = sum(each["connections_opened"] for each in found["operations"])
    threads = found["threads"]
    lines += [
        "",
        f"connections opened by these operations: {opened}",
        f"{threads['threads']} threads on one namespace object, describe_table: "
        f"{threads['ours_per_second']:.0f} a second; raw, a client each: "
        f"{threads['raw_per_second']:.0f} a second; ratio {threads['ratio']:.2f} "
        f"({verdict('>=', threads['ratio_bar'], threads['ratio_passed'])})",
        *_refresh_line(found["refresh"]),
        f"wrong answers: {found['wrong_answers']}",
    ]
    return "\n".join(lines)


def _refresh_line(refresh: Mapping[str, Any] | None) -> list[str]:
    if refresh is None:
        return []
    return [
        f"{refresh['threads']} threads while their credentials ran out: "
        f"{refresh['operations']} operations, {refresh['per_second']:.0f} a second, "
        f"{refresh['wrong']} wrong; credentials asked for anew: {refresh['refreshes']} "
        f"({verdict('=', refresh['refreshes_bar'], refresh['refreshes_passed'])})"
    ]


def _row(each: Mapping[str, Any]) -> str:
    return _ROW.format(
        each["operation"],
        f"{each['ours_ms']:.2f}",
        f"{each['raw_ms']:.2f}",
        f"{each['ratio']:.2f}",
        verdict("<=", each["ratio_bar"], each["ratio_passed"]),
        f"{each['calls']:g}",
        verdict("<=", each["calls_bar"], each["calls_passed"]),
        ", ".join(f"{count:g} {name}" for name, count in each["calls_by_name"].items()),
    )


def verdict(sign: str, bar: float | None, passed: bool | None) -> str:
    """Return whether a bar was passed, for a table."""
    return "-" if bar is None else f"{sign} {bar:g} {'pass' if passed else 'MISS'}"
