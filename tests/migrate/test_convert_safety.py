"""Conversions that are killed, stopped, or in the way of others: nobody's rows are lost."""

from __future__ import annotations

import pytest
from migrate import convert_safety_checks as checks
from migrate.sessions import Checker

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(300)]


def test_killed_at_any_moment_and_run_again_each_row_is_there_once(beside_hive: Checker) -> None:
    beside_hive(checks.check_killed_at_every_moment)


def test_rows_of_others_are_not_undone(beside_hive: Checker) -> None:
    beside_hive(checks.check_others_rows_are_not_undone)


def test_a_source_that_changed_since_the_plan_is_refused(beside_hive: Checker) -> None:
    beside_hive(checks.check_a_changed_source_is_refused)


def test_of_several_at_once_one_fails_and_the_others_are_done(beside_hive: Checker) -> None:
    beside_hive(checks.check_several_at_once_of_which_one_fails)


def test_ctrl_c_ends_what_spark_is_doing_and_the_next_run_goes_on(beside_hive: Checker) -> None:
    beside_hive(checks.check_ctrl_c_ends_what_spark_is_doing)


def test_files_and_tables_of_others_are_left_alone(beside_hive: Checker) -> None:
    beside_hive(checks.check_others_files_and_tables_are_left_alone)


def test_a_table_that_others_write_to_before_the_load_is_not_touched(beside_hive: Checker) -> None:
    beside_hive(checks.check_a_table_that_was_written_to_before_the_load_fails)


def test_branches_of_others_are_not_undone(beside_hive: Checker) -> None:
    beside_hive(checks.check_others_branches_are_not_undone)


def test_files_that_others_took_over_are_not_deleted(beside_hive: Checker) -> None:
    beside_hive(checks.check_files_that_others_took_over_are_not_deleted)


def test_a_source_that_changed_while_a_run_was_cut_off_is_refused(beside_hive: Checker) -> None:
    beside_hive(checks.check_a_source_that_changed_while_a_run_was_cut_off_is_refused)


def test_files_of_failed_tasks_are_named_with_the_command_for_them(beside_hive: Checker) -> None:
    beside_hive(checks.check_files_of_failed_tasks_are_named_with_the_command_for_them)
