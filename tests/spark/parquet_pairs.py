"""The same rows, of every type of Spark that Lance has, in a table of Lance and in Parquet.

Queries of both are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lance
from hypothesis import HealthCheck, Phase, settings

from .sql_helpers import Database, setting

ROWS = 120
INTEGERS = ["0", "1", "2", "-1", "7", "100"]
FLOATS = [
    "0.0D",
    "-0.0D",
    "1.5D",
    "-2.25D",
    "1e300D",
    "0.1D",
    "double('NaN')",
    "double('Infinity')",
]
REALS = ["float(0.0)", "float('-0.0')", "float(0.1)", "float(1.5)", "float('NaN')", "0.1D"]
TEXTS = ["''", "'a'", "'ab'", "'aé'", "'b''c'", "'%'", "'_'", "'日本'", "'a b'", '"c\\\\d"']
DAYS = ["DATE'1970-01-01'", "DATE'1969-12-31'", "DATE'2024-02-29'", "DATE'0001-01-01'"]
TIMES = ["1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2020-09-13 12:26:40.123456"]
DECIMALS = ["0.00BD", "1.10BD", "-2.50BD", "99999999.99BD"]
BYTES = ["X''", "X'00FF'", "X'80'", "X'616263'"]
COLUMNS: dict[str, tuple[str, list[str]]] = {
    "i": ("INT", [*INTEGERS, "-2147483648"]),
    "l": ("BIGINT", [*INTEGERS, "9223372036854775807L", "(-9223372036854775807L - 1L)"]),
    "b": ("TINYINT", ["0Y", "1Y", "-1Y", "127Y", "-128Y"]),
    "h": ("SMALLINT", ["0S", "1S", "-1S", "32767S"]),
    "d": ("DOUBLE", FLOATS),
    "f": ("FLOAT", REALS),
    "s": ("STRING", TEXTS),
    "o": ("BOOLEAN", ["true", "false"]),
    "da": ("DATE", DAYS),
    "ts": ("TIMESTAMP", [f"TIMESTAMP_LTZ'{time}'" for time in TIMES]),
    "tn": ("TIMESTAMP_NTZ", [f"TIMESTAMP_NTZ'{time}'" for time in TIMES]),
    "de": ("DECIMAL(10,2)", DECIMALS),
    "bi": ("BINARY", BYTES),
    "st.x": ("INT", INTEGERS),
    "st.in.z": ("STRING", TEXTS),
    "`Mixed Name`": ("INT", INTEGERS),
}
"""Columns of the rows: their types, and values that they have, as SQL writes them."""
_NESTED = """
    SELECT *,
        IF(id % 4 = 0, NULL, array(d, NULL, double('NaN'), -0.0D)) AS a,
        IF(id % 6 = 0, NULL, map('k', i, 'n', NULL)) AS m,
        IF(id % 3 = 0, NULL, array(named_struct('x', s, 'y', array(f)))) AS deep,
        make_dt_interval(CAST(id AS INT), 1, 2, 3.000004) AS span
    FROM ({rows})
"""
LOCAL_ROWS = "spark.lance_bridge.local.rows"
ADAPTIVE = "spark.sql.adaptive.enabled"
NAMES = ", ".join(["id", *(name for name in COLUMNS if "." not in name)])
EVERYTHING = f"SELECT {NAMES}, st, a, m, deep, span FROM {{t}} ORDER BY id"
CHANGED = """
    SELECT * EXCEPT (s, d),
        IF(id % 5 = 0, 'changed', s) AS s, IF(id % 5 = 0, double('NaN'), d) AS d
    FROM {base} WHERE pmod(id, 7) <> 3
"""
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


def write_all_types(spark: Any, path: str) -> None:
    """Write the rows to Parquet: an id, the columns, and types that have others inside."""
    spark.sql(_NESTED.format(rows=_rows())).write.parquet(path)


def _value(column: str) -> str:
    """Return an expression of `id` that takes all values of the column, and null."""
    type_, values = COLUMNS[column]
    choices = ", ".join(f"CAST({value} AS {type_})" for value in [*values, "NULL"])
    at = f"pmod(xxhash64(id, '{column}'), {len(values) + 1})"
    return f"element_at(array({choices}), CAST(1 + {at} AS INT))"


def _rows() -> str:
    columns = [f"{_value(name)} AS {name}" for name in COLUMNS if "." not in name]
    inner = f"IF(id % 5 = 0, NULL, named_struct('z', {_value('st.in.z')}))"
    struct = f"IF(id % 7 = 0, NULL, named_struct('x', {_value('st.x')}, 'in', {inner}))"
    return f"SELECT id, {', '.join(columns)}, {struct} AS st FROM range(0, {ROWS}, 1, 1)"


@dataclass(frozen=True)
class Pair:
    """A table of Lance, as a query names it, and a view of the same rows in Parquet."""

    spark: Any
    table: str
    expected: str
    dataset: lance.LanceDataset

    def rows(self, query: str, table: str | None = None) -> list[str]:
        """Return the rows as texts, in which one NaN is like another."""
        return list(map(str, self.spark.sql(query.format(t=table or self.table)).collect()))

    def check(self, query: str) -> None:
        """Require the same rows of both."""
        assert self.rows(query) == self.rows(query, self.expected), query

    def plan(self, query: str) -> str:
        """Return how Spark reads the table of Lance."""
        frame = self.spark.sql(query.format(t=self.table))
        return str(frame._jdf.queryExecution().sparkPlan().toString())

    def is_local(self, query: str) -> bool:
        """Return whether Lance is read without a task."""
        plan = self.plan(query)
        assert ("LocalTableScan" in plan) != ("BatchScan" in plan), plan
        return "LocalTableScan" in plan

    def setting(self, name: str, value: str) -> Any:
        """Give a setting of the session another value for a while."""
        return setting(self.spark, name, value)


def dataset_of(spark: Any, table: str) -> lance.LanceDataset:
    """Open the data of a table of the session."""
    catalog, namespace, _ = table.split(".")
    return lance.dataset(Database(spark, catalog, namespace).described(table)["Location"])


def generated(examples: int) -> settings:
    """Return settings to try so many random examples, and no simpler ones: each is a query."""
    return settings(
        max_examples=examples, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
