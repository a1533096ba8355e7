"""SQL statements at the same time lose no row and double none, and a failed one changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from lance_namespace import CreateNamespaceRequest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from servers.metastores import Metastores

from lance_bridge_spark.addresses import catalogs_of
from lance_bridge_spark.registration import register

from .concurrency import run_concurrently

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.matrix]
STATEMENTS = 3


@pytest.fixture(scope="module")
def namespace(spark: SparkSession, metastores: Metastores) -> Iterator[str]:
    """A database of a Hive catalog in the session."""
    register(spark, {"racing": {"impl": "hive", "uri": metastores.get("2.3").uri}})
    catalog = catalogs_of(spark)["racing"].connect()
    catalog.create_namespace(CreateNamespaceRequest(id=["races"], mode="exist_ok"))
    yield "racing.races"
    spark.sql("DROP NAMESPACE racing.races CASCADE")


def counted(spark: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row.k, row.n) for row in spark.sql(f"SELECT k, n FROM {table}").collect())


def counters(spark: SparkSession, namespace: str, name: str) -> str:
    """Return a table of ten counters at nought."""
    table = f"{namespace}.{name}"
    spark.sql(f"CREATE TABLE {table} AS SELECT id AS k, CAST(0 AS BIGINT) AS n FROM range(10)")
    return table


def race(spark: SparkSession, statements: list[str]) -> list[int]:
    """Run statements at once, and return those that did what they should; losers say why not."""
    errors = run_concurrently(spark, [partial(spark.sql, each) for each in statements])
    for error in errors:
        lost = ("CONCURRENT_MODIFICATION", "ALREADY_EXISTS")
        assert error is None or any(word in str(error) for word in lost), error
    return [number for number, error in enumerate(errors) if error is None]


def test_of_creators_at_the_same_time_one_has_its_rows(spark: SparkSession, namespace: str) -> None:
    table = f"{namespace}.created"
    create = f"CREATE TABLE {table} AS SELECT id AS k, {{}} AS n FROM range(10)"
    (winner,) = race(spark, [create.format(n) for n in range(STATEMENTS)])
    assert counted(spark, table) == [(k, winner) for k in range(10)]


def test_inserts_at_the_same_time_lose_no_rows(spark: SparkSession, namespace: str) -> None:
    table = counters(spark, namespace, "inserted")
    insert = f"INSERT INTO {table} SELECT id, {{}} FROM range(10)"
    assert len(race(spark, [insert.format(n + 1) for n in range(STATEMENTS)])) == STATEMENTS
    assert counted(spark, table) == [(k, n) for k in range(10) for n in range(STATEMENTS + 1)]


def test_updates_at_the_same_time_each_count_once_or_fail(
    spark: SparkSession, namespace: str
) -> None:
    table = counters(spark, namespace, "updated")
    done = race(spark, [f"UPDATE {table} SET n = n + 1 WHERE k < 5"] * STATEMENTS)
    assert done
    assert counted(spark, table) == [(k, len(done) if k < 5 else 0) for k in range(10)]


def test_merges_at_the_same_time_insert_a_key_once(spark: SparkSession, namespace: str) -> None:
    table = counters(spark, namespace, "merged")
    merge = (
        f"MERGE INTO {table} t USING (SELECT id AS k FROM range(5, 15)) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET t.n = t.n + 1 WHEN NOT MATCHED THEN INSERT (k, n) "
        "VALUES (s.k, 1)"
    )
    done = race(spark, [merge] * STATEMENTS)
    assert done
    assert counted(spark, table) == [(k, 0 if k < 5 else len(done)) for k in range(15)]


def test_a_statement_that_fails_leaves_the_table_as_it_was(
    spark: SparkSession, namespace: str
) -> None:
    table = counters(spark, namespace, "failed")
    bad = "IF(t.k = 7, CAST(raise_error('a bad row') AS BIGINT), t.n + 1)"
    statements = (
        f"UPDATE {table} t SET n = {bad}",
        f"INSERT OVERWRITE {table} SELECT k, {bad} FROM {table} t",
        f"MERGE INTO {table} t USING (SELECT id AS k FROM range(20)) s ON t.k = s.k "
        f"WHEN MATCHED THEN UPDATE SET t.n = {bad} "
        "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, 1)",
    )
    for statement in statements:
        with pytest.raises(PySparkException, match="a bad row"):
            spark.sql(statement)
        assert counted(spark, table) == [(k, 0) for k in range(10)], statement
