"""Tables that Spark wrote, in a real metastore, become tables of Lance in that metastore."""

from __future__ import annotations

import pytest
from migrate import convert_checks as checks
from migrate import settings_checks
from migrate.sessions import Checker

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_table_is_converted_verified_and_taken_back(beside_hive: Checker) -> None:
    beside_hive(checks.check_parquet_end_to_end)


def test_tables_of_all_formats_are_converted(beside_hive: Checker) -> None:
    beside_hive(checks.check_formats)


def test_directories_and_files_are_converted(beside_hive: Checker) -> None:
    beside_hive(checks.check_paths)


def test_what_does_not_fit_is_in_the_plan(beside_hive: Checker) -> None:
    beside_hive(checks.check_problems_are_in_the_plan)


def test_tables_that_spark_misreads_without_a_word_are_blocked(beside_hive: Checker) -> None:
    beside_hive(checks.check_tables_that_spark_misreads_are_blocked)


def test_files_that_spark_leaves_out_are_told(beside_hive: Checker) -> None:
    beside_hive(checks.check_files_that_spark_leaves_out_are_told)


def test_values_that_are_hard_to_compare_are_the_same(beside_hive: Checker) -> None:
    beside_hive(checks.check_values_that_are_hard_to_compare)


def test_differences_are_found(beside_hive: Checker) -> None:
    beside_hive(checks.check_differences_are_found)


def test_order_indices_properties_and_files_are_as_asked_for(beside_hive: Checker) -> None:
    beside_hive(checks.check_sorting_indices_and_files_are_as_asked_for)


def test_the_catalog_holds_the_versions_where_it_is_to(beside_hive: Checker) -> None:
    beside_hive(checks.check_the_catalog_holds_the_versions_where_it_is_to)


def test_tables_have_settings_of_their_own(beside_hive: Checker) -> None:
    beside_hive(settings_checks.check_tables_have_settings_of_their_own)
