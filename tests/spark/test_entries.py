"""Entries of Lance tables as Spark reads them: beside its own, published, and without data."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import lance
import pyarrow as pa
import pytest
from lance_namespace import DeclareTableRequest
from lance_namespace.errors import InvalidTableStateError
from migrate.sessions import beside
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType
from servers.hive_entries import raw_entry
from servers.metastores import Metastores

from lance_bridge.arrow_types import columns_of
from lance_bridge.catalog import TableRecord
from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace
from lance_bridge_spark.addresses import catalogs_of
from lance_bridge_spark.registration import register
from lance_bridge_unity import mapping

from .sql_helpers import Database, failure_of

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "common.md#shared-locations",
        "unity.md#columns",
        "common.md#published-columns",
        "common.md#fields-for-other-tools",
        "common.md#presence-of-data",
        "spark.md#errors",
    ),
]

NESTED = pa.struct([("a b", pa.int64()), ("c`d", pa.list_(pa.struct([("1:e", pa.string())])))])
SCHEMAS = {
    "no columns": None,
    "one string": pa.schema([("name", pa.string())]),
    "the column of text": pa.schema([("value", pa.large_string())]),
    "strings": pa.schema([("a", pa.string()), ("b", pa.string())]),
    "a string and more": pa.schema([("a", pa.string()), ("b", pa.int64())]),
    "nested": pa.schema([("n", NESTED)]),
}
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
QUERIES = ("SELECT * FROM {}", "SELECT count(*) FROM {}", "SELECT name FROM {} WHERE id = 1")
MISSING = "is missing: there is no version at"
SECONDS = 900.0
"""Half a minute on a machine that does nothing else."""


@pytest.mark.parametrize("case", SCHEMAS)
def test_sparks_reader_of_text_refuses_the_columns_of_an_entry(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    place = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"name": ["a", "b", "c"]}), place)
    schema = SCHEMAS[case]
    columns = columns_of(schema) if schema is not None else ()
    body = mapping.table_body(("c", "s", "t"), TableRecord((), f"file://{place}", columns=columns))
    fields = [StructField.fromJson(json.loads(each["type_json"])) for each in body["columns"]]
    for each, field in zip(body["columns"], fields, strict=True):
        # As Unity's connector for Spark reads it, which has no look at `type_json`.
        assert DataType.fromDDL(each["type_text"]) == field.dataType
    reader = spark.read.format(body["data_source_format"].lower()).schema(StructType(fields))
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"):
        reader.load(place).count()


# -- tables of Spark's own -------------------------------------------------------------------------

Made = tuple[Calls, str, dict[str, str]]
FORMATS = ("parquet", "orc", "json", "csv")


def make_tables(spark: Any, database: str, directory: str) -> dict[str, str]:
    """Make a database with tables; return the directory of each by its name."""
    spark.sql(f"CREATE DATABASE {database} LOCATION 'file:{directory}/db'")
    rows = spark.range(4).selectExpr("id", "cast(id as string) AS s")
    rows.createOrReplaceTempView("rows")
    made = {}
    for format_ in FORMATS:
        rows.write.format(format_).saveAsTable(f"{database}.{format_}_managed")
        made[f"{format_}_managed"] = f"{directory}/db/{format_}_managed"

        place = f"{directory}/{format_}"
        rows.write.format(format_).option("path", place).saveAsTable(f"{database}.{format_}_path")
        made[f"{format_}_path"] = place

        name = f"{format_}_by_sql"
        spark.sql(
            f"CREATE TABLE {database}.{name} USING {format_} "
            f"LOCATION 'file:{directory}/{name}' AS SELECT * FROM rows"
        )
        made[name] = f"{directory}/{name}"
    text = rows.select("s").write.format("text").option("path", f"{directory}/text")
    text.saveAsTable(f"{database}.text_path")
    made["text_path"] = f"{directory}/text"

    parts = rows.write.format("json").partitionBy("s").option("path", f"{directory}/parts")
    parts.saveAsTable(f"{database}.partitioned")
    made["partitioned"] = f"{directory}/parts"

    buckets = rows.write.bucketBy(2, "id").option("path", f"{directory}/buckets")
    buckets.saveAsTable(f"{database}.bucketed")
    made["bucketed"] = f"{directory}/buckets"

    spark.sql(
        f"CREATE TABLE {database}.hive_orc (id BIGINT) PARTITIONED BY (s STRING) STORED AS ORC "
        f"LOCATION 'file:{directory}/hive_orc'"
    )
    spark.sql(f"INSERT INTO {database}.hive_orc PARTITION (s = 'x') VALUES (1)")
    spark.sql(
        f"ALTER TABLE {database}.hive_orc ADD PARTITION (s = 'y') "
        f"LOCATION 'file:{directory}/elsewhere'"
    )
    made["hive_orc"] = f"{directory}/hive_orc"
    return made


@pytest.fixture(scope="module")
def made(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A client, a database of it, and the directories of Spark's tables by their names."""
    uri, directory = metastores.get("2.3").uri, tmp_path_factory.mktemp("neighbours")
    database = f"spark_{uuid.uuid4().hex[:8]}"
    found = beside(uri).run(
        "spark.test_entries:make_tables",
        directory / "spark",
        database=database,
        directory=str(directory / "lake"),
    )
    with closing(Calls(HiveNamespace(uri=uri))) as calls:
        yield calls, database, found


def files_of(directory: Path) -> set[Path]:
    return {each for each in directory.rglob("*") if each.is_file()}


