"""Which tests share a worker, and the order in which workers get them."""

from __future__ import annotations

from pathlib import Path

import pytest
from distribution import FIRST, unit_of

pytestmark = pytest.mark.quick

REPOSITORY = Path(__file__).parents[1]


def test_tests_that_share_a_server_or_spark_run_on_one_worker() -> None:
    units = {
        "tests/migrate/test_copy.py::test_a[x::y]": "tests/migrate/",
        "tests/spark/service/test_service_tables.py::test_a": "tests/spark/",
        "tests/conformance/test_hive_2_3.py::TestHive::test_a": "tests/conformance/test_hive_",
        "tests/adapters/hive/test_races.py::test_a": "tests/conformance/test_hive_",
        "tests/conformance/test_glue.py::TestGlue::test_a": "tests/conformance/test_glue.py",
        "tests/core/test_tags.py::test_a": "tests/core/test_tags.py",
    }
    assert {node_id: unit_of(node_id) for node_id in units} == units


def test_what_is_ordered_exists() -> None:
    beginnings = [each for unit in FIRST for each in unit]
    assert [each for each in beginnings if not [*REPOSITORY.glob(f"{each}*")]] == []
