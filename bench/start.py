"""Start-up: the command's help and completion, the package, and a worker of Spark.

Each runs in a new process, alternating with ``python -c pass`` and ``import lance_namespace``.
Times are of the processor, which other work on the machine changes least.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_MAIN = "import sys; sys.argv[0] = 'lance-bridge'; from lance_bridge_cli import main; main()"
_COMPLETION = {"_LANCE_BRIDGE_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
PASS, INTERFACE = "python -c pass", "import lance_namespace"


@dataclass(frozen=True)
class Start:
    """A process to measure."""

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds_bar: float | None = None
    """Its limit of CPU time."""


def _help(*words: str) -> Start:
    return Start(" ".join(("lance-bridge", *words)), _MAIN, words, seconds_bar=0.3)


STARTS = (
    Start(PASS, "pass"),
    Start(INTERFACE, "import lance_namespace"),
    Start("import lance_bridge", "import lance_bridge", seconds_bar=0.1),
    _help("--help"),
    *(_help(group, "--help") for group in ("catalogs", "config", "table", "maintain", "migrate")),
    Start(
        "completion of a command",
        _MAIN,
        environment={**_COMPLETION, "COMP_WORDS": "lance-bridge met"},
        seconds_bar=0.3,
    ),
    Start(
        "what a worker imports beside us", "import lance_namespace, lance, pyspark.sql.datasource"
    ),
    Start("a worker of Spark", "import lance_bridge_spark.source.writer"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if something exceeds its limit, else 0."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    options.add_argument("--rounds", type=int, default=7, help="of all processes")
    options.add_argument("--output", choices=["text", "json"], default="text")
    given = options.parse_args(arguments)
    seconds: dict[str, list[float]] = {each.name: [] for each in STARTS}
    for _ in range(given.rounds):
        for each in STARTS:
            seconds[each.name].append(measure(each))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    rows = [_row(each, medians) for each in STARTS]
    if given.output == "json":
        print(json.dumps(rows))
    else:
        _print(rows, given.rounds)
    return int(any(row["too_slow"] for row in rows))


def measure(start: Start) -> float:
    """Run a process; return the CPU seconds of it and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", start.program, *start.arguments],
        env={**os.environ, **start.environment},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _row(start: Start, medians: Mapping[str, float]) -> dict[str, object]:
    seconds = medians[start.name]
    return {
        "name": start.name,
        "seconds": round(seconds, 3),
        "to_pass": round(seconds / medians[PASS], 1),
        "to_interface": round(seconds / medians[INTERFACE], 2),
        "bar": start.seconds_bar,
        "too_slow": start.seconds_bar is not None and seconds > start.seconds_bar,
    }


def _print(rows: Sequence[Mapping[str, object]], rounds: int) -> None:
    print(f"Start-up: time of the processor, median of {rounds}")
    print(f"{'':32} {'seconds':>8} {'to pass':>8} {'to lance_namespace':>19} {'may be':>7}")
    for row in rows:
        bar = "" if row["bar"] is None else f"{row['bar']}"
        late = "  too slow" if row["too_slow"] else ""
        print(
            f"{row['name']:32} {row['seconds']:8} {row['to_pass']:8} {row['to_interface']:19} "
            f"{bar:>7}{late}"
        )


if __name__ == "__main__":
    sys.exit(main())