@pytest.mark.parametrize("inside", ["", "day=1/mine.lance"])
def test_no_file_of_spark_s_tables_is_deleted(made: Made, inside: str) -> None:
    calls, database, directories = made
    assert len(directories) > 15
    for name, directory in directories.items():
        location = Path(directory, inside)
        lance.write_dataset(ROWS, location)
        before = files_of(Path(directory))
        mine = [database, f"mine_{name}_{len(inside)}"]
        calls.register_table(mine, str(location))
        with pytest.raises(InvalidTableStateError, match=f"overlaps that of '{database}.{name}'"):
            calls.drop_table(mine)
        assert files_of(Path(directory)) == before
        calls.deregister_table(mine)


def test_a_partition_elsewhere_keeps_its_files(made: Made) -> None:
    calls, database, directories = made
    location = Path(directories["hive_orc"]).parent / "elsewhere"
    lance.write_dataset(ROWS, location)
    (location / "000000_0").write_text("a file of ORC")
    mine = [database, "mine_elsewhere"]
    calls.register_table(mine, str(location))
    with pytest.raises(InvalidTableStateError, match=r"partition of '.*hive_orc'"):
        calls.drop_table(mine)
    assert (location / "000000_0").exists()
    calls.deregister_table(mine)


# -- published columns in Spark's own catalog ------------------------------------------------------


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
    spark.sql(f"CREATE TABLE {database}.parquet_table USING parquet AS SELECT 1 AS id")
    found["parquet_table"] = spark.table(f"{database}.parquet_table").count()
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
        yield beside(uri).run("spark.test_entries:look", directory / "spark", database=database)
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
    assert seen["parquet_table"] == 1


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


# -- missing data ----------------------------------------------------------------------------------


def lost(db: Database) -> tuple[str, Path]:
    """Return a table whose directory was deleted, and the directory."""
    table = db.fresh("lost")
    db.sql(f"CREATE TABLE {table} (id INT, word STRING) USING lance")
    db.sql(f"INSERT INTO {table} VALUES (1, 'one')")
    place = Path(urlparse(db.described(table)["Location"]).path)
    shutil.rmtree(place)
    db.spark.catalog.clearCache()
    return table, place


def check_no_statement_reads_or_writes_missing_data(db: Database) -> None:
    table, place = lost(db)
    for statement in (
        f"SELECT * FROM {table}",
        f"SELECT count(*) FROM {table}",
        f"INSERT INTO {table} VALUES (2, 'two')",
        f"INSERT OVERWRITE {table} VALUES (2, 'two')",
        f"DELETE FROM {table}",
        f"UPDATE {table} SET id = 3",
        f"CREATE OR REPLACE TABLE {table} USING lance AS SELECT 1 AS id",
    ):
        assert str(place) in db.fails(statement, MISSING)
    new = db.spark.createDataFrame([(2, "two")], "id INT, word STRING")
    for write in (
        lambda: new.writeTo(table).append(),
        lambda: new.writeTo(table).createOrReplace(),
        lambda: new.write.format("lance").mode("append").saveAsTable(table),
    ):
        assert MISSING in (failure_of(write) or "it was written")
    assert not place.exists()


def check_missing_data_is_dropped_and_created_again(db: Database) -> None:
    table, _ = lost(db)
    db.sql(f"DROP TABLE {table}")
    db.sql(f"CREATE TABLE {table} (id INT) USING lance")
    db.sql(f"INSERT INTO {table} VALUES (4)")
    assert db.values(f"SELECT id FROM {table}") == [4]


def check_a_directory_above_that_is_gone_is_not_missing_data(db: Database) -> None:
    table, place = lost(db)
    away = place.parent.with_name(f"{place.parent.name}-away")
    place.parent.rename(away)
    for statement in (f"SELECT * FROM {table}", f"INSERT INTO {table} VALUES (2, 'two')"):
        assert MISSING not in db.fails(statement, "check that its disk is mounted")
    assert not place.parent.exists()
    away.rename(place.parent)


def check_the_data_source_refuses_missing_data(db: Database) -> None:
    table, place = lost(db)
    new = db.spark.createDataFrame([(2, "two")], "id INT, word STRING")
    name = table.removeprefix(f"{db.catalog}.")
    read = db.spark.read.format("lance").option("catalog", db.catalog)
    assert MISSING in (failure_of(lambda: read.load(name).collect()) or "it was read")
    write = new.write.format("lance").option("catalog", db.catalog).mode("append")
    assert MISSING in (failure_of(lambda: write.save(name)) or "it was written")
    assert not place.exists()


def check_a_declared_table_takes_its_first_write(db: Database) -> None:
    table = db.fresh("declared")
    path = [*db.namespace.split("."), "declared"]
    catalogs_of(db.spark)[db.catalog].connect().declare_table(DeclareTableRequest(id=path))
    new = db.spark.createDataFrame([(5,)], "id INT")
    write = new.write.format("lance").option("catalog", db.catalog).mode("append")
    write.save(table.removeprefix(f"{db.catalog}."))
    assert db.rows(f"SELECT id FROM {table}") == [(5,)]


@pytest.fixture(scope="module")
def wrong(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The traces of the checks that failed, by their names."""
    uri = metastores.get("2.3").uri
    prefix = "spark.sql.catalog.lake"
    session = beside(uri, {f"{prefix}.impl": "hive", f"{prefix}.uri": uri})
    found = session.run(
        "spark.sql_helpers:checks",
        tmp_path_factory.mktemp("spark"),
        seconds=SECONDS,
        modules=["spark.test_entries"],
        catalogs={"lake": ["missing_data"]},
    )
    return {name.removeprefix("lake: "): trace for name, trace in found.items()}


@pytest.mark.parametrize("name", [each for each in list(globals()) if each.startswith("check_")])
def test_spark_passes(name: str, wrong: dict[str, str]) -> None:
    assert name not in wrong, wrong[name]
