"""Tables of Lance are written as Parquet by a real session, and taken back."""

from __future__ import annotations

import pytest
from migrate import export_checks as checks
from migrate.sessions import Checker

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_table_is_exported_verified_and_taken_back(beside_hive: Checker) -> None:
    beside_hive(checks.check_tables_are_exported_verified_and_taken_back)


def test_the_version_of_the_plan_is_exported_or_nothing(beside_hive: Checker) -> None:
    beside_hive(checks.check_the_version_of_the_plan_is_exported)


def test_what_cannot_be_exported_is_in_the_plan(beside_hive: Checker) -> None:
    beside_hive(checks.check_what_cannot_be_is_in_the_plan)


def test_files_and_tables_of_others_are_left_alone(
    beside_hive: Checker,
) -> None:
    beside_hive(checks.check_files_of_others_are_neither_overwritten_nor_deleted)


def test_what_another_migration_exported_there_meanwhile_is_left_alone(
    beside_hive: Checker,
) -> None:
    beside_hive(checks.check_what_another_migration_exported_meanwhile_is_left_alone)


def test_what_others_make_while_it_is_written_is_left_alone(beside_hive: Checker) -> None:
    beside_hive(checks.check_what_others_make_while_it_is_written_is_left_alone)


def test_a_rename_that_was_cut_off_is_made_anew(beside_hive: Checker) -> None:
    beside_hive(checks.check_a_rename_that_was_cut_off_is_made_anew)


def test_differences_are_found(beside_hive: Checker) -> None:
    beside_hive(checks.check_differences_are_found)


@pytest.mark.slow
def test_killed_at_any_moment_and_run_again_each_row_is_there_once(beside_hive: Checker) -> None:
    beside_hive(checks.check_killed_at_every_moment)


def test_ctrl_c_ends_what_spark_is_doing_and_the_next_run_goes_on(beside_hive: Checker) -> None:
    beside_hive(checks.check_ctrl_c_ends_what_spark_is_doing)


def test_of_several_at_once_one_fails_and_the_others_are_done(beside_hive: Checker) -> None:
    beside_hive(checks.check_several_at_once_of_which_one_fails)
