"""A suite that is not collected by itself, run by pytest in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from commands import run_command

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]


def run_pytest(
    tests: Sequence[str | Path], *arguments: str, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run tests without the configuration of the repository, and return the process."""
    command = [sys.executable, "-m", "pytest", *map(str, tests), "-c", os.devnull, "-q"]
    command += ["--rootdir", str(REPOSITORY), "--import-mode=importlib", "-p", "no:cacheprovider"]
    command += ["--tier", "slow"]
    paths = [str(REPOSITORY / name) for name in ("core", "adapters", "apps", "tests")]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return run_command(*command, *arguments, code=None, seconds=seconds, env=given)


def read_report(report: Path) -> dict[str, dict[str, str]]:
    """Return the outcomes in a report of JUnit: class without Test, to case, to its outcome."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "passed"
        if outcome == "passed" and "skipped" in tags:
            outcome = "skipped"
        found[case.attrib["classname"].rpartition(".Test")[2]][case.attrib["name"]] = outcome
    return found
