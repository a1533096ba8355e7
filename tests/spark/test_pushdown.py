"""What the SQL catalog pushes down, predicates, orders and limits, gives the rows of Parquet.

So do scans that hand columns to Spark, as those that hand it rows.
"""

from __future__ import annotations

import datetime as dt
import os
import re
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

from .processes import SCANS, await_end, kill, pids, the_pid
from .sql_helpers import set_conf
from .tables import (
    ADAPTIVE,
    CHANGED,
    COLUMNS,
    EVERYTHING,
    FLOATS,
    LOCAL_ROWS,
    NAMES,
    QUERIES,
    ROWS,
    Pair,
    dataset_of,
    generated,
    unity_catalog,
)
from .test_source_spark import table_of_all

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("spark.md#what-is-pushed-down", "spark.md#the-python-process-of-an-executor"),
]

ELIMINATION = "spark.sql.subexpressionElimination.enabled"
PUSHED = re.compile(
    r"lance \S+ version \d+ \[.*?\](?: filter: (?P<filter>.*?))? RuntimeFilters", re.S
)
TASKS = 3
DELETED = ", ".join(map(str, range(3, ROWS, 7)))
SORTED = [name for name in COLUMNS if name not in ("d", "f") and "." not in name]
"""The columns that Lance sorts as Spark does."""
ORDERS = ["", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST"]


@dataclass(frozen=True)
class Predicates(Pair):
    """Compares predicates: what Lance finds by the SQL that is pushed, and Spark on Parquet."""

    frame: Any
    """The table's DataFrame: its version is loaded once, and not for each predicate."""

    def pushed(self, predicate: str) -> tuple[str, bool] | None:
        """Return the SQL of Lance, and whether Spark filters after it; None without a scan."""
        frame = self.frame.filter(predicate).select("id")
        plan = frame._jdf.queryExecution().sparkPlan().toString()
        found = PUSHED.search(plan)
        return (found["filter"] or "true", "Filter " in plan) if found else None

    def ids(self, predicates: list[str]) -> list[set[int]]:
        """Return the ids for which each predicate is true, on Parquet, in one query."""
        columns = [f"({each}) AS p{at}" for at, each in enumerate(predicates)]
        # Spark takes 0.0D and -0.0D of one projection for one, and answers `d = 0.0D` wrongly.
        with self.set_conf(ELIMINATION, "false"):
            rows = self.spark.table(self.expected).selectExpr("id", *columns).collect()
        return [{row["id"] for row in rows if row[f"p{at}"]} for at in range(len(predicates))]

    def found(self, sql: str) -> set[int]:
        """Return the ids for which Lance holds the SQL true."""
        return set(self.dataset.to_table(columns=["id"], filter=sql)["id"].to_pylist())


@pytest.fixture(scope="module")
def pair(
    spark: Any, all_types: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Predicates]:
    directory = tmp_path_factory.mktemp("predicates")
    names = ["id", *dict.fromkeys(name.partition(".")[0] for name in COLUMNS)]
    spark.read.parquet(all_types).select(*names).createOrReplaceTempView("predicate_rows")
    with unity_catalog(spark, "predicates", directory) as catalog:
        table = f"{catalog}.db.t"
        spark.sql(f"CREATE TABLE {table} AS SELECT * FROM predicate_rows")
        dataset = dataset_of(spark, table)
        # What is pushed shows in a scan of tasks.
        with set_conf(spark, LOCAL_ROWS, "0"):
            yield Predicates(spark, table, "predicate_rows", dataset, spark.table(table))


def _comparisons() -> st.SearchStrategy[str]:
    def of(column: str) -> st.SearchStrategy[str]:
        type_, values = COLUMNS[column]
        value = st.sampled_from(values)
        operator = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        kinds = [
            st.builds(lambda op, v: f"{column} {op} {v}", operator, value),
            st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"]),
            st.lists(value, min_size=1, max_size=12).map(
                lambda vs: f"{column} IN ({', '.join(vs)})"
            ),
            st.builds(lambda low, high: f"{column} BETWEEN {low} AND {high}", value, value),
        ]
        if type_ == "STRING":
            pattern = st.sampled_from(["a%", "%c", "%a%", "a%b", "ab", "%", "a_", "b''%", "日%"])
            kinds.append(pattern.map(lambda p: f"{column} LIKE '{p}'"))
        if type_ in {"INT", "TINYINT", "SMALLINT", "FLOAT", "BIGINT"}:
            to = st.sampled_from(["DOUBLE"] if type_ == "FLOAT" else ["BIGINT", "DOUBLE"])
            kinds.append(
                st.builds(lambda t, o, v: f"CAST({column} AS {t}) {o} {v}", to, operator, value)
            )
        if type_ == "BOOLEAN":
            kinds.append(st.just(column))
        return st.one_of(kinds)

    return st.sampled_from(sorted(COLUMNS)).flatmap(of)


def predicates() -> st.SearchStrategy[str]:
    return st.recursive(
        _comparisons(),
        lambda inner: st.one_of(
            inner.map(lambda p: f"NOT ({p})"),
            st.builds(
                lambda a, o, b: f"({a}) {o} ({b})", inner, st.sampled_from(["AND", "OR"]), inner
            ),
        ),
        max_leaves=5,
    )


def _compare(pair: Predicates, predicates: list[str]) -> int:
    """Check each predicate, and return how many Lance answers without Spark's filter."""
    exact = 0
    for predicate, expected in zip(predicates, pair.ids(predicates), strict=True):
        pushed = pair.pushed(predicate)
        if pushed is None:
            continue
        sql, filtered = pushed
        found = pair.found(sql)
        if filtered:
            assert found >= expected, (predicate, sql)
        else:
            exact += 1
            assert found == expected, (predicate, sql)
    return exact


@pytest.mark.parametrize(
    "examples", [pytest.param(2, id="some"), pytest.param(30, id="many", marks=pytest.mark.slow)]
)
def test_random_predicates_give_the_rows_of_parquet(pair: Predicates, examples: int) -> None:
    @generated(examples)
    @given(st.lists(predicates(), min_size=20, max_size=30, unique=True))
    def compare(predicates: list[str]) -> None:
        _compare(pair, predicates)

    compare()


@pytest.mark.slow
def test_a_comparison_of_every_type_is_left_to_lance_alone(pair: Predicates) -> None:
    predicates = [
        f"{column} {operator} {values[1]}"
        for column, (_, values) in COLUMNS.items()
        for operator in ("=", "<>", "<", ">=", "<=>")
        if column in ("i", "d", "f", "s", "ts", "de") or operator in ("=", "<")
    ]
    assert _compare(pair, predicates) == len(predicates)


@pytest.mark.spec("spark.md#limits-and-known-weaknesses")
@pytest.mark.slow
@pytest.mark.parametrize("column", ["l", "s", "d"])
def test_an_index_of_the_column_changes_no_rows(pair: Predicates, column: str) -> None:
    values = FLOATS if column == "d" else COLUMNS[column][1][::2]
    predicates = [
        f"{column} {operator} {value}" for value in values for operator in ("=", "<", ">=")
    ]
    predicates += [f"NOT ({predicate})" for predicate in predicates[::3]]
    pair.dataset.create_scalar_index(column, "BTREE")
    try:
        assert _compare(pair, predicates) > len(predicates) / 2
    finally:
        [index] = pair.dataset.list_indices()
        pair.dataset.drop_index(index["name"])


def test_the_least_bigint_stays_with_spark(pair: Predicates) -> None:
    for predicate in ("l = (-9223372036854775807L - 1L)", "l > (-9223372036854775807L - 1L)"):
        pushed = pair.pushed(predicate)

        assert pushed is not None
        assert pushed[1], pushed


def test_a_deep_or_a_long_predicate_is_answered(pair: Predicates) -> None:
    deep = "i = 1"
    for at in range(40):
        deep = f"NOT ({deep} {'AND' if at % 2 else 'OR'} l <> {at})"
    long = " OR ".join(f"i = {at} AND l <> {at}" for at in range(300))

    _compare(pair, [deep, long, f"i IN ({', '.join(map(str, range(2000)))})"])


@pytest.mark.slow
def test_pushed_filters_limits_and_aggregates_give_the_rows_of_parquet_in_queries(
    pair: Predicates,
) -> None:
    queries = [
        "SELECT id FROM {t} WHERE d > 0.0D OR s LIKE 'a%' ORDER BY id",
        "SELECT count(*), count(s), sum(i), sum(b), min(l), max(da), sum(h) FROM {t}",
        "SELECT count(*), max(i), min(b) FROM {t} WHERE st.x IN (1, 2) AND l IS NOT NULL",
        "SELECT count(*), sum(d), min(i) FROM {t} WHERE id < 0",
        "SELECT count(*) FROM (SELECT * FROM {t} LIMIT 7)",
        "SELECT count(*) FROM {t}",
        "SELECT s, count(*) AS n, avg(i) AS m FROM {t} WHERE o GROUP BY s ORDER BY s, n",
        "SELECT s, o, da, count(*), sum(d), min(i), max(b) FROM {t} WHERE id < 50 "
        "GROUP BY s, o, da ORDER BY s, o, da",
        "SELECT DISTINCT s, b FROM {t} ORDER BY s, b",
        "SELECT d, f, count(*) FROM {t} GROUP BY d, f ORDER BY d, f",
        "SELECT count(DISTINCT s), sum(DISTINCT i) FROM {t}",
        "SELECT s, count(DISTINCT i), count(*) FROM {t} GROUP BY s ORDER BY s",
        "SELECT s, sum(l) FROM {t} WHERE l BETWEEN -10 AND 10 GROUP BY s HAVING count(*) > 1 "
        "ORDER BY s",
        "SELECT st.x, count(*) FROM {t} GROUP BY st.x ORDER BY 1",
        "SELECT o, grouping(o), count(*) FROM {t} GROUP BY o WITH ROLLUP ORDER BY 2, 1",
        "SELECT count(*) FROM {t} a JOIN {t} b ON a.id = b.id WHERE a.i > 0 AND b.i < 7",
    ]
    for query in queries:
        pair.check(query)


# -- orders and limits -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split(spark: Any, all_types: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The same rows in Lance, where three tasks read them, and in Parquet."""
    directory = tmp_path_factory.mktemp("limits")
    spark.read.parquet(all_types).createOrReplaceTempView("limit_base")
    kept = spark.table("limit_base").where(f"id NOT IN ({DELETED})")
    kept.createOrReplaceTempView("limit_kept")
    with unity_catalog(spark, "limits", directory) as catalog:
        table = f"{catalog}.db.t"
        spark.sql(f"CREATE TABLE {table} AS SELECT * FROM limit_base WHERE id < 50")
        spark.sql(f"INSERT INTO {table} SELECT * FROM limit_base WHERE id BETWEEN 50 AND 89")
        spark.sql(f"INSERT INTO {table} SELECT * FROM limit_base WHERE id >= 90")
        spark.sql(f"DELETE FROM {table} WHERE id IN ({DELETED})")
        source = f"{table} WITH (`rows_per_task` = '40', `batch_size` = '7')"
        with set_conf(spark, LOCAL_ROWS, "0"):
            yield Pair(spark, source, "limit_kept", dataset_of(spark, table))


def _rows_of_scan(pair: Pair, query: str) -> int:
    """Return how many rows the tasks of a query's scan hand over."""
    with pair.set_conf(ADAPTIVE, "false"):
        frame = pair.spark.sql(query.format(t=pair.table))
        frame.collect()
        scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().apply("numOutputRows").value())


