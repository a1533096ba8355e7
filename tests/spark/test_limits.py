"""What Lance does of limits gives the rows of Parquet, and hands over few rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .all_types import COLUMNS, ROWS
from .catalogs import unity_catalog
from .parquet_pairs import ADAPTIVE, LOCAL_ROWS, NAMES, Pair, dataset_of, generated
from .sql_helpers import setting
from .test_predicates import predicates

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#what-is-pushed-down")]

TASKS = 3
DELETED = ", ".join(map(str, range(3, ROWS, 7)))
SORTED = [name for name in COLUMNS if name not in ("d", "f") and "." not in name]
"""The columns that Lance sorts as Spark does."""
ORDERS = ["", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST"]


@pytest.fixture(scope="module")
def pair(spark: Any, all_types: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
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
        yield Pair(spark, source, "limit_kept", dataset_of(spark, table))


@pytest.fixture(autouse=True)
def tasks_read_all(spark: Any) -> Iterator[None]:
    """What is pushed shows in a scan of tasks."""
    with setting(spark, LOCAL_ROWS, "0"):
        yield


def _rows_of_scan(pair: Pair, query: str) -> int:
    """Return how many rows the tasks of a query's scan hand over."""
    with pair.setting(ADAPTIVE, "false"):
        frame = pair.spark.sql(query.format(t=pair.table))
        frame.collect()
        scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().apply("numOutputRows").value())


@pytest.mark.slow
def test_the_first_rows_of_an_order_are_those_of_parquet(pair: Pair) -> None:
    def first(name: str, order: str) -> str:
        # The id makes each answer the only one.
        keys = f"{name} {order}, id DESC"
        return f"(SELECT '{name}' AS q, id FROM {{t}} ORDER BY {keys} LIMIT 9)"

    names = [*SORTED, "d", "f", "st.x"]
    queries = [first(name, ORDERS[at % 4]) for at, name in enumerate(names)]
    query = f"SELECT * FROM ({' UNION ALL '.join(queries)}) ORDER BY q, id"

    pair.check(query)

    assert pair.plan(query).count(" order: ") == len(SORTED)


def test_tasks_hand_over_the_first_rows_of_an_order_alone(pair: Pair) -> None:
    first = "SELECT id, s FROM {t} ORDER BY s DESC, id LIMIT 4"
    everything = _rows_of_scan(pair, "SELECT id FROM {t} ORDER BY d, id LIMIT 4")

    assert _rows_of_scan(pair, first) == 4 * TASKS < everything
    pair.check(first)
    assert " order: " not in pair.plan("SELECT id FROM {t} ORDER BY id LIMIT 10001")


def test_all_columns_come_with_the_first_rows_of_an_order(pair: Pair) -> None:
    query = f"SELECT {NAMES}, st, a, m, deep, span FROM {{t}} ORDER BY s, l DESC, id LIMIT 12"
    assert " order: " in pair.plan(query)
    pair.check(query)

    query = "SELECT id, _rowid, _rowaddr FROM {t} ORDER BY `Mixed Name` DESC, id"
    assert pair.rows(f"{query} LIMIT 5") == pair.rows(query)[:5]


def test_the_first_rows_of_an_order_come_without_a_task(pair: Pair) -> None:
    query = "SELECT id, s, a FROM {t} WHERE i IS NOT NULL ORDER BY s DESC, id LIMIT 6"
    with pair.setting(LOCAL_ROWS, "1000"):
        assert pair.is_local(query)
        pair.check(query)


@pytest.mark.parametrize(
    "examples", [pytest.param(5, id="some"), pytest.param(100, id="many", marks=pytest.mark.slow)]
)
def test_random_orders_give_the_rows_of_parquet(pair: Pair, examples: int) -> None:
    columns = st.sampled_from(sorted(COLUMNS))
    key = st.builds(lambda name, order: f"{name} {order}", columns, st.sampled_from(ORDERS))

    @generated(examples)
    @given(st.lists(key, max_size=3), predicates(), st.integers(0, 40), st.integers(1, 40))
    def compare(keys: list[str], predicate: str, offset: int, limit: int) -> None:
        order = ", ".join([*keys, "id"])
        query = f"SELECT id, s, d FROM {{t}} WHERE {predicate} ORDER BY {order} LIMIT {limit}"
        pair.check(f"{query} OFFSET {offset}")

    compare()


def test_pages_of_a_table_have_each_row_once_and_tasks_hand_over_no_more(pair: Pair) -> None:
    everything = pair.rows("SELECT id, s, a FROM {t}")
    assert len(everything) == len(pair.rows("SELECT id FROM {t}", pair.expected))
    for offset in (0, 17, 43, 60, 95):
        query = f"SELECT id, s, a FROM {{t}} LIMIT 20 OFFSET {offset}"
        page = everything[offset : offset + 20]
        assert pair.rows(query) == page
        assert _rows_of_scan(pair, query) == len(page)
        assert pair.rows(f"SELECT id, s, a FROM {{t}} OFFSET {offset}") == everything[offset:]
        with pair.setting(LOCAL_ROWS, "20"):
            assert pair.is_local(query)
            assert pair.rows(query) == page


def test_limits_that_are_pushed_are_not_in_the_plan(pair: Pair) -> None:
    for query in ("LIMIT 7", "LIMIT 7 OFFSET 2", "OFFSET 2"):
        plan = pair.plan(f"SELECT id FROM {{t}} {query}")
        assert " offset: " in plan
        assert "CollectLimit" not in plan
    for query in ("WHERE id > 5 LIMIT 7 OFFSET 2", "WHERE upper(s) > 'A' OFFSET 2"):
        plan = pair.plan(f"SELECT id FROM {{t}} {query}")
        assert " offset: " not in plan
        assert "CollectLimit" in plan


def test_limits_and_offsets_in_queries_leave_as_many_rows_as_of_parquet(pair: Pair) -> None:
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
        pair.check(query)
    frames = [pair.spark.sql(f"SELECT id FROM {t}") for t in (pair.table, pair.expected)]
    assert [len(frame.limit(20).offset(15).collect()) for frame in frames] == [5, 5]
    assert [len(frame.offset(15).limit(20).collect()) for frame in frames] == [20, 20]
    assert [frame.offset(100).count() for frame in frames] == [3, 3]
