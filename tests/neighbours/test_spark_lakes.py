"""A Lance table in a metastore beside tables of Delta, Iceberg and Parquet that Spark made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from migrate.places import hive_reader
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from servers.metastores import Metastores
from servers.sparks import ICE, RELEASE, Spark, conf_of

from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1000)]

FORMATS = ("delta", "iceberg", "parquet")
STEPS = ("created", "written", "refreshed", "dropped")

NO_INPUT = "Failed to instantiate org.apache.hadoop.mapred.FileInputFormat"
NOT_FOUND = "[TABLE_OR_VIEW_NOT_FOUND]"
ERRORS = (NO_INPUT, NO_INPUT, "does not support DELETE", NOT_FOUND, NOT_FOUND)
"""Of the statements of `REFUSED`."""


@pytest.fixture(scope="module")
def seen(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a session saw after each step of the life of a Lance table."""
    metastore = metastores.get("2.3")
    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": metastore.uri,
        **conf_of(metastore.uri),
    }
    spark = Spark(release=RELEASE, conf=settings)
    root = str(directory / "lance")
    found: dict[str, Any] = spark.run(
        "neighbours.test_spark_lakes:see", directory, seconds=800, port=metastore.port, root=root
    )
    return found


@pytest.fixture(params=[False, True], ids=["no columns", "published columns"])
def publishes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=STEPS)
def step(request: pytest.FixtureRequest, seen: dict[str, Any], publishes: bool) -> dict[str, Any]:
    """What the session saw after a step, with the step's name."""
    found = seen[f"{request.param}, {'published' if publishes else 'no'} columns"]
    return {**found, "step": request.param}


def test_tables_of_delta_iceberg_and_parquet_stay_as_they_were(
    seen: dict[str, Any], step: dict[str, Any]
) -> None:
    before = seen["before"]
    assert before["rows"] == {name: [[1, "a"], [2, "b"]] for name in FORMATS}
    assert step["rows"] == before["rows"]
    assert step["entries"] == before["entries"]


def test_spark_lists_it_and_the_iceberg_catalog_does_not(
    seen: dict[str, Any], step: dict[str, Any]
) -> None:
    ours = [] if step["step"] == "dropped" else ["ours"]
    before = seen["before"]
    assert step["names"]["spark_catalog"] == sorted([*before["names"]["spark_catalog"], *ours])
    assert step["names"]["ice"] == before["names"]["ice"] == ["iceberg"]
    assert step["extended"] == sorted([*before["extended"], *ours])


@pytest.mark.parametrize("step", STEPS[:-1], indirect=True)
def test_spark_describes_published_columns_and_refuses_the_rest(
    step: dict[str, Any], publishes: bool
) -> None:
    assert step["columns"] == (["id", "vector"] if publishes else [])
    for error, expected in zip(step["errors"], ERRORS, strict=True):
        assert error is not None
        assert expected in error


# -- what Spark sees -------------------------------------------------------------------------------


DATABASE = "lakes"
CATALOGS = {"delta": "spark_catalog", "iceberg": ICE, "parquet": "spark_catalog"}
"""The tables that Spark makes, by their formats, and the catalogs that read them."""
REFUSED = (
    "SELECT * FROM spark_catalog.{table}",
    "SELECT count(*) FROM spark_catalog.{table}",
    "DELETE FROM spark_catalog.{table}",
    f"SELECT * FROM {ICE}.{{table}}",
    f"DROP TABLE {ICE}.{{table}}",
)
"""What Spark does not do with a Lance table."""
OURS = [DATABASE, "ours"]
ROWS = pa.table(
    {"id": pa.array([1, 2, 3]), "vector": pa.array([[0.0, 1.0]] * 3, pa.list_(pa.float32(), 2))}
)


def see(spark: SparkSession, port: int, root: str) -> dict[str, Any]:
    """Return what Spark sees after each step of the life of a Lance table."""
    look = Look(spark, port)
    calls = Calls(HiveNamespace(uri=f"thrift://127.0.0.1:{port}", root=root))
    calls.create_namespace([DATABASE])
    for name, catalog in CATALOGS.items():
        table = f"{catalog}.{DATABASE}.{name}"
        spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING {name}")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    seen = {"before": look.other_tables()}
    for publishes in (False, True):
        for step in live(calls, publishes=publishes):
            name = f"{step}, {'published' if publishes else 'no'} columns"
            seen[name] = {
                **look.other_tables(),
                **(look.lance_table() if step != "dropped" else {}),
            }
    for name, catalog in CATALOGS.items():
        spark.sql(f"DROP TABLE {catalog}.{DATABASE}.{name}")
    calls.drop_namespace([DATABASE])
    return seen


def live(calls: Calls, *, publishes: bool) -> Iterator[str]:
    """Create, write, refresh and drop a table, and yield what was done after each."""
    properties = {"publish.columns": "true"} if publishes else {}
    calls.create_table(OURS, ROWS, properties=properties)
    yield "created"
    calls.call("insert_into_table", OURS, ROWS)
    yield "written"
    client = calls.client
    assert isinstance(client, HiveNamespace)
    client.tables.load(client.tables.path_of(OURS)).refresh_entry()
    assert calls.count(OURS) == 2 * ROWS.num_rows
    yield "refreshed"
    calls.drop_table(OURS)
    yield "dropped"


class Look:
    """What a session sees of a database."""

    def __init__(self, spark: SparkSession, port: int) -> None:
        self._spark = spark
        self._read = hive_reader(port)

    def other_tables(self) -> dict[str, Any]:
        """Return the listings, the rows and columns of Spark's tables, and their entries."""
        entries = self._read(DATABASE)
        return {
            "names": {
                catalog: self._column(f"SHOW TABLES IN {catalog}.{DATABASE}", "tableName")
                for catalog in ("spark_catalog", ICE)
            },
            "extended": self._column(f"SHOW TABLE EXTENDED IN {DATABASE} LIKE '*'", "tableName"),
            "rows": {
                name: sorted(map(list, self._spark.table(f"{catalog}.{DATABASE}.{name}").collect()))
                for name, catalog in CATALOGS.items()
            },
            "entries": {name: entries[f"{DATABASE}.{name}"] for name in CATALOGS},
        }

    def lance_table(self) -> dict[str, Any]:
        """Return the columns and errors that Spark has for the Lance table."""
        table = f"{DATABASE}.ours"
        return {
            "columns": self._column(f"DESCRIBE TABLE {table}", "col_name"),
            "errors": [self._error_of(each.format(table=table)) for each in REFUSED],
        }

    def _column(self, statement: str, name: str) -> list[str]:
        return sorted(row[name] for row in self._spark.sql(statement).collect())

    def _error_of(self, statement: str) -> str | None:
        try:
            self._spark.sql(statement).collect()
        except (PySparkException, Py4JJavaError) as error:
            return str(error)[:300]
        return None
