"""lance-ray, daft-lance and DuckDB's extension for Lance, unmodified, through a gateway.

DuckDB downloads the extension from its own host. Here it is the same file, of the package
``duckdb-extension-lance``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import daft
import daft_lance
import duckdb
import lance
import lance_ray
import pytest
import ray
from clients.catalogs import Backend, Database, rows
from clients.conftest import NewDatabase
from clients.duckdb_extension import extension_file
from server.serving import serving

from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway

pytestmark = [pytest.mark.engines, pytest.mark.spec("server.md#clients")]


@pytest.fixture
def table(database: Database) -> Iterator[dict[str, Any]]:
    """The arguments that say which table, for a gateway to each catalog."""
    with database.backend.connect() as namespace, serving(create_app(Gateway(namespace))) as url:
        yield {
            "namespace_impl": "rest",
            "namespace_properties": {"uri": url},
            "table_id": database.id("t"),
        }


@pytest.mark.usefixtures("ray_cluster")
def test_ray_writes_and_reads_a_table(table: dict[str, Any]) -> None:
    lance_ray.write_lance(ray.data.from_arrow([rows(10), rows(10, 10)]), **table)
    lance_ray.write_lance(ray.data.from_arrow(rows(10, 20)), mode="append", **table)
    found = lance_ray.read_lance(**table, columns=["id"], filter="id >= 5")
    assert sorted(row["id"] for row in found.take_all()) == list(range(5, 30))


def test_daft_writes_and_reads_a_table(table: dict[str, Any]) -> None:
    daft_lance.write_lance(daft.from_arrow(rows(10)), **table)
    daft_lance.write_lance(daft.from_arrow(rows(10, 10)), mode="append", **table)
    found = daft_lance.read_lance(**table).where(daft.col("id") >= 5).select("id").sort("id")
    assert found.to_pydict() == {"id": list(range(5, 20))}


# -- DuckDB ----------------------------------------------------------------------------------------


@pytest.fixture
def url(hive: Backend) -> Iterator[str]:
    with hive.connect() as namespace, serving(create_app(Gateway(namespace))) as address:
        yield address


def attach(url: str, database: Database) -> Any:
    """Return a connection of DuckDB where the database is ``ns``."""
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension_file()}'")
    header = f"x-lancedb-database={'.'.join(database.path)}"
    connection.execute(f"ATTACH '$' AS ns (TYPE lance, ENDPOINT '{url}', HEADER '{header}')")
    return connection


def write_by_pylance(database: Database, count: int) -> None:
    with database.backend.connect() as namespace:
        data = rows(count).drop_columns("labels")  # DuckDB names the items of a list otherwise
        lance.write_dataset(data, namespace_client=namespace, table_id=database.id("t"))


def test_a_table_is_queried_searched_and_written(url: str, on_hive: Database) -> None:
    write_by_pylance(on_hive, 10)
    with attach(url, on_hive) as db:
        assert db.execute("SHOW TABLES FROM ns.main").fetchall() == [("t",)]
        query = "SELECT color, count(*) FROM ns.main.t WHERE id < 6 GROUP BY color ORDER BY color"
        assert db.execute(query).fetchall() == [("blue", 2), ("green", 2), ("red", 2)]
        search = f"lance_vector_search('ns.main.t', 'vector', {[7.0] * 8}::FLOAT[8], k = 1)"
        assert db.execute(f"SELECT id FROM {search}").fetchall() == [(7,)]
        db.execute("INSERT INTO ns.main.t (id, color) VALUES (10, 'red')")
        db.execute("UPDATE ns.main.t SET color = 'gray' WHERE id = 0")
        db.execute("DELETE FROM ns.main.t WHERE id = 1")
    with on_hive.backend.connect() as namespace:
        found = lance.dataset(namespace_client=namespace, table_id=on_hive.id("t")).to_table()
    assert sorted(found["id"].to_pylist()) == [0, *range(2, 11)]
    assert found.to_pandas().set_index("id")["color"][[0, 10]].to_list() == ["gray", "red"]


def test_create_table_as_makes_a_table_without_rows(url: str, on_hive: Database) -> None:
    with attach(url, on_hive) as db:
        db.execute("CREATE TABLE ns.main.made AS SELECT 1::BIGINT AS id")
    with attach(url, on_hive) as db:
        assert db.execute("SELECT id FROM ns.main.made").fetchall() == []
        db.execute("INSERT INTO ns.main.made VALUES (2)")
        assert db.execute("SELECT id FROM ns.main.made").fetchall() == [(2,)]
        db.execute("DROP TABLE ns.main.made")
        assert db.execute("SHOW TABLES FROM ns.main").fetchall() == []


@pytest.mark.spec("clients.md#which-writers-commit-through-the-catalog")
def test_writes_to_a_managed_table_are_past_the_catalog(
    url: str, hive: Backend, new_database: NewDatabase
) -> None:
    managed = new_database(hive, managed_by="impl")
    write_by_pylance(managed, 10)
    with attach(url, managed) as db:
        db.execute("INSERT INTO ns.main.t (id, color) VALUES (10, 'red')")
    with hive.connect() as namespace:
        found = namespace.list_out_of_band_versions(managed.id("t"))
        assert [each.version for each in found.versions] == [2]
        dataset = lance.dataset(namespace_client=namespace, table_id=managed.id("t"))
        assert dataset.count_rows() == 10
