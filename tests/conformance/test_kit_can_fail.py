"""The kit finds what is broken: chosen cases fail on namespaces that are broken on purpose."""

from __future__ import annotations

import pytest

from .inner_pytest import HERE, read_report, run_pytest

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
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Run the chosen cases on all broken namespaces; return namespace to case to outcome."""
    report = tmp_path_factory.mktemp("kit") / "report.xml"
    chosen = {f"Test{name}::{case}" for name, cases in MUST_FAIL.items() for case in cases}
    chosen |= {f"TestSound::{case}" for cases in MUST_FAIL.values() for case in cases}
    tests = [f"{HERE / 'broken_suite.py'}::{name}" for name in sorted(chosen)]
    run = run_pytest(tests, "--tb=no", f"--junitxml={report}", environment={}, seconds=240)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    return read_report(report)


@pytest.mark.parametrize("name", MUST_FAIL)
def test_the_kit_finds_a_broken_namespace(outcomes: dict[str, dict[str, str]], name: str) -> None:
    found = {case for case, outcome in outcomes[name].items() if outcome == "failed"}
    assert found >= MUST_FAIL[name]


def test_the_same_cases_pass_on_a_sound_namespace(outcomes: dict[str, dict[str, str]]) -> None:
    failed = {case for case, outcome in outcomes["Sound"].items() if outcome == "failed"}
    assert not failed
