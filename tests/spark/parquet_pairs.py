"""The same rows in a table of Lance and in Parquet, to compare what queries find in both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lance
from hypothesis import HealthCheck, Phase, settings

from .all_types import COLUMNS
from .sql_helpers import Database, setting

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
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
