"""Tables that pylance has written, so that they have types and names that Spark would not make."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa

from lance_bridge_spark.addresses import address_of
from lance_bridge_spark.lookup import create_table, find_table

_numbers = itertools.count()


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