@pytest.mark.slow
def test_the_first_rows_of_an_order_are_those_of_parquet(split: Pair) -> None:
    def first(name: str, order: str) -> str:
        # The id makes each answer the only one.
        keys = f"{name} {order}, id DESC"
        return f"(SELECT '{name}' AS q, id FROM {{t}} ORDER BY {keys} LIMIT 9)"

    names = [*SORTED, "d", "f", "st.x"]
    queries = [first(name, ORDERS[at % 4]) for at, name in enumerate(names)]
    query = f"SELECT * FROM ({' UNION ALL '.join(queries)}) ORDER BY q, id"

    split.check(query)

    assert split.plan(query).count(" order: ") == len(SORTED)


def test_tasks_hand_over_the_first_rows_of_an_order_alone(split: Pair) -> None:
    first = "SELECT id, s FROM {t} ORDER BY s DESC, id LIMIT 4"
    everything = _rows_of_scan(split, "SELECT id FROM {t} ORDER BY d, id LIMIT 4")

    assert _rows_of_scan(split, first) == 4 * TASKS < everything
    split.check(first)
    assert " order: " not in split.plan("SELECT id FROM {t} ORDER BY id LIMIT 10001")


def test_all_columns_come_with_the_first_rows_of_an_order(split: Pair) -> None:
    query = f"SELECT {NAMES}, st, a, m, deep, span FROM {{t}} ORDER BY s, l DESC, id LIMIT 12"
    assert " order: " in split.plan(query)
    split.check(query)

    query = "SELECT id, _rowid, _rowaddr FROM {t} ORDER BY `Mixed Name` DESC, id"
    assert split.rows(f"{query} LIMIT 5") == split.rows(query)[:5]


