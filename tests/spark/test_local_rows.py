"""Reads that need no task give the rows of tasks, and of Spark on Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .tables import (
    CHANGED,
    COLUMNS,
    EVERYTHING,
    LOCAL_ROWS,
    QUERIES,
    ROWS,
    Pair,
    dataset_of,
    generated,
    unity_catalog,
)
from .test_pushdown import predicates

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#what-is-pushed-down")]

LOCAL_BYTES = "spark.lance_bridge.local.bytes"


@pytest.fixture(scope="module")
def pair(spark: Any, all_types: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("local")
    spark.read.parquet(all_types).createOrReplaceTempView("local_base")
    spark.sql(CHANGED.format(base="local_base")).createOrReplaceTempView("local_changed")
    with unity_catalog(spark, "local", directory) as catalog:
        table = f"{catalog}.db.t"
        spark.sql(f"CREATE TABLE {table} AS SELECT * FROM local_base")
        dataset = dataset_of(spark, table)
        dataset.create_scalar_index("id", "BTREE")
        spark.sql(f"DELETE FROM {table} WHERE pmod(id, 7) = 3")
        spark.sql(f"UPDATE {table} SET s = 'changed', d = double('NaN') WHERE id % 5 = 0")
        yield Pair(spark, table, "local_changed", dataset)


def test_queries_give_the_rows_of_parquet(pair: Pair) -> None:
    for query in (EVERYTHING, *QUERIES):
        check_local(pair, query)


def check_local(pair: Pair, query: str) -> None:
    assert pair.is_local(query), query
    pair.check(query)


def estimate(pair: Pair, query: str) -> int:
    """Return how many bytes Spark's optimizer takes a read to have."""
    plan = pair.spark.sql(query.format(t=pair.table))._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


@pytest.mark.parametrize(
    "examples", [pytest.param(8, id="some"), pytest.param(150, id="many", marks=pytest.mark.slow)]
)
def test_random_predicates_give_the_rows_of_parquet(pair: Pair, examples: int) -> None:
    @generated(examples)
    @given(predicates(), st.sampled_from(sorted(COLUMNS)))
    def compare(predicate: str, column: str) -> None:
        pair.check(f"SELECT id, {column}, a FROM {{t}} WHERE {predicate} ORDER BY id")

    compare()


def test_few_rows_by_an_index_or_a_limit_are_local_and_many_are_not(pair: Pair) -> None:
    spark, table = pair.spark, f"{pair.table}_indexed"
    spark.sql(f"CREATE TABLE {table} AS SELECT * FROM {pair.expected}")
    indexed = Pair(spark, table, pair.expected, dataset_of(spark, table))
    indexed.dataset.create_scalar_index("id", "BTREE")
    with indexed.set_conf(LOCAL_ROWS, "5"):
        few, some = "id BETWEEN 30 AND 40", "id BETWEEN 30 AND 80"
        sizes = [estimate(indexed, f"SELECT id FROM {{t}} WHERE {each}") for each in (few, some)]
        assert 4 * sizes[0] < sizes[1]
    with indexed.set_conf(LOCAL_ROWS, "20"):
        for where in ("id = 5", "id IN (1, 2, 8)", "id BETWEEN 30 AND 40", "id = 5 OR id > 112"):
            check_local(indexed, f"SELECT * FROM {{t}} WHERE {where} ORDER BY id")
        check_local(indexed, "SELECT count(*), sum(i) FROM {t} WHERE id < 15")
        assert indexed.is_local("SELECT * FROM {t} LIMIT 7")
        assert len(indexed.rows("SELECT * FROM {t} LIMIT 7")) == 7
        for tasks in ("SELECT id FROM {t} WHERE id > 5 ORDER BY id", "SELECT id FROM {t}"):
            assert not indexed.is_local(tasks)
            assert sorted(indexed.rows(tasks)) == sorted(indexed.rows(tasks, pair.expected))
        assert not indexed.is_local("SELECT id FROM {t} WHERE i = 7")
        assert not indexed.is_local("SELECT id FROM {t} LIMIT 21")
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 5")
        assert len(indexed.rows("SELECT id FROM {t} WHERE id = 5")) == 2
    with indexed.set_conf(LOCAL_BYTES, "100"):
        assert not indexed.is_local("SELECT * FROM {t} WHERE id IN (1, 2, 8)")
    with indexed.set_conf(LOCAL_ROWS, "0"):
        assert not indexed.is_local("SELECT id FROM {t} WHERE id = 5")


def test_versions_branches_and_row_ids_are_those_of_tasks(pair: Pair) -> None:
    pair.dataset.create_branch("b", reference=1)
    queries = [
        "SELECT * FROM {t} VERSION AS OF 1 ORDER BY id",
        "SELECT * FROM {t} WITH (`branch` = 'b') ORDER BY id",
        "SELECT id, _rowid, _rowaddr FROM {t} ORDER BY id",
        "SELECT _rowid FROM {t} WHERE id = 8",
    ]
    for query in queries:
        assert pair.is_local(query)
        local = pair.rows(query)
        with pair.set_conf(LOCAL_ROWS, "0"):
            assert not pair.is_local(query)
            assert local == pair.rows(query), query
    assert len(pair.rows("SELECT id FROM {t} VERSION AS OF 1")) == ROWS


def test_searches_are_those_of_tasks(pair: Pair) -> None:
    table = f"{pair.table}_searched"
    pair.spark.sql(
        f"CREATE TABLE {table} TBLPROPERTIES ('vector.v' = '2') AS "
        f"SELECT id, s, array(float(id), float(id % 3)) AS v FROM {pair.expected}"
    )
    query = (
        f"SELECT id, _distance FROM {table} WITH (`nearest.query` = '[30, 1]', "
        "`nearest.column` = 'v', `nearest.k` = 5) ORDER BY _distance, id"
    )
    local = pair.rows(query)
    assert pair.is_local(query)
    with pair.set_conf(LOCAL_ROWS, "0"):
        assert local == pair.rows(query)
    assert len(local) == 5
