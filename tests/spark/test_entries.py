"""Entries of Lance tables as Spark reads them, and beside tables that Spark has made."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError
from migrate.sessions import beside
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType
from servers.metastores import Metastores

from lance_bridge.catalog import TableRecord
from lance_bridge.spark_types import columns_of
from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace
from lance_bridge_unity import mapping

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("common.md#shared-locations", "unity.md#columns"),
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

ROWS = pa.table({"id": [1, 2, 3]})
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
