"""Scans that hand columns to Spark give the rows of scans that hand it rows, and of Parquet."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from .python_processes import SCANS, await_end, kill, pids, the_pid
from .sql_helpers import setting
from .tables import (
    ADAPTIVE,
    CHANGED,
    COLUMNS,
    EVERYTHING,
    LOCAL_ROWS,
    QUERIES,
    Pair,
    dataset_of,
    generated,
    unity_catalog,
)
from .test_pushdown import predicates
from .test_source_spark import table_of_all

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#the-python-process-of-an-executor")]

COLUMNAR = "spark.lance_bridge.columnar"
IDLE = "spark.lance_bridge.service.idle"
# Small batches, so that values outlive the memory that they came in.
CUT = "WITH (`batch_size` = '7', `rows_per_task` = '40')"
SOME_QUERIES = [
    EVERYTHING,
    "SELECT min(s), max(s), max(bi), min(de), max(st), min_by(s, id), max_by(a, id) FROM {t}",
    "SELECT /*+ BROADCAST(b) */ a.id, b.s, b.a FROM {t} a JOIN {t} b ON a.s = b.s "
    "ORDER BY a.id, b.id",
    "SELECT id, e FROM {t} LATERAL VIEW explode(a) AS e ORDER BY id, e",
    "SELECT 1 FROM {t}",
]
MORE_QUERIES = [
    "SELECT sort_array(collect_list(s)), sort_array(collect_set(de)) FROM {t} WHERE upper(s) > ''",
    "SELECT da, max(s), min(bi), sum(de) FROM {t} GROUP BY da ORDER BY da",
    "SELECT id, lag(s) OVER (ORDER BY id), max(s) OVER (ORDER BY id) FROM {t} ORDER BY id",
    "SELECT id, s FROM {t} ORDER BY s, id LIMIT 9",
    "SELECT count(*) FROM {t} WHERE length(s) > 1",
    *QUERIES,
]


@dataclass(frozen=True)
class Ways(Pair):
    """A table of the catalog, which can be read by row, too."""

    catalog: str

    def rows_by_row(self, query: str, table: str | None = None) -> list[str]:
        with self.setting(COLUMNAR, "false"):
            assert not self.is_columnar(query, table)
            return self.rows(query, table)

    def is_columnar(self, query: str, table: str | None = None) -> bool:
        """Return whether tasks hand over columns."""
        # An adaptive plan shows it only when it has run.
        with self.setting(ADAPTIVE, "false"):
            frame = self.spark.sql(query.format(t=table or self.table))
            plan = str(frame._jdf.queryExecution().executedPlan())
        assert "BatchScan" in plan, plan
        return "ColumnarToRow" in plan

    def check(self, query: str) -> None:
        assert self.is_columnar(query), query
        super().check(query)
        assert self.rows_by_row(query) == self.rows(query), query


@pytest.fixture(scope="module")
def ways(spark: Any, all_types: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    directory = tmp_path_factory.mktemp("columnar")
    spark.read.parquet(all_types).createOrReplaceTempView("columnar_base")
    spark.sql(CHANGED.format(base="columnar_base")).createOrReplaceTempView("columnar_changed")
    with unity_catalog(spark, "columnar", directory) as catalog:
        table = f"{catalog}.db.t"
        spark.sql(f"CREATE TABLE {table} AS SELECT * FROM columnar_base WHERE id < 50")
        spark.sql(f"INSERT INTO {table} SELECT * FROM columnar_base WHERE id >= 50")
        # No statement of Spark's: an UPDATE there starts workers and writes whole fragments again.
        rows = dataset_of(spark, table)
        rows.delete("(id % 7 + 7) % 7 = 3")
        rows.update({"s": "'changed'", "d": "CAST('NaN' AS DOUBLE)"}, "id % 5 = 0")
        with setting(spark, LOCAL_ROWS, "0"):
            yield Ways(spark, f"{table} {CUT}", "columnar_changed", rows, catalog)


@pytest.mark.parametrize(
    "queries",
    [
        pytest.param(SOME_QUERIES, id="some"),
        pytest.param(MORE_QUERIES, id="more", marks=pytest.mark.slow),
    ],
)
def test_queries_give_the_rows_of_parquet(ways: Ways, queries: list[str]) -> None:
    for query in queries:
        ways.check(query)


@pytest.mark.parametrize(
    "examples", [pytest.param(3, id="some"), pytest.param(100, id="many", marks=pytest.mark.slow)]
)
def test_random_queries_give_the_rows_of_parquet(ways: Ways, examples: int) -> None:
    @generated(examples)
    @given(predicates(), st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    def compare(predicate: str, columns: set[str]) -> None:
        names = ", ".join(sorted(columns))
        Pair.check(ways, f"SELECT id, {names}, a, m FROM {{t}} WHERE {predicate} ORDER BY id")

    compare()


def test_types_of_lance_alone_come_as_by_row(ways: Ways, tmp_path: Path) -> None:
    table = f"{ways.catalog}.db.types"
    ways.spark.sql(f"CREATE TABLE {table} (id BIGINT)")
    location = dataset_of(ways.spark, table).uri
    rows = lance.dataset(table_of_all(tmp_path)).to_table()
    rows = pa.concat_tables([rows] * 5).append_column("id", pa.array(range(len(rows) * 5)))
    lance.write_dataset(rows, location, mode="overwrite", max_rows_per_file=8)
    lance.dataset(location).delete("id % 6 = 1")
    for query in ("SELECT * FROM {t} ORDER BY id", "SELECT id, _rowid, _rowaddr FROM {t}"):
        for source in (table, f"{table} {CUT}"):
            assert ways.is_columnar(query, source)
            assert sorted(ways.rows(query, source)) == sorted(ways.rows_by_row(query, source))


def test_versions_caches_and_counts_are_those_of_rows(ways: Ways) -> None:
    table = f"{ways.catalog}.db.t"
    assert ways.rows("SELECT id FROM {t} ORDER BY id", f"{table} VERSION AS OF 2") == ways.rows(
        "SELECT id FROM {t} ORDER BY id", "columnar_base"
    )
    cached = ways.spark.sql(EVERYTHING.format(t=ways.table)).cache()
    try:
        for _ in range(2):
            assert list(map(str, cached.collect())) == ways.rows(EVERYTHING, ways.expected)
    finally:
        cached.unpersist()


def test_a_limit_leaves_the_process_to_the_next_scan(ways: Ways) -> None:
    ways.rows("SELECT id FROM {t}")
    before = the_pid(ways.spark, SCANS)
    for _ in range(3):
        assert len(ways.rows("SELECT id, s FROM {t} LIMIT 3")) == 3
        # Spark ends such a scan, because Lance does not know this limit.
        assert len(ways.rows("SELECT id, s FROM {t} WHERE upper(s) <> 'Z' LIMIT 3")) == 3
    assert the_pid(ways.spark, SCANS) == before


def test_an_error_between_batches_is_that_of_lance(ways: Ways) -> None:
    table = f"{ways.catalog}.db.nanoseconds"
    ways.spark.sql(f"CREATE TABLE {table} (id BIGINT)")
    location = dataset_of(ways.spark, table).uri
    moments = pa.array([0] * 50 + [1], pa.timestamp("ns"))
    lance.write_dataset(pa.table({"moment": moments}), location, mode="overwrite")
    query = f"SELECT max(moment) FROM {table} {CUT}"
    assert ways.is_columnar(query)
    with pytest.raises(PySparkException, match=r"LANCE_INVALID_INPUT.*Column 'moment'"):
        ways.spark.sql(query).collect()


def test_a_process_that_ended_is_replaced_and_a_scan_is_never_cut_short(ways: Ways) -> None:
    query = "SELECT id, s FROM {t} ORDER BY id"
    expected = ways.rows(query)
    kill(the_pid(ways.spark, SCANS))
    assert ways.rows(query) == expected

    table = f"{ways.catalog}.db.wide"
    ways.spark.sql(f"CREATE TABLE {table} AS SELECT id, repeat('x', 50000) AS s FROM range(800)")
    source = f"{table} WITH (`batch_size` = '10')"
    pid = the_pid(ways.spark, SCANS)

    def kill_it(text: str) -> int:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return len(text)

    # Python gets 100 rows at a time, and Lance has sent few of the rest when it gets the first.
    ways.spark.udf.register("kill_it", udf(kill_it, "int", useArrow=False))
    cut = f"SELECT sum(kill_it(s)) FROM {source}"
    with pytest.raises(Exception, match="ended in the middle of a scan"):
        ways.spark.sql(cut).collect()
    assert ways.rows(f"SELECT count(s) FROM {source} WHERE length(s) > 5") == ["Row(count(s)=800)"]


def test_a_process_without_scans_ends(ways: Ways) -> None:
    with ways.setting(IDLE, "100ms"):
        ways.rows("SELECT id FROM {t}")
        for pid in pids(ways.spark, SCANS):
            await_end(pid)
    assert len(ways.rows("SELECT id FROM {t}")) > 0


def test_the_setting_is_checked(ways: Ways) -> None:
    with (
        ways.setting(COLUMNAR, "columns"),
        pytest.raises(PySparkException, match=r"LANCE_INVALID_INPUT.*auto, true or false"),
    ):
        ways.rows("SELECT id FROM {t}")


def test_moments_are_those_of_the_session_s_zone(ways: Ways) -> None:
    with ways.setting("spark.sql.session.timeZone", "America/New_York"):
        query = "SELECT id, ts, tn, hour(ts), CAST(ts AS STRING) FROM {t} ORDER BY id"
        ways.check(query)
        assert isinstance(
            ways.spark.sql(f"SELECT max(ts) FROM {ways.table}").first()[0], dt.datetime
        )
