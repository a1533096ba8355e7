"""Catalogs and tables of tests: for one session, written by pylance, or under jobs of Spark."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import SparkSession
from servers.http_proxy import HttpProxy, Request
from servers.unity import UnityServer

from lance_bridge_spark.addresses import address_of
from lance_bridge_spark.lookup import create_table, find_table
from lance_bridge_spark.registration import register

from .sql_helpers import Database, set_conf

TOKEN = "token-that-nothing-may-show"
_numbers = itertools.count()
DIMENSION = 16


@contextmanager
def unity_catalog(spark: Any, name: str, directory: Path) -> Iterator[str]:
    """Register a catalog with a namespace `db`, and give its name."""
    with UnityServer() as server:
        _register(spark, name, directory, server, server.url)
        yield name


@contextmanager
def proxied_catalog(
    spark: Any, name: str, directory: Path, key: Callable[[Request], str]
) -> Iterator[HttpProxy]:
    """Register such a catalog, and give the proxy that its requests come through."""
    with UnityServer() as server, HttpProxy(server.url, key) as proxy:
        _register(spark, name, directory, server, proxy.endpoint)
        yield proxy


def _register(spark: Any, name: str, directory: Path, server: UnityServer, host: str) -> None:
    server.add_catalog("main")
    properties = {"impl": "unity", "host": host, "catalog": "main", "root": str(directory)}
    register(spark, {name: {**properties, "token": TOKEN}})
    spark.sql(f"CREATE NAMESPACE {name}.db")


# -- tables that pylance has written ---------------------------------------------------------------


@dataclass(frozen=True)
class StoredTable:
    """A table of a session's catalog, as Spark and as pylance see it."""

    spark: Any
    name: str

    @property
    def location(self) -> str:
        found = find_table(address_of(self.spark, self.name)).record.location or ""
        return found.removeprefix("file://")

    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.location)

    def sql(self, statement: str) -> Any:
        """Run a statement, in which `{t}` is the table's name."""
        return self.spark.sql(statement.replace("{t}", self.name))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.sql(query).collect()]


def stored_table(
    spark: Any, catalog: str, rows: pa.Table, name: str = "stored", **arguments: Any
) -> StoredTable:
    """Return a new table with rows that pylance writes."""
    table = StoredTable(spark, f"{catalog}.db.{name}_{next(_numbers)}")
    create_table(address_of(spark, table.name), pa.schema([("id", pa.int64())]))
    shutil.rmtree(table.location)
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    lance.write_dataset(reader, table.location, **arguments)
    return table


# -- tables of jobs --------------------------------------------------------------------------------


def numbered(rows: int, start: int = 0) -> pa.Table:
    """Return rows with the numbers from ``start`` on, a text, tags and a vector each."""
    numbers = range(start, start + rows)
    vectors = np.random.default_rng(start).random(rows * DIMENSION, dtype=np.float32)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"word{i % 7} thing{i}" for i in numbers],
            "tags": [[f"t{i % 3}"] for i in numbers],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        }
    )


def make(path: Path, fragments: int = 4, rows: int = 50) -> str:
    """Make a table of that many fragments of ``rows`` each, and return its place."""
    for number in range(fragments):
        mode = "append" if number else "create"
        lance.write_dataset(numbered(rows, number * rows), str(path), mode=mode)
    return str(path)


def append(place: str, rows: int, start: int) -> None:
    """Append rows as another writer does."""
    lance.write_dataset(numbered(rows, start), place, mode="append")


def rows_of(place: str) -> pa.Table:
    """Return all rows by number."""
    return lance.dataset(place).to_table().sort_by("id")


def ids(place: str, **how: Any) -> list[int]:
    """Return the numbers of the rows that a scan finds."""
    found: list[int] = lance.dataset(place).to_table(**how).column("id").to_pylist()
    return found


class Interrupted:
    """A session in which another writer acts when a job has planned its tasks."""

    def __init__(self, spark: SparkSession, act: Callable[[], object]) -> None:
        self._spark = spark
        self._act: list[Callable[[], object]] = [act]

    def range(self, *given: int) -> Any:
        while self._act:
            self._act.pop()()
        return self._spark.range(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


# -- the same rows in Lance and in Parquet ---------------------------------------------------------


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

    def set_conf(self, name: str, value: str) -> Any:
        """Give a setting of the session another value for a while."""
        return set_conf(self.spark, name, value)


def dataset_of(spark: Any, table: str) -> lance.LanceDataset:
    """Open the data of a table of the session."""
    catalog, namespace, _ = table.split(".")
    return lance.dataset(Database(spark, catalog, namespace).described(table)["Location"])


def generated(examples: int) -> settings:
    """Return settings to try so many random examples, and no simpler ones: each is a query."""
    return settings(
        max_examples=examples, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
