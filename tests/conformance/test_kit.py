"""The kit finds what is broken on purpose, and has a case for each operation that catalogs can do.

The adapters are in `tiny.mutants`: a correct one passes, and each mutant of it fails. The list of
operations is that of the trait: what a new release adds fails here until it has a case or a reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from core.memory_catalog import MemoryNamespace
from servers.processes import run_command
from servers.unity import UnityServer

from lance_bridge import catalog_scan
from lance_bridge.operations.data import NEED_ENGINE
from lance_bridge.testing import CatalogSuite, ConformanceSuite, inherited_operations
from lance_bridge.testing.cases import Namespace
from lance_bridge.testing.listings import PartialRightsCases

from .memory_suite import OPERATIONS, REPORT
from .tiny.mutants import GROUPS, all_mutants
from .unity_target import UnityTarget

STATEFUL = "test_random_sequences_of_operations_agree_with_the_model"
MUST_FAIL = {
    "MixesUpThreads": {"test_each_thread_is_answered_about_its_own_table"},
    "ForgetsTheToken": {
        "test_tables_page_by_page_are_the_same_as_at_once",
        "test_limit_one_gives_one_name_and_a_token",
    },
    "RepeatsTheLastName": {
        "test_tables_page_by_page_are_the_same_as_at_once",
        "test_tables_created_between_pages_neither_repeat_nor_hide_others",
    },
    "HidesTables": {"test_tables_page_by_page_are_the_same_as_at_once"},
    "DeletesOnDeregister": {"test_a_deregistered_table_is_gone_and_its_files_stay"},
    "LeavesFilesOnDrop": {"test_a_dropped_table_is_gone_with_its_files"},
    "OverwritesOnExistOk": {"test_create_table_exist_ok_keeps_the_existing_table"},
    "TakesTroubleForAbsence": {"test_operations_on_a_missing_table_are_table_not_found"},
    "SaysNothing": {"test_operations_on_a_missing_table_are_table_not_found"},
    "TakesOneAbsenceForTrouble": {"test_data_of_a_missing_table_is_table_not_found"},
    "MiscountsRows": {"test_count_counts_the_rows_of_a_version"},
    "AppendsOnOverwrite": {"test_rows_are_inserted_merged_updated_and_deleted"},
    "UpdatesEveryRow": {"test_rows_are_inserted_merged_updated_and_deleted"},
    "SearchesOtherwise": {"test_vectors_are_searched_by_the_distance_of_the_request"},
    "WritesBeforeItRefuses": {"test_indices_are_built_and_searched"},
    "DropsMoreColumns": {"test_columns_are_added_altered_and_dropped"},
    "ForgetsTheVersion": {"test_tags_and_branches_are_made_listed_and_deleted"},
    "StaleDeviation": {
        "test_count_counts_the_rows_of_a_version",
        "test_every_declared_deviation_names_a_case",
        "test_data_of_a_missing_table_is_table_not_found",
    },
}
"""Broken namespace to cases that must find it out; all of them must pass on the sound one."""
MODEL_FINDS = [
    "ForgetsTheToken", "RepeatsTheLastName", "DeletesOnDeregister", "LeavesFilesOnDrop",
    "TakesTroubleForAbsence", "MiscountsRows",
]  # fmt: skip
"""Broken namespaces on which random sequences of operations do not agree with the model."""
HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
Case = Callable[[PartialRightsCases, Namespace], None]
CASES = PartialRightsCases


def run_cases(cases: Mapping[str, Collection[str]], directory: Path) -> dict[str, dict[str, str]]:
    """Run cases on broken namespaces and on the sound one; return namespace to case to outcome."""
    report = directory / "report.xml"
    chosen = {f"Test{name}::{case}" for name in cases for case in cases[name]}
    chosen |= {f"TestSound::{case}" for each in cases.values() for case in each}
    tests = [f"{HERE / 'broken_suite.py'}::{name}" for name in sorted(chosen)]
    run = run_pytest(tests, "--tb=no", f"--junitxml={report}", environment={}, seconds=240)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    return read_report(report)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    return run_cases(MUST_FAIL, tmp_path_factory.mktemp("kit"))


@pytest.mark.servers
@pytest.mark.parametrize("name", MUST_FAIL)
def test_the_kit_finds_a_broken_namespace(outcomes: dict[str, dict[str, str]], name: str) -> None:
    found = {case for case, outcome in outcomes[name].items() if outcome == "failed"}
    assert found >= MUST_FAIL[name]


@pytest.mark.servers
def test_the_same_cases_pass_on_a_sound_namespace(outcomes: dict[str, dict[str, str]]) -> None:
    failed = {case for case, outcome in outcomes["Sound"].items() if outcome == "failed"}
    assert not failed


@pytest.mark.slow
def test_random_sequences_find_broken_namespaces(tmp_path: Path) -> None:
    outcomes = run_cases({name: [STATEFUL] for name in MODEL_FINDS}, tmp_path)
    found = {name: outcomes[name][STATEFUL] for name in ["Sound", *MODEL_FINDS]}
    assert found == {"Sound": "passed", **dict.fromkeys(MODEL_FINDS, "failed")}


# -- adapters --------------------------------------------------------------------------------------


CHOSEN = "LANCE_BRIDGE_TEST_MUTANTS"
"""As in `mutants_suite`, which is imported in the other process only."""
CONTROL = "TinyCatalog"
SMALLEST = "namespaces"
"""The group that is tried before each push, with the correct adapter; the others are slow."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "group", [pytest.param(SMALLEST, marks=pytest.mark.servers), *sorted({*GROUPS} - {SMALLEST})]
)
def test_every_wrong_adapter_fails_and_the_correct_one_passes(tmp_path: Path, group: str) -> None:
    own = {n: kind for n, kind in all_mutants().items() if kind.group == group}
    # Not every case is for these adapters: skips are no failures.
    environment, report = {CHOSEN: ",".join(own), "CI": ""}, tmp_path / "report.xml"
    options = ("--tb=no", f"--junitxml={report}")
    run = run_pytest([HERE / "mutants_suite.py"], *options, environment=environment, seconds=280)
    assert report.exists(), run.stdout + run.stderr
    outcomes = read_report(report)
    control = Counter(outcomes[CONTROL].values())
    assert (control["failed"], control["passed"] > 100) == (0, True)
    missed = [name for name in own if "failed" not in outcomes[name].values()]
    assert missed == [], [f"{name}: {own[name].__doc__}" for name in missed]


