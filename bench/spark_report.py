"""What was found in Spark, as one JSON object and as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.report import verdict

_ROW = "{:<24}{:>9}{:>11}{:>8}  {:<14}"
_JOB = "{:<24}{:>11}{:>12}{:>10}"
_LEVER = "{:<24}{:>17}{:>17}{:>17}{:>17}"


def megabytes(directory: Path) -> int:
    """Return the size of all files below a directory, in MB (10^6 bytes)."""
    return round(sum(each.stat().st_size for each in directory.rglob("*.parquet")) / 1e6)


def summed_up(found: dict[str, Any]) -> dict[str, Any]:
    """Add which bars were missed, and how many answers were wrong."""
    statements, jobs = found["statements"], found.get("jobs", [])
    return {
        **found,
        "missed": [
            f"{each['step']}: {each['ratio']:g}, bar {each['bar']:g}"
            for each in statements
            if each["passed"] is False
        ],
        "wrong_answers": sum(each["wrong"] for each in [*statements, *jobs]),
    }


def as_text(found: Mapping[str, Any]) -> str:
    """Return tables of what :func:`summed_up` returned."""
    lines = [
        f"Lance tables in Spark, {found['rows']} rows ({found['megabytes']} MB of Parquet), "
        f"medians of {found['rounds']} rounds; load average: {found['load_average']}",
        "",
        _ROW.format("statement", "ours s", "Parquet s", "ratio", "bar"),
        *(_statement(each) for each in found["statements"]),
    ]
    if found.get("jobs"):
        lines += ["", _JOB.format("job", "1 core s", "2 cores s", "speed-up")]
        lines += [
            _JOB.format(
                each["job"],
                f"{each['one_core_s']:.2f}",
                f"{each['two_cores_s']:.2f}",
                f"{each['speed_up']:.2f}",
            )
            for each in found["jobs"]
        ]
    if found.get("levers"):
        names = [name for name in found["levers"][0] if name != "lever"]
        lines += ["", "levers: seconds, and times of what it takes as it is"]
        lines += [_LEVER.format("lever", *names)]
        lines += [_lever(each, names) for each in found["levers"]]
    missed = found["missed"]
    lines += [
        "",
        f"bars missed: {len(missed)}" + "".join(f"\n  {each}" for each in missed),
        f"wrong answers: {found['wrong_answers']}",
    ]
    return "\n".join(lines)


def _statement(each: Mapping[str, Any]) -> str:
    return _ROW.format(
        each["step"],
        f"{each['ours_s']:.3f}",
        f"{each['parquet_s']:.3f}",
        f"{each['ratio']:.2f}",
        verdict("<=", each["bar"], each["passed"]),
    ).rstrip()


def _lever(each: Mapping[str, Any], names: list[str]) -> str:
    cells = [f"{each[name]['seconds']:.2f} ({each[name]['times_of_plain']:.2f})" for name in names]
    return _LEVER.format(each["lever"], *cells)
