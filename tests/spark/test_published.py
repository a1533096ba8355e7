"""Spark's own catalog beside Lance tables with published columns: it shows them, and reads none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from migrate.sessions import beside
from servers.metastores import Metastores

from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace

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
