"""INSERT OVERWRITE of a table by name: of itself it loses nothing, and of a part it says no."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from lance_bridge_spark.addresses import TableAddress, address_of
from lance_bridge_spark.lookup import create_table, find_table

from .catalogs import unity_catalog
from .sql_helpers import failure_of

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.spec("spark.md#create-and-replace-with-a-query"),
]

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with unity_catalog(spark, "overwrites", tmp_path_factory.mktemp("overwrites")) as name:
        yield name


@pytest.fixture
def table(spark: Any, catalog: str, request: pytest.FixtureRequest) -> TableAddress:
    """A table with the ids 1 to 3 in its second version."""
    found = address_of(spark, f"{catalog}.db.t{abs(hash(request.node.name))}")
    create_table(found, SCHEMA)
    append(found, 1, 2, 3)
    return found


@pytest.fixture
def meddle(spark: Any, table: TableAddress, tmp_path: Path) -> None:
    """Let the function `meddle` of SQL append the id 90, as another writer; it returns its own."""
    place, done = find_table(table).record.location, tmp_path / "done"

    def of_row(number: int) -> int:
        import lance  # noqa: PLC0415 - runs in a worker
        import pyarrow as pa  # noqa: PLC0415

        try:
            os.close(os.open(done, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return number
        lance.write_dataset(pa.table({"id": [90]}), place, mode="append")
        return number

    spark.udf.register("meddle", F.udf(of_row, "bigint").asNondeterministic())


def append(table: TableAddress, *ids: int) -> None:
    rows = pa.table({"id": ids}, schema=SCHEMA)
    lance.write_dataset(rows, find_table(table).open(write=True), mode="append")


def ids(table: TableAddress) -> list[int]:
    return sorted(find_table(table).open().to_table()["id"].to_pylist())


@pytest.mark.usefixtures("meddle")
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT meddle(id) + 10 FROM {}", marks=pytest.mark.slow),
        "SELECT meddle(id) FROM range(2) WHERE id < (SELECT count(*) FROM {})",
    ],
)
def test_an_overwrite_by_rows_of_the_table_itself_loses_none_of_others(
    spark: Any, table: TableAddress, query: str
) -> None:
    with pytest.raises(PySparkException, match="LANCE_CONCURRENT_MODIFICATION"):
        spark.sql(f"INSERT OVERWRITE {table.name} {query.format(table.name)}")
    assert ids(table) == [1, 2, 3, 90]


@pytest.mark.usefixtures("meddle")
def test_an_overwrite_by_other_rows_takes_the_place_of_all(spark: Any, table: TableAddress) -> None:
    spark.sql(f"INSERT OVERWRITE {table.name} SELECT meddle(id) FROM range(2)")
    assert ids(table) == [0, 1]


@pytest.mark.usefixtures("meddle")
def test_an_overwrite_by_an_old_version_takes_the_place_of_all(
    spark: Any, table: TableAddress
) -> None:
    spark.sql(f"INSERT OVERWRITE {table.name} SELECT meddle(id) FROM {table.name} VERSION AS OF 2")
    assert ids(table) == [1, 2, 3]


def test_a_dataframe_that_was_made_before_loses_no_rows_either(
    spark: Any, table: TableAddress
) -> None:
    rows = spark.table(table.name)
    append(table, 90)
    refused = failure_of(lambda: rows.writeTo(table.name).overwrite(F.lit(True)))
    assert refused is None or "LANCE_CONCURRENT_MODIFICATION" in refused
    assert ids(table) == [1, 2, 3, 90]


@pytest.mark.spec("spark.md#unsupported-statements")
def test_an_overwrite_of_some_rows_is_refused_with_advice(spark: Any, table: TableAddress) -> None:
    with pytest.raises(AnalysisException, match=r"overwritten as a whole only.*MERGE") as caught:
        spark.sql(f"INSERT INTO {table.name} REPLACE WHERE id > 1 SELECT 5L AS id")
    assert caught.value.getCondition() == "LANCE_UNSUPPORTED_OPERATION"
    with pytest.raises(AnalysisException, match="LANCE_UNSUPPORTED_OPERATION"):
        spark.table(table.name).writeTo(table.name).overwrite(F.col("id") == 1)
    assert ids(table) == [1, 2, 3]
