"""Start-up: the command's help and completion, the package, and a worker of Spark.

Each runs in a new process, alternating with ``python -c pass`` and ``import lance_namespace``.
Times are of the processor, which other work on the machine changes least. A missed limit exits
with 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from bench.runner import Operation, Row, Timed, at_least, make_row, take_turns

_MAIN = "import sys; sys.argv[0] = 'lance-bridge'; from lance_bridge_cli import main; main()"
_COMPLETION = {
    "_LANCE_BRIDGE_COMPLETE": "complete_bash",
    "COMP_CWORD": "1",
    "COMP_WORDS": "lance-bridge met",
}
_PASS, _INTERFACE = "python -c pass", "import lance_namespace"


class Start(NamedTuple):
    """A process to measure, and its limit of CPU seconds."""

    program: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    bar: str | None = None

    def run(self, _turn: int) -> Timed:
        """Run it; return the CPU seconds of it and its children."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", self.program, *self.arguments],
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Timed(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


_GROUPS = ((), ("catalogs",), ("config",), ("table",), ("maintain",), ("migrate",))
STARTS = {
    _PASS: Start("pass"),
    _INTERFACE: Start("import lance_namespace"),
    "import lance_bridge": Start("import lance_bridge", bar="<= 0.1"),
    **{
        " ".join(("lance-bridge", *group, "--help")): Start(_MAIN, (*group, "--help"), bar="<= 0.3")
        for group in _GROUPS
    },
    "completion of a command": Start(_MAIN, environment=_COMPLETION, bar="<= 0.3"),
    "what a worker imports beside us": Start(
        "import lance_namespace, lance, pyspark.sql.datasource"
    ),
    "a worker of Spark": Start("import lance_bridge_spark.source.writer"),
}


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--rounds", type=at_least(1), default=7, help="of all processes")


def measure(options: argparse.Namespace) -> Row:
    """Measure all processes in turns."""
    operations = [
        Operation(name, {"process": start.run}, lambda *_: True) for name, start in STARTS.items()
    ]
    figures = take_turns(operations, options.rounds, rehearsals=0)
    medians = {name: statistics.median(found.seconds["process"]) for name, found in figures.items()}
    rows = []
    for name, found in medians.items():
        values = {
            "name": name,
            "seconds": round(found, 3),
            "to_pass": round(found / medians[_PASS], 1),
            "to_interface": round(found / medians[_INTERFACE], 2),
        }
        bar = STARTS[name].bar
        rows.append(make_row(values, {"seconds": bar} if bar else {}, 0))
    return {"starts": rows}
