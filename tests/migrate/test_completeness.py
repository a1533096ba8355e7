"""Tables whose files are gone are never converted to fewer rows without a word."""

from __future__ import annotations

import pytest
from migrate import completeness_checks as checks
from migrate.sessions import Checker

from lance_bridge_migrate.plan import Severity
from lance_bridge_migrate.spark import completeness

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(600)]


def test_missing_files_block_the_plan(beside_hive: Checker) -> None:
    beside_hive(checks.check_missing_files_block_the_plan)


def test_files_that_vanish_before_the_run_fail_their_tables(beside_hive: Checker) -> None:
    beside_hive(checks.check_files_that_vanish_fail_the_run)


def test_a_table_without_rows_whose_files_cannot_be_seen_is_blocked() -> None:
    hidden = completeness.Inventory(is_hidden=True)
    [problem] = completeness.problems_of(None, None, hidden, 0)
    assert problem.severity is Severity.BLOCKER
    assert completeness.problems_of(None, None, hidden, 3) == []
    assert completeness.problems_of(None, None, hidden, 0, ignore_statistics=True) == []
