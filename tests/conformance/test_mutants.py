"""The kit finds wrong adapters: a correct one passes, and each mutant of it fails.

The mutants are in `tiny.mutants`. A sample is tried here, all of them by `make test-slow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from lance_bridge.testing import CatalogSuite, ConformanceSuite

from .inner_pytest import HERE, read_report, run_pytest
from .tiny.mutants import GROUPS, all_mutants

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


def check_mutants(mutants: Collection[str], report: Path) -> None:
    """Require that the correct adapter passes the suite, and that each of these mutants fails."""
    environment = {CHOSEN: ",".join(mutants)}
    environment["CI"] = ""  # not every case is for this adapter: its skips are no failures
    more = ["--tb=no", f"--junitxml={report}"]
    suite = [HERE / "mutants_suite.py"]
    run = run_pytest(suite, *more, environment=environment, seconds=280)
    assert report.exists(), run.stdout + run.stderr
    outcomes = read_report(report)
    control = Counter(outcomes[CONTROL].values())
    assert (control["failed"], control["passed"] > 120) == (0, True)
    missed = [name for name in mutants if "failed" not in outcomes[name].values()]
    assert missed == [], [f"{name}: {all_mutants()[name].__doc__}" for name in missed]


@pytest.mark.slow
def test_wrong_adapters_fail_and_the_correct_one_passes(tmp_path: Path) -> None:
    check_mutants(SAMPLE, tmp_path / "report.xml")


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_wrong_adapter_fails(tmp_path: Path, group: str) -> None:
    own = [n for n, kind in all_mutants().items() if kind.__module__.endswith(f".{group}")]
    check_mutants(own, tmp_path / "report.xml")


@pytest.mark.servers
def test_there_are_mutants_enough() -> None:
    assert len(all_mutants()) >= 90
    assert set(SAMPLE) <= set(all_mutants())


@pytest.mark.servers
@pytest.mark.parametrize("suite", [CatalogSuite, ConformanceSuite])
def test_no_group_of_cases_hides_a_case_of_another(suite: type) -> None:
    defined = Counter(
        name for kind in suite.__mro__ for name in vars(kind) if name.startswith("test_")
    )
    assert [name for name, times in defined.items() if times > 1] == []
