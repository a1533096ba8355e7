"""Polars, DuckDB, lance-ray and daft-lance, unmodified, over tables and through a gateway.

DuckDB downloads its extension for Lance from its own host. Here it is the same file, of the package
``duckdb-extension-lance``. `make test-engines` installs them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Any

import daft
import daft_lance
import duckdb
import lance
import lance_ray
import lancedb
import polars
import pytest
import ray
from clients.catalogs import Backend, Database, rows
from clients.conftest import RAY_ENVIRONMENT, NewDatabase
from clients.fetched import extension_file
from docs.gateway_pages import Reader, reader_after_python, section
from server.gateways import serve_app
from servers.metastores import Metastores

from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = [pytest.mark.engines, pytest.mark.spec("clients.md#polars", "server.md#clients")]

SECTIONS = {"DuckDB": 3, "lance-ray": 1, "daft-lance": 1}
"""How many blocks of Python each has."""
PROGRESS = "elapsed)"
"""Part of the bar that DuckDB prints while a query takes long."""


@pytest.fixture
def written(database: Database) -> Any:
    """A table of LanceDB's with rows 0 to 29."""
    db = lancedb.connect_namespace(database.impl, database.properties)
    return db.create_table("t", rows(30), namespace_path=database.path)


@pytest.fixture
def dataset(written: Any, database: Database) -> Iterator[Any]:
    """The same table, as pylance opens it by its name."""
    assert written.name == "t"
    with database.backend.connect() as namespace:
        yield lance.dataset(namespace_client=namespace, table_id=database.id("t"))


@pytest.mark.spec("clients.md#the-table")
def test_polars_scans_a_table_of_lancedb(written: Any) -> None:
    found = written.to_polars().filter(polars.col("id") < 3).select("id", "color").collect()
    assert found.rows() == [(0, "red"), (1, "green"), (2, "blue")]
    scanned = polars.scan_lance(written).filter(polars.col("id") > 27)
    assert scanned.collect()["id"].to_list() == [28, 29]
    assert written.search([7.0] * 8).limit(1).to_polars()["id"].to_list() == [7]


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


# -- through a gateway -----------------------------------------------------------------------------


@pytest.fixture
def table(database: Database) -> Iterator[dict[str, Any]]:
    """The arguments that say which table, for a gateway to each catalog."""
    with database.backend.connect() as namespace, serve_app(create_app(Gateway(namespace))) as url:
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
    with hive.connect() as namespace, serve_app(create_app(Gateway(namespace))) as address:
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


def test_a_table_is_searched_with_a_filter_and_changed(url: str, on_hive: Database) -> None:
    write_by_pylance(on_hive, 10)
    with on_hive.backend.connect() as namespace:
        dataset = lance.dataset(namespace_client=namespace, table_id=on_hive.id("t"))
        dataset.create_scalar_index("text", "INVERTED")
    near = f"'vector', {[7.0] * 8}::FLOAT[8]"
    with attach(url, on_hive) as db:

        def ids(search: str) -> list[int]:
            return sorted(row[0] for row in db.execute(f"SELECT id FROM {search}").fetchall())

        search = f"lance_vector_search('ns.main.t', {near}, k = 3, prefilter = true, filter"
        assert ids(f"{search} = 'id > 7 and replace(text, ''number'', ''no'') LIKE ''%no9''')") == [
            9
        ]
        assert ids(f"{search} = 'id > 8') WHERE color <> 'red'") == []
        assert ids("lance_fts('ns.main.t', 'text', 'number4 number5', k = 5)") == [4, 5]
        assert 7 in ids(f"lance_hybrid_search('ns.main.t', {near}, 'text', 'number4', k = 3)")
        db.execute(
            "MERGE INTO ns.main.t USING (SELECT 1 AS id, 'gray' AS color) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET color = s.color"
        )
        db.execute("ALTER TABLE ns.main.t RENAME COLUMN text TO words")
        db.execute("ALTER TABLE ns.main.t ADD COLUMN extra INTEGER")
        db.execute("CREATE INDEX by_id ON ns.main.t (id) USING BTREE")
        names = {row[0] for row in db.execute("SHOW INDEXES ON ns.main.t").fetchall()}
        assert names == {"by_id", "text_idx"}
        query = "SELECT color, extra FROM ns.main.t WHERE id = 1"
        assert db.execute(query).fetchall() == [("gray", None)]
        db.execute("ALTER TABLE ns.main.t DROP COLUMN extra")
        db.execute("TRUNCATE TABLE ns.main.t")
        assert ids("ns.main.t") == []


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


# -- the lines to paste of docs/gateway-clients.md -------------------------------------------------


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, metastores: Metastores) -> Iterator[Reader]:
    with reader_after_python(tmp_path_factory.mktemp("page"), metastores) as found:
        found.environment |= RAY_ENVIRONMENT
        install_extension(found)
        yield found


def install_extension(reader: Reader) -> None:
    """Put the extension where DuckDB's `INSTALL lance` puts it, which downloads it."""
    [(platform,)] = duckdb.execute("PRAGMA platform").fetchall()
    target = reader.directory / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
    target.mkdir(parents=True)
    shutil.copy(extension_file(), target)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_lines_run(reader: Reader, title: str) -> None:
    found = [each for each in section(title) if each.language == "python"]
    assert len(found) == SECTIONS[title]
    for block in found:
        printed = reader.run([sys.executable, "-c", reader.here(block.text)]).splitlines()
        assert [line for line in printed if line.strip() and PROGRESS not in line] == block.printed
        assert block.printed