def test_the_first_rows_of_an_order_come_without_a_task(split: Pair) -> None:
    query = "SELECT id, s, a FROM {t} WHERE i IS NOT NULL ORDER BY s DESC, id LIMIT 6"
    with split.set_conf(LOCAL_ROWS, "1000"):
        assert split.is_local(query)
        split.check(query)


@pytest.mark.parametrize(
    "examples", [pytest.param(5, id="some"), pytest.param(100, id="many", marks=pytest.mark.slow)]
)
def test_random_orders_give_the_rows_of_parquet(split: Pair, examples: int) -> None:
    columns = st.sampled_from(sorted(COLUMNS))
    key = st.builds(lambda name, order: f"{name} {order}", columns, st.sampled_from(ORDERS))

    @generated(examples)
    @given(st.lists(key, max_size=3), predicates(), st.integers(0, 40), st.integers(1, 40))
    def compare(keys: list[str], predicate: str, offset: int, limit: int) -> None:
        order = ", ".join([*keys, "id"])
        query = f"SELECT id, s, d FROM {{t}} WHERE {predicate} ORDER BY {order} LIMIT {limit}"
        split.check(f"{query} OFFSET {offset}")

    compare()


def test_pages_of_a_table_have_each_row_once_and_tasks_hand_over_no_more(split: Pair) -> None:
    everything = split.rows("SELECT id, s, a FROM {t}")
    assert len(everything) == len(split.rows("SELECT id FROM {t}", split.expected))
    for offset in (0, 17, 43, 60, 95):
        query = f"SELECT id, s, a FROM {{t}} LIMIT 20 OFFSET {offset}"
        page = everything[offset : offset + 20]
        assert split.rows(query) == page
        assert _rows_of_scan(split, query) == len(page)
        assert split.rows(f"SELECT id, s, a FROM {{t}} OFFSET {offset}") == everything[offset:]
        with split.set_conf(LOCAL_ROWS, "20"):
            assert split.is_local(query)
            assert split.rows(query) == page


