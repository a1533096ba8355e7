"""The kit finds wrong adapters: a correct one passes, and mutants of it do not.

The mutants are in `tiny.mutants`. A sample is tried here, all of them by `make test-slow`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lance_bridge.testing import CatalogSuite, ConformanceSuite

from .tiny.mutants import GROUPS, all_mutants

SUITE = Path(__file__).with_name("mutants_suite.py")
REPOSITORY = SUITE.parents[2]
CHOSEN = "LANCE_BRIDGE_TEST_MUTANTS"
"""As in `mutants_suite`, which is imported in the other process only."""
CONTROL = "TinyCatalog"
SAMPLE = (
    "TenTables",
    "EndsWhereItBreaks",
    "CutsValues",
    "LosesReservedProperties",
    "AlwaysExternal",
    "OneIdentity",
    "ComparesInTheClient",
    "BusyIsMissing",
    "LostIsMade",
    "OneConnection",
    "FirstPageOfPartitions",
)
"""One of each idea, among them all that adapters passed the kit with before this suite."""


@dataclass(frozen=True)
class Outcome:
    """What the suite said of adapters: the cases that failed, by the adapter's name."""

    failed: dict[str, list[str]]
    passed: Counter[str]

    @property
    def missed(self) -> list[str]:
        """The mutants that passed, with what is wrong with them."""
        names = [name for name, cases in self.failed.items() if not cases and name != CONTROL]
        return [f"{name}: {all_mutants()[name].__doc__}" for name in names]


def run_suite(mutants: Collection[str], report: Path) -> Outcome:
    """Put the correct adapter and these mutants through the suite, in a process of its own."""
    command = [sys.executable, "-m", "pytest", str(SUITE), "-c", os.devnull, "-q", "--tb=no"]
    command += ["--rootdir", str(REPOSITORY), "--import-mode=importlib", "-p", "no:cacheprovider"]
    paths = [str(REPOSITORY / name) for name in ("core", "adapters", "apps", "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), CHOSEN: ",".join(mutants)}
    environment["CI"] = ""  # not every case is for this adapter: its skips are no failures
    run = subprocess.run(
        [*command, f"--junitxml={report}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert report.exists(), run.stdout + run.stderr
    failed: dict[str, list[str]] = {name: [] for name in (CONTROL, *mutants)}
    passed: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["classname"].rpartition(".Test")[2]
        if case.find("failure") is not None or case.find("error") is not None:
            failed[name].append(case.attrib["name"])
        elif case.find("skipped") is None:
            passed[name] += 1
    return Outcome(failed, passed)


def require_good(outcome: Outcome) -> None:
    assert outcome.failed[CONTROL] == []
    assert outcome.passed[CONTROL] > 120
    assert outcome.missed == []


def test_wrong_adapters_fail_and_the_correct_one_passes(tmp_path: Path) -> None:
    require_good(run_suite(SAMPLE, tmp_path / "report.xml"))


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_wrong_adapter_fails(tmp_path: Path, group: str) -> None:
    own = [n for n, kind in all_mutants().items() if kind.__module__.endswith(f".{group}")]
    require_good(run_suite(own, tmp_path / "report.xml"))


def test_there_are_mutants_enough() -> None:
    assert len(all_mutants()) >= 90
    assert set(SAMPLE) <= set(all_mutants())


@pytest.mark.parametrize("suite", [CatalogSuite, ConformanceSuite])
def test_no_group_of_cases_hides_a_case_of_another(suite: type) -> None:
    defined = Counter(
        name for kind in suite.__mro__ for name in vars(kind) if name.startswith("test_")
    )
    assert [name for name, times in defined.items() if times > 1] == []
