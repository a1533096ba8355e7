"""Random tables are converted and exported again, and compared row by row."""

from __future__ import annotations

import pytest
from migrate import property_checks as checks
from migrate.sessions import Checker

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(300)]


def test_random_tables_are_the_same_row_by_row_there_and_back(beside_hive: Checker) -> None:
    beside_hive(checks.check_random_tables_are_the_same_row_by_row)
