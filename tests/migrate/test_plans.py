"""What a plan of tables for Spark finds out, and with how many calls of the metastore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.running import program
from migrate import plan_checks as checks
from migrate.many_tables import make_tables
from migrate.places import Place
from migrate.sessions import Checker
from servers.proxy import ThriftProxy

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(300)]

TABLES = 150


def test_types_of_later_files_are_in_the_plan(beside_hive: Checker) -> None:
    beside_hive(checks.check_types_of_later_files_are_in_the_plan)


def test_rows_of_many_files_are_counted_and_some_types_compared(beside_hive: Checker) -> None:
    beside_hive(checks.check_rows_of_many_files_are_counted_and_some_types_compared)


def test_space_that_is_not_free_is_in_the_plan(beside_hive: Checker) -> None:
    beside_hive(checks.check_space_that_is_not_free_is_in_the_plan)


@pytest.mark.slow
def test_a_plan_asks_the_metastore_for_each_table_once(hive: Place, tmp_path: Path) -> None:
    port = int(hive.properties["uri"].rsplit(":", 1)[1])
    make_tables(port, hive.prefix, tmp_path / "raw", TABLES)
    with ThriftProxy("127.0.0.1", port) as proxy:
        where = ["-p", f"uri={proxy.uri}", "-p", f"root={tmp_path / 'lance'}"]
        what = ["--include", f"{hive.prefix}.*", "--namespace", f"{hive.prefix}_lance"]
        how = ["--state", str(tmp_path / "state"), "--output", "json"]
        done = program("migrate", "convert", "hive", *what, *where, *how, seconds=280)
        assert done.returncode == 0, done.stderr[-3000:]
        calls = proxy.calls
    items = json.loads(done.stdout)["items"]
    assert [item["rows"] for item in items[1:]] == [10] * TABLES
    assert not any(item["problems"] for item in items)
    assert calls["get_table"] <= TABLES, calls
    assert sum(calls.values()) <= TABLES + 60, calls
