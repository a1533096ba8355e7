"""Predicates that the SQL catalog pushes down give the rows that Spark gives on Parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .all_types import COLUMNS, FLOATS
from .catalogs import unity_catalog
from .parquet_pairs import LOCAL_ROWS, Pair, dataset_of, generated
from .sql_helpers import setting

pytestmark = [pytest.mark.spec("spark.md#what-is-pushed-down")]

ELIMINATION = "spark.sql.subexpressionElimination.enabled"
PUSHED = re.compile(
    r"lance \S+ version \d+ \[.*?\](?: filter: (?P<filter>.*?))? RuntimeFilters", re.S
)


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
        with self.setting(ELIMINATION, "false"):
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
        with setting(spark, LOCAL_ROWS, "0"):
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


@pytest.mark.servers
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


@pytest.mark.servers
def test_the_least_bigint_stays_with_spark(pair: Predicates) -> None:
    for predicate in ("l = (-9223372036854775807L - 1L)", "l > (-9223372036854775807L - 1L)"):
        pushed = pair.pushed(predicate)

        assert pushed is not None
        assert pushed[1], pushed


@pytest.mark.servers
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