def test_limits_that_are_pushed_are_not_in_the_plan(split: Pair) -> None:
    for query in ("LIMIT 7", "LIMIT 7 OFFSET 2", "OFFSET 2"):
        plan = split.plan(f"SELECT id FROM {{t}} {query}")
        assert " offset: " in plan
        assert "CollectLimit" not in plan
    for query in ("WHERE id > 5 LIMIT 7 OFFSET 2", "WHERE upper(s) > 'A' OFFSET 2"):
        plan = split.plan(f"SELECT id FROM {{t}} {query}")
        assert " offset: " not in plan
        assert "CollectLimit" in plan


def test_limits_and_offsets_in_queries_leave_as_many_rows_as_of_parquet(split: Pair) -> None:
    queries = [
        "SELECT count(*) FROM (SELECT * FROM {t} LIMIT 50 OFFSET 98)",
        "SELECT count(*) FROM (SELECT 1 FROM {t} OFFSET 100)",
        "SELECT count(*), count(id) FROM (SELECT id FROM {t} LIMIT 7 OFFSET 1000)",
        "SELECT count(*) FROM (SELECT * FROM {t} LIMIT 50) OFFSET 1",
        "SELECT count(*) FROM {t} LIMIT 3",
        "SELECT count(*) FROM {t} OFFSET 1",
        "SELECT count(*) FROM (SELECT * FROM (SELECT * FROM {t} LIMIT 10 OFFSET 3) LIMIT 5)",
        "SELECT count(*) FROM (SELECT * FROM (SELECT * FROM {t} OFFSET 3) LIMIT 200 OFFSET 2)",
        "SELECT count(*) FROM (SELECT id FROM {t} WHERE s IS NULL LIMIT 3 OFFSET 2)",
        "SELECT count(*) FROM (SELECT id FROM {t} WHERE id > 50 OFFSET 9) WHERE id > 0",
        "SELECT count(*) FROM (SELECT DISTINCT id FROM (SELECT * FROM {t} LIMIT 60 OFFSET 5))",
        "SELECT count(*) FROM (SELECT id FROM {t} LIMIT 9) a JOIN (SELECT id FROM {t} OFFSET 99)",
        "SELECT count(*) FROM ((SELECT id FROM {t} LIMIT 5 OFFSET 99) UNION ALL (SELECT 1))",
    ]
    for query in queries:
        split.check(query)
    frames = [split.spark.sql(f"SELECT id FROM {t}") for t in (split.table, split.expected)]
    assert [len(frame.limit(20).offset(15).collect()) for frame in frames] == [5, 5]
    assert [len(frame.offset(15).limit(20).collect()) for frame in frames] == [20, 20]
    assert [frame.offset(100).count() for frame in frames] == [3, 3]


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
    # Generated code reads an element before it asks whether that is null.
    "SELECT id, filter(a, e -> e IS NULL) FROM {t} WHERE exists(a, e -> e IS NULL) ORDER BY id",
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
        with self.set_conf(COLUMNAR, "false"):
            assert not self.is_columnar(query, table)
            return self.rows(query, table)

    def is_columnar(self, query: str, table: str | None = None) -> bool:
        """Return whether tasks hand over columns."""
        # An adaptive plan shows it only when it has run.
        with self.set_conf(ADAPTIVE, "false"):
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
        with set_conf(spark, LOCAL_ROWS, "0"):
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
    with ways.set_conf(IDLE, "100ms"):
        ways.rows("SELECT id FROM {t}")
        for pid in pids(ways.spark, SCANS):
            await_end(pid)
    assert len(ways.rows("SELECT id FROM {t}")) > 0


def test_the_setting_is_checked(ways: Ways) -> None:
    with (
        ways.set_conf(COLUMNAR, "columns"),
        pytest.raises(PySparkException, match=r"LANCE_INVALID_INPUT.*auto, true or false"),
    ):
        ways.rows("SELECT id FROM {t}")


def test_moments_are_those_of_the_session_s_zone(ways: Ways) -> None:
    with ways.set_conf("spark.sql.session.timeZone", "America/New_York"):
        query = "SELECT id, ts, tn, hour(ts), CAST(ts AS STRING) FROM {t} ORDER BY id"
        ways.check(query)
        assert isinstance(
            ways.spark.sql(f"SELECT max(ts) FROM {ways.table}").first()[0], dt.datetime
        )
