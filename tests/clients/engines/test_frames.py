"""Polars and DuckDB, unmodified, over tables of each catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import lance
import lancedb
import polars
import pytest
from clients.catalogs import Database, rows

pytestmark = [pytest.mark.engines, pytest.mark.spec("clients.md#polars")]


@pytest.fixture
def table(database: Database) -> Any:
    """A table of LanceDB's with rows 0 to 29."""
    db = lancedb.connect_namespace(database.impl, database.properties)
    return db.create_table("t", rows(30), namespace_path=database.path)


@pytest.fixture
def dataset(table: Any, database: Database) -> Iterator[Any]:
    """The same table, as pylance opens it by its name."""
    assert table.name == "t"
    with database.backend.connect() as namespace:
        yield lance.dataset(namespace_client=namespace, table_id=database.id("t"))


@pytest.mark.spec("clients.md#the-table")
def test_polars_scans_a_table_of_lancedb(table: Any) -> None:
    found = table.to_polars().filter(polars.col("id") < 3).select("id", "color").collect()
    assert found.rows() == [(0, "red"), (1, "green"), (2, "blue")]
    scanned = polars.scan_lance(table).filter(polars.col("id") > 27)
    assert scanned.collect()["id"].to_list() == [28, 29]
    assert table.search([7.0] * 8).limit(1).to_polars()["id"].to_list() == [7]


def test_polars_scans_and_reads_a_dataset(dataset: Any) -> None:
    scanned = polars.scan_lance(dataset)
    assert scanned.filter(polars.col("id") == 7).collect()["text"].to_list() == [
        "a green car number7"
    ]
    read = polars.from_arrow(dataset.to_table(columns=["id"], filter="id > 27"))
    assert read["id"].to_list() == [28, 29]


def test_a_frame_of_polars_is_written(dataset: Any, database: Database) -> None:
    frame = polars.from_arrow(dataset.to_table(columns=["id", "color"]))
    with database.backend.connect() as namespace:
        where: dict[str, Any] = {"namespace_client": namespace, "table_id": database.id("frame")}
        lance.write_dataset(frame.to_arrow(), **where)
        assert lance.dataset(**where).count_rows("color = 'red'") == 10


@pytest.mark.spec("clients.md#duckdb")
def test_duckdb_queries_a_dataset_by_the_name_of_its_variable(dataset: Any) -> None:
    films = dataset
    with duckdb.connect() as connection:
        connection.register("films", films)
        query = "SELECT color, count(*) FROM films WHERE id < 10 GROUP BY color ORDER BY color"
        assert connection.execute(query).fetchall() == [("blue", 3), ("green", 3), ("red", 4)]
        connection.register("batches", films.scanner(columns=["id"]).to_reader())
        assert connection.execute("SELECT max(id) FROM batches").fetchall() == [(29,)]
