"""Procedures that run Spark jobs from the Python process of the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from .processes import kill, the_pid
from .sql_helpers import set_conf
from .tables import unity_catalog

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("spark.md#procedures", "spark.md#the-python-process-of-the-driver"),
]

GROUP = "spark.jobGroup.id"


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with unity_catalog(spark, "worked", tmp_path_factory.mktemp("worked")) as name:
        yield name


def made(spark: Any, catalog: str, name: str) -> str:
    """Make a table of four ids, and return its name."""
    spark.sql(f"CREATE TABLE {catalog}.db.{name} AS SELECT id FROM range(4)")
    return f"{catalog}.db.{name}"


def backfill(session: Any, catalog: str, table: str, expression: str) -> list[int]:
    """Set a column, and return its values."""
    session.sql(f"CALL {catalog}.system.backfill('{table}', 'found', '{expression}')")
    rows = session.sql(f"SELECT found FROM {table} ORDER BY id").collect()
    return [row.found for row in rows]


def test_a_job_is_in_the_job_group_of_its_statement(spark: Any, catalog: str) -> None:
    table, context = made(spark, catalog, "grouped"), spark.sparkContext
    context.setJobGroup("of a statement", "a backfill")
    try:
        spark.sql(f"CALL {catalog}.system.backfill('{table}', 'found', 'id')")
    finally:
        context.setLocalProperty(GROUP, None)
    jobs = list(context.statusTracker().getJobIdsForGroup("of a statement"))
    assert jobs
    assert backfill(spark, catalog, table, "id + 1") == [1, 2, 3, 4]
    assert list(context.statusTracker().getJobIdsForGroup("of a statement")) == jobs


def test_jobs_run_in_a_process_that_replaced_another(spark: Any, catalog: str) -> None:
    table = made(spark, catalog, "replaced")
    assert backfill(spark, catalog, table, "id") == [0, 1, 2, 3]
    kill(the_pid(spark))
    assert backfill(spark, catalog, table, "id * 2") == [0, 2, 4, 6]


def test_a_job_may_take_longer_than_other_calls(spark: Any, catalog: str) -> None:
    table = made(spark, catalog, "slow")

    def wait(value: int) -> int:
        time.sleep(0.5)
        return value

    spark.udf.register("slow", wait, "long")
    with set_conf(spark, "spark.lance_bridge.service.timeout", "1s"):
        spark.sql(f"CALL {catalog}.system.backfill('{table}', 'found', 'slow(id)')")
    rows = spark.sql(f"SELECT found FROM {table} ORDER BY id").collect()
    assert [row.found for row in rows] == [0, 1, 2, 3]
