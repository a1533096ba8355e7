"""Spark's own catalog beside Lance tables with published columns: it shows them, and reads none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from migrate.sessions import beside
from pyspark.sql import SparkSession
from servers.hive_entries import raw_entry
from servers.metastores import Metastores

from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace
from lance_bridge_spark.registration import register

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.spec("common.md#published-columns", "common.md#fields-for-other-tools"),
]

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
QUERIES = ("SELECT * FROM {}", "SELECT count(*) FROM {}", "SELECT name FROM {} WHERE id = 1")


def look(spark: Any, database: str) -> dict[str, Any]:
    """Return what Spark shows of the tables of a database, and how its queries of ours end."""
    found: dict[str, Any] = {}
    for name in ("published", "plain"):
        rows = spark.sql(f"DESCRIBE {database}.{name}").collect()
        found[name] = [(row["col_name"], row["data_type"]) for row in rows]
        for query in QUERIES:
            for statistics in ("false", "true"):
                spark.conf.set("spark.sql.cbo.enabled", statistics)
                spark.conf.set("spark.sql.optimizer.metadataOnly", statistics)
                try:
                    answer = str(spark.sql(query.format(f"{database}.{name}")).collect())
                except Exception as error:  # noqa: BLE001 - whatever Spark raises is its answer
                    answer = f"refused: {error}"
                found[f"{name}: {query} {statistics}"] = answer
    shown = spark.sql(f"SHOW TABLE EXTENDED IN {database} LIKE '*'").collect()
    found["shown"] = sorted(row["tableName"] for row in shown)
    spark.sql(f"CREATE TABLE {database}.theirs USING parquet AS SELECT 1 AS id")
    found["theirs"] = spark.table(f"{database}.theirs").count()
    return found


@pytest.fixture(scope="module")
def seen(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    uri, directory = metastores.get("2.3").uri, tmp_path_factory.mktemp("published")
    database = f"published_{uuid.uuid4().hex[:8]}"
    with closing(Calls(HiveNamespace(uri=uri))) as calls:
        place = {"database.location-uri": f"file:{directory}/lake"}
        calls.create_namespace([database], properties=place)
        on = {"publish.columns": "true"}
        calls.create_table([database, "published"], ROWS, properties=on)
        calls.create_table([database, "plain"], ROWS)
        yield beside(uri).run("spark.test_published:look", directory / "spark", database=database)
        for name in ("published", "plain"):
            calls.drop_table([database, name])


def test_describe_shows_published_columns(seen: dict[str, Any]) -> None:
    assert [tuple(each) for each in seen["published"][:2]] == [("id", "bigint"), ("name", "string")]
    assert seen["plain"] == []


@pytest.mark.parametrize("name", ["published", "plain"])
def test_no_query_returns_rows(seen: dict[str, Any], name: str) -> None:
    answers = {key: answer for key, answer in seen.items() if key.startswith(f"{name}: ")}
    assert len(answers) == 2 * len(QUERIES)
    assert {
        key: answer for key, answer in answers.items() if not answer.startswith("refused")
    } == {}


def test_other_tables_are_listed_and_read(seen: dict[str, Any]) -> None:
    assert seen["shown"] == ["plain", "published"]
    assert seen["theirs"] == 1


def test_writes_of_spark_publish_columns(
    spark: SparkSession, metastores: Metastores, tmp_path: Path
) -> None:
    metastore = metastores.get("2.3")
    name, database = f"hive_{uuid.uuid4().hex[:8]}", f"written_{uuid.uuid4().hex[:8]}"
    register(spark, {name: {"impl": "hive", "uri": metastore.uri, "root": str(tmp_path)}})
    spark.sql(f"CREATE NAMESPACE {name}.{database}")
    table = f"{name}.{database}.t"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, v ARRAY<FLOAT>) "
        "TBLPROPERTIES ('publish.columns' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, array(0.5F)), (2, NULL)")
    published = raw_entry(metastore.port, database, "t")
    columns = [("id", "bigint"), ("v", "array<float>")]
    assert [(each.name, each.type) for each in published.sd.cols] == columns
    assert published.parameters["numRows"] == "2"
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (twice BIGINT)")
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    published = raw_entry(metastore.port, database, "t")
    assert [each.name for each in published.sd.cols] == ["id", "v", "twice"]
    assert published.parameters["numRows"] == "1"
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"DROP NAMESPACE {name}.{database}")
