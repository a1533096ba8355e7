"""Reads that need no task give the rows of tasks, and of Spark on Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .all_types import COLUMNS, ROWS
from .catalogs import unity_catalog
from .sql_change_checks import check_streams_read_and_write_tables_by_name
from .test_predicates import LOCAL_ROWS, predicates

pytestmark = pytest.mark.spark

LOCAL_BYTES = "spark.lance_bridge.local.bytes"
CHANGED = """
    SELECT * EXCEPT (s, d),
        IF(id % 5 = 0, 'changed', s) AS s, IF(id % 5 = 0, double('NaN'), d) AS d
    FROM {base} WHERE pmod(id, 7) <> 3
"""
NAMES = ", ".join(["id", *(name for name in COLUMNS if "." not in name)])
QUERIES = [
    "SELECT count(*), count(s), min(i), max(l), sum(b) FROM {t} WHERE i > 0",
    "SELECT s, count(*) FROM {t} WHERE o GROUP BY s ORDER BY s",
    "SELECT count(*) FROM (SELECT 1 FROM {t} WHERE id < 40)",
    "SELECT a.id, b.s FROM {t} a JOIN {t} b ON a.id = b.id + 1 WHERE b.i IS NULL ORDER BY a.id",
    "SELECT id FROM {t} WHERE upper(s) = 'AB' AND id > 5 ORDER BY id",
    "SELECT id, st.in.z FROM {t} WHERE st.x = 1 ORDER BY id",
    "SELECT id FROM {t} WHERE id IN (SELECT id + 1 FROM {t} WHERE d = -0.0D) ORDER BY id",
    "SELECT id FROM {t} WHERE id < 0",
]


@dataclass(frozen=True)
class Pair:
    """The same rows in a table of Lance and in Parquet, after the same changes."""

    spark: Any
    table: str
    expected: str
    dataset: lance.LanceDataset

    def rows(self, query: str, table: str | None = None) -> list[str]:
        """Return the rows as texts, in which one NaN is like another."""
        return list(map(str, self.spark.sql(query.format(t=table or self.table)).collect()))

    def is_local(self, query: str) -> bool:
        """Return whether Lance is read without a task."""
        frame = self.spark.sql(query.format(t=self.table))
        plan = frame._jdf.queryExecution().sparkPlan().toString()
        assert ("LocalTableScan" in plan) != ("BatchScan" in plan), plan
        return "LocalTableScan" in plan

    def estimate(self, query: str) -> int:
        """Return how many bytes Spark's optimizer takes a read to have."""
        plan = self.spark.sql(query.format(t=self.table))._jdf.queryExecution().optimizedPlan()
        return int(str(plan.stats().sizeInBytes()))

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        self.spark.conf.set(name, value)
        try:
            yield
        finally:
            self.spark.conf.unset(name)


@pytest.fixture(scope="module")
def pair(spark: Any, all_types: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("local")
    spark.read.parquet(all_types).createOrReplaceTempView("local_base")
    spark.sql(CHANGED.format(base="local_base")).createOrReplaceTempView("local_changed")
    with unity_catalog(spark, "local", directory) as catalog:
        table = f"{catalog}.db.t"
        spark.sql(f"CREATE TABLE {table} AS SELECT * FROM local_base")
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        [location] = [row[1] for row in rows if row[0] == "Location"]
        dataset = lance.dataset(location)
        dataset.create_scalar_index("id", "BTREE")
        spark.sql(f"DELETE FROM {table} WHERE pmod(id, 7) = 3")
        spark.sql(f"UPDATE {table} SET s = 'changed', d = double('NaN') WHERE id % 5 = 0")
        yield Pair(spark, table, "local_changed", dataset)


def _check(pair: Pair, query: str) -> None:
    assert pair.is_local(query), query
    assert pair.rows(query) == pair.rows(query, pair.expected), query


def test_values_of_every_type_come_as_from_parquet(pair: Pair) -> None:
    _check(pair, f"SELECT {NAMES}, st, a, m, deep, span FROM {{t}} ORDER BY id")


def test_queries_give_the_rows_of_parquet(pair: Pair) -> None:
    for query in QUERIES:
        _check(pair, query)


@pytest.mark.parametrize(
    "examples", [pytest.param(8, id="some"), pytest.param(150, id="many", marks=pytest.mark.slow)]
)
def test_random_predicates_give_the_rows_of_parquet(pair: Pair, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(predicates(), st.sampled_from(sorted(COLUMNS)))
    def compare(predicate: str, column: str) -> None:
        query = f"SELECT id, {column}, a FROM {{t}} WHERE {predicate} ORDER BY id"
        assert pair.rows(query) == pair.rows(query, pair.expected), query

    compare()


def test_few_rows_by_an_index_or_a_limit_are_local_and_many_are_not(pair: Pair) -> None:
    spark, table = pair.spark, f"{pair.table}_indexed"
    spark.sql(f"CREATE TABLE {table} AS SELECT * FROM {pair.expected}")
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    [location] = [row[1] for row in rows if row[0] == "Location"]
    lance.dataset(location).create_scalar_index("id", "BTREE")
    indexed = Pair(spark, table, pair.expected, lance.dataset(location))
    with indexed.setting(LOCAL_ROWS, "5"):
        few, some = "id BETWEEN 30 AND 40", "id BETWEEN 30 AND 80"
        sizes = [indexed.estimate(f"SELECT id FROM {{t}} WHERE {each}") for each in (few, some)]
        assert 4 * sizes[0] < sizes[1]
    with indexed.setting(LOCAL_ROWS, "20"):
        for where in ("id = 5", "id IN (1, 2, 8)", "id BETWEEN 30 AND 40", "id = 5 OR id > 112"):
            _check(indexed, f"SELECT * FROM {{t}} WHERE {where} ORDER BY id")
        _check(indexed, "SELECT count(*), sum(i) FROM {t} WHERE id < 15")
        assert indexed.is_local("SELECT * FROM {t} LIMIT 7")
        assert len(indexed.rows("SELECT * FROM {t} LIMIT 7")) == 7
        for tasks in ("SELECT id FROM {t} WHERE id > 5 ORDER BY id", "SELECT id FROM {t}"):
            assert not indexed.is_local(tasks)
            assert sorted(indexed.rows(tasks)) == sorted(indexed.rows(tasks, pair.expected))
        assert not indexed.is_local("SELECT id FROM {t} WHERE i = 7")
        assert not indexed.is_local("SELECT id FROM {t} LIMIT 21")
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 5")
        assert len(indexed.rows("SELECT id FROM {t} WHERE id = 5")) == 2
    with indexed.setting(LOCAL_BYTES, "100"):
        assert not indexed.is_local("SELECT * FROM {t} WHERE id IN (1, 2, 8)")
    with indexed.setting(LOCAL_ROWS, "0"):
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
        with pair.setting(LOCAL_ROWS, "0"):
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
    with pair.setting(LOCAL_ROWS, "0"):
        assert local == pair.rows(query)
    assert len(local) == 5


@pytest.mark.slow
def test_a_stream_of_a_small_table_reads_what_comes_later(pair: Pair) -> None:
    catalog, namespace, _ = pair.table.split(".")
    check_streams_read_and_write_tables_by_name(pair.spark, catalog, namespace)
