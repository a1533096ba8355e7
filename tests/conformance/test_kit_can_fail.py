"""The kit finds what is broken: chosen cases fail on namespaces that are broken on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

SUITE = Path(__file__).with_name("broken_suite.py")
REPOSITORY = SUITE.parents[2]
STATEFUL = "test_random_sequences_of_operations_agree_with_the_model"

MUST_FAIL = {
    "MixesUpThreads": {"test_each_thread_is_answered_about_its_own_table"},
    "ForgetsTheToken": {
        "test_tables_page_by_page_are_the_same_as_at_once",
        "test_limit_one_gives_one_name_and_a_token",
        STATEFUL,
    },
    "RepeatsTheLastName": {
        "test_tables_page_by_page_are_the_same_as_at_once",
        "test_tables_created_between_pages_neither_repeat_nor_hide_others",
        STATEFUL,
    },
    "HidesTables": {"test_tables_page_by_page_are_the_same_as_at_once"},
    "DeletesOnDeregister": {"test_a_deregistered_table_is_gone_and_its_files_stay", STATEFUL},
    "LeavesFilesOnDrop": {"test_a_dropped_table_is_gone_with_its_files", STATEFUL},
    "OverwritesOnExistOk": {"test_create_table_exist_ok_keeps_the_existing_table"},
    "TakesTroubleForAbsence": {"test_operations_on_a_missing_table_are_table_not_found", STATEFUL},
    "SaysNothing": {"test_operations_on_a_missing_table_are_table_not_found"},
    "TakesOneAbsenceForTrouble": {"test_data_of_a_missing_table_is_table_not_found"},
    "MiscountsRows": {"test_count_counts_all_rows", STATEFUL},
    "AppendsOnOverwrite": {"test_insert_appends_or_overwrites_as_its_mode_says"},
    "UpdatesEveryRow": {"test_update_sets_columns_of_the_rows_that_match"},
    "SearchesOtherwise": {"test_a_search_measures_by_the_distance_type"},
    "WritesBeforeItRefuses": {"test_bad_requests_on_indices_are_refused"},
    "DropsMoreColumns": {"test_columns_are_dropped"},
    "ForgetsTheVersion": {
        "test_a_branch_is_of_the_latest_version_unless_another_is_named",
        "test_bad_requests_on_tags_are_refused",
    },
    "StaleDeviation": {
        "test_count_counts_all_rows",
        "test_every_declared_deviation_names_a_case",
        "test_data_of_a_missing_table_is_table_not_found",
    },
}
"""Broken namespace to cases that must find it out; all of them must pass on the sound one."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bool]]:
    """Run the chosen cases on all broken namespaces; return class to case to whether it passed."""
    report = tmp_path_factory.mktemp("kit") / "report.xml"
    chosen = {f"Test{kind}::{case}" for kind, cases in MUST_FAIL.items() for case in cases}
    chosen |= {f"TestSound::{case}" for cases in MUST_FAIL.values() for case in cases}
    command = [sys.executable, "-m", "pytest", *(f"{SUITE}::{name}" for name in sorted(chosen))]
    command += ["-c", os.devnull, "--rootdir", str(REPOSITORY), "--import-mode=importlib"]
    command += ["-p", "no:cacheprovider", "-q", "--tb=no", f"--junitxml={report}"]
    paths = [str(REPOSITORY / name) for name in ("core", "adapters", "apps", "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    return _read(report)


def _read(report: Path) -> dict[str, dict[str, bool]]:
    found: dict[str, dict[str, bool]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kind = case.attrib["classname"].rpartition(".Test")[2]
        bad = case.find("failure") is not None or case.find("error") is not None
        found.setdefault(kind, {})[case.attrib["name"]] = not bad
    return found


@pytest.mark.parametrize("kind", MUST_FAIL)
def test_the_kit_finds_a_broken_namespace(outcomes: dict[str, dict[str, bool]], kind: str) -> None:
    passed = {case for case in MUST_FAIL[kind] if outcomes[kind][case]}
    assert not passed


def test_the_same_cases_pass_on_a_sound_namespace(outcomes: dict[str, dict[str, bool]]) -> None:
    failed = {case for case, passed in outcomes["Sound"].items() if not passed}
    assert not failed
