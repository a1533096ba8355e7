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
from pyspark.sql import SparkSession
from servers.http_proxy import HttpProxy, Request
from servers.unity import UnityServer

from lance_bridge_spark.addresses import address_of
from lance_bridge_spark.lookup import create_table, find_table
from lance_bridge_spark.registration import register

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