@pytest.mark.servers
def test_there_are_mutants_enough() -> None:
    assert len(all_mutants()) >= 115


@pytest.mark.servers
@pytest.mark.parametrize("suite", [CatalogSuite, ConformanceSuite])
def test_no_group_of_cases_hides_a_case_of_another(suite: type) -> None:
    defined = Counter(
        name for kind in suite.__mro__ for name in vars(kind) if name.startswith("test_")
    )
    assert [name for name, times in defined.items() if times > 1] == []


# -- suites that are not collected by themselves, run by pytest in a new process -------------------


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


# -- operations of the trait -----------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The suite on the catalog in memory."""

    code: int
    output: str
    answered: frozenset[str]


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the cases in a new process; return which operations gave answers."""
    report = tmp_path_factory.mktemp("operations") / "answered.json"
    environment = {REPORT: str(report)}
    suite = [HERE / "memory_suite.py"]
    done = run_pytest(suite, "--tb=short", environment=environment, seconds=280)
    answered = frozenset(json.loads(report.read_text())) if report.exists() else frozenset()
    return Run(done.returncode, done.stdout + done.stderr, answered)


def without_a_case(trait: Iterable[str], answered: Iterable[str]) -> list[str]:
    """Return the operations that no case has had an answer from, and no reason excuses."""
    return sorted(set(trait) - set(answered) - set(NEED_ENGINE))


@pytest.mark.servers
def test_the_kit_passes_on_a_catalog_in_memory(operations: Run) -> None:
    assert operations.code == pytest.ExitCode.OK, operations.output


@pytest.mark.servers
def test_every_operation_of_the_trait_is_answered_in_a_case_or_has_a_reason(
    operations: Run,
) -> None:
    assert len(OPERATIONS) >= 56
    assert without_a_case(OPERATIONS, operations.answered) == []
    assert without_a_case([*OPERATIONS, "sing_to_table"], operations.answered) == ["sing_to_table"]


@pytest.mark.servers
def test_the_reasons_are_of_operations_that_exist_and_are_not_answered(operations: Run) -> None:
    assert set(NEED_ENGINE) <= OPERATIONS
    assert not set(NEED_ENGINE) & operations.answered
    assert inherited_operations(MemoryNamespace) == frozenset(NEED_ENGINE)


# -- users with a part of the rights ---------------------------------------------------------------


@pytest.fixture
def target(tmp_path: Path) -> Iterator[UnityTarget]:
    with UnityServer() as server:
        yield UnityTarget(server, str(tmp_path))


@pytest.fixture
def user(target: UnityTarget) -> Iterator[Namespace]:
    user = Namespace(target, target.second_user())
    yield user
    user.close()


@pytest.mark.quick
@pytest.mark.spec("common.md#what-listings-omit")
@pytest.mark.parametrize(
    "case",
    [
        CASES.test_drop_sees_a_shared_location_in_an_unlisted_namespace,
        CASES.test_drop_sees_a_shallow_clone_in_an_unlisted_namespace,
    ],
)
def test_a_scan_that_reads_only_what_is_listed_fails(
    user: Namespace, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    listed = catalog_scan.innermost_namespaces

    def forgetful(catalog: Any, parent: Any = (), unreadable: Any = None, **_: Any) -> object:
        return listed(catalog, parent, unreadable)

    monkeypatch.setattr(catalog_scan, "innermost_namespaces", forgetful)
    with pytest.raises(AssertionError, match="but the call succeeded"):
        case(CASES(), user)


@pytest.mark.quick
@pytest.mark.spec("common.md#what-listings-omit")
def test_a_scan_that_asks_for_no_entry_by_its_name_fails(
    target: UnityTarget, user: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_scan, "entries_named_by", lambda *_: [])
    ns = Namespace(target)
    with pytest.raises(AssertionError, match="but the call succeeded"):
        CASES().test_drop_keeps_the_files_of_a_table_that_the_user_may_not_see(ns, user)
    ns.close()
