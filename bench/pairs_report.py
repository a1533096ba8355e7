"""What was found of operations inside a table, as one JSON object and as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.pairs import CALLS_BAR, OWN_BAR, Pair, Step
from bench.report import verdict

_ROW = "{:<25}{:>8}{:>9}{:>7}{:>7}  {:<14}{:>7}  {:<11}{:>5}  {:<10}{}"


def collect(
    about: Mapping[str, Any], steps: list[Step], pairs: Mapping[str, Pair], unlike: int
) -> dict[str, Any]:
    """Return everything as one object; times are medians in milliseconds.

    Args:
        unlike: Rounds after which the two tables were not alike.
    """
    operations = [_operation(step, pairs[step.name]) for step in steps]
    missed = [
        f"{each['operation']}: {what} {each[what]:g}, bar {each[f'{what}_bar']:g}"
        for each in operations
        for what in ("own_ms", "calls")
        if each[f"{what}_passed"] is False
    ]
    return {
        **about,
        "operations": operations,
        "missed": missed,
        "unlike_tables": unlike,
        "wrong_answers": sum(pair.wrong for pair in pairs.values()),
    }


def _operation(step: Step, found: Pair) -> dict[str, Any]:
    ours, raw, call = found.medians_ms()
    low, own, high = found.own_ms()
    calls = sum(found.calls.values())
    barred = not step.makes_table
    return {
        "operation": step.name,
        "ours_ms": round(ours, 3),
        "pylance_ms": round(raw, 3),
        "call_ms": round(call, 3),
        "own_ms": round(own, 3),
        "own_ms_at_best": round(found.own_at_best_ms(), 3),
        "own_ms_quartiles": [round(low, 3), round(high, 3)],
        "own_ms_bar": OWN_BAR if barred else None,
        "own_ms_passed": own < OWN_BAR if barred else None,
        "calls": calls,
        "calls_by_name": found.calls,
        "calls_bar": CALLS_BAR if barred else None,
        "calls_passed": calls == CALLS_BAR if barred else None,
        "wrong": found.wrong,
    }


def as_text(found: Mapping[str, Any]) -> str:
    """Return a table of what :func:`collect` returned."""
    missed = found["missed"]
    lines = [
        f"{found['catalog']}: operations inside a table of {found['rows']} rows, through the "
        f"namespace and by path; medians of {found['rounds']} rounds",
        f"own: our time without pylance's same call and without the one raw call to the catalog "
        f"({found['raw_client']}); best: the same of the quickest round of each; "
        f"load average: {found['load_average']}",
        "",
        _ROW.format(
            *("operation", "ours ms", "pylance", "call", "own", "quartiles", "best"),
            *("bar", "calls", "bar", "on the wire"),
        ),
        *(_row(each) for each in found["operations"]),
        "",
        f"bars missed: {len(missed)}" + "".join(f"\n  {each}" for each in missed),
        f"rounds that left unlike tables: {found['unlike_tables']}",
        f"wrong answers: {found['wrong_answers']}",
    ]
    return "\n".join(lines)


def _row(each: Mapping[str, Any]) -> str:
    low, high = each["own_ms_quartiles"]
    return _ROW.format(
        each["operation"],
        f"{each['ours_ms']:.2f}",
        f"{each['pylance_ms']:.2f}",
        f"{each['call_ms']:.2f}",
        f"{each['own_ms']:.2f}",
        f"{low:.2f}..{high:.2f}",
        f"{each['own_ms_at_best']:.2f}",
        verdict("<", each["own_ms_bar"], each["own_ms_passed"]),
        f"{each['calls']:g}",
        verdict("=", each["calls_bar"], each["calls_passed"]),
        ", ".join(f"{count:g} {name}" for name, count in each["calls_by_name"].items()),
    )
