"""Tables that were converted get what has come into their sources since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidTableStateError
from migrate import catchup_checks as checks
from migrate import switch_checks
from migrate.building import register_rows
from migrate.places import Place
from migrate.sessions import Checker

from lance_bridge.catalog import TableRecord
from lance_bridge_migrate import Ends, Plan, address_of, targets
from lance_bridge_migrate.ends import bridge_of
from lance_bridge_migrate.kind import Work
from lance_bridge_migrate.kinds import switching
from lance_bridge_migrate.kinds.rounds import CatchUpOptions, is_table_of
from lance_bridge_migrate.plan import Address, Item

SPARK = Address(name="spark")
pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(300)]


def test_rows_with_greater_values_are_added_up_to_those_of_the_plan(beside_hive: Checker) -> None:
    beside_hive(checks.check_by_a_column)


def test_tables_with_renamed_columns_are_caught_up_with(beside_hive: Checker) -> None:
    beside_hive(checks.check_renamed_columns)


def test_rows_that_came_late_are_told(beside_hive: Checker) -> None:
    beside_hive(checks.check_late_rows_are_told)


def test_rows_that_changed_later_are_updated_by_key(beside_hive: Checker) -> None:
    beside_hive(checks.check_by_a_column_with_a_key)


def test_rows_that_a_column_does_not_show_are_told(beside_hive: Checker) -> None:
    beside_hive(checks.check_rows_that_a_column_does_not_show)


def test_columns_of_all_types_tell_new_rows(beside_hive: Checker) -> None:
    beside_hive(checks.check_values_of_all_types)


def test_times_are_the_same_in_another_zone(beside_hive: Checker) -> None:
    beside_hive(checks.check_times_in_another_zone)


def test_partitions_that_are_new_are_added(beside_hive: Checker) -> None:
    beside_hive(checks.check_by_partition)


def test_partitions_that_changed_are_merged_by_key(beside_hive: Checker) -> None:
    beside_hive(checks.check_by_partition_with_a_key)


def test_what_cannot_be_caught_up_with_is_in_the_plan(beside_hive: Checker) -> None:
    beside_hive(checks.check_problems_are_in_the_plan)


def test_rows_of_others_keep_a_round_from_being_planned(beside_hive: Checker) -> None:
    beside_hive(checks.check_rows_of_others_are_noticed)


def test_a_table_of_the_same_name_is_left_alone(beside_hive: Checker) -> None:
    beside_hive(checks.check_a_table_that_was_made_anew_is_left_alone)


def test_the_table_gets_its_final_name_once_nothing_is_missing(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_switch_over)


def test_partitions_that_changed_keep_the_table_from_its_final_name(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_switch_over_by_partition)


def test_a_final_name_that_is_taken_is_left_alone(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_a_name_that_is_taken)


def test_while_writers_go_on_no_row_is_lost_or_there_twice(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_writers_that_go_on)


def test_rows_are_added_once_whenever_it_is_killed(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_rows_that_are_added_while_it_is_killed)


@pytest.mark.slow
def test_rows_are_merged_once_whenever_it_is_killed(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_rows_that_are_merged_while_it_is_killed)


def test_rows_that_others_write_while_it_is_cut_off_stay(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_rows_that_others_write_while_it_is_cut_off)


def test_rounds_are_undone_one_after_the_other_and_others_rows_not(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_others_changes_are_not_undone)


def test_tables_that_a_round_leaves_out_come_with_the_next(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_tables_of_a_round_that_are_left_out_come_with_the_next)


def test_rows_that_the_source_deleted_have_a_round_that_ends(beside_hive: Checker) -> None:
    beside_hive(switch_checks.check_deletions_in_the_source)


def test_a_switch_over_that_died_between_two_entries_is_ended(glue: Place, lake: Path) -> None:
    """Glue renames by a copy: an earlier run may have died before it dropped the old entry."""
    glue.make_namespace()
    path = register_rows(glue, "t_new", lake / "t.lance")
    final = (*path[:-1], "t")
    with glue.connect() as namespace:
        bridge, ends = bridge_of(namespace), Ends(None, namespace, SPARK, address_of(namespace))
        record = bridge.catalog.load_table(path)
        marked = {**record.properties, targets.MARK: "mark"}
        record = targets.replace_properties(bridge, record, marked)
        facts = {"mark_of_table": "mark", "switch_to": "t"}
        work = Work(
            ends,
            Plan(id="id", kind="catch-up", created="", source=SPARK, target=ends.target_address),
            CatchUpOptions(tables=(), by="snapshot"),
            Item(source=("t",), target=path, facts=facts),
            mark="id/0",
            facts={},
            keep=lambda _: None,
            is_repeated=True,
        )
        for old, new, end in (
            (path, final, switching.switch),
            (final, path, switching.switch_back),
        ):
            there = bridge.catalog.load_table(old)
            bridge.catalog.copy_table(there, replace(there, path=new))
            end(work)
            assert targets.found(bridge, old) is None
            assert targets.found(bridge, new) is not None
            end(work)
            assert targets.found(bridge, new) is not None


def test_a_plan_without_a_mark_takes_no_table_for_its_own() -> None:
    item = Item(source=("t",), target=("db", "t"), facts={"mark_of_table": None})
    for properties in ({}, {targets.MARK: "mark"}):
        with pytest.raises(InvalidTableStateError, match="from another table of its name"):
            is_table_of(item, TableRecord(("db", "t"), "/lake/t.lance", properties))
