"""Types of Spark as they are stored: decimals, collations, vectors, and those that are refused."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from lance_bridge_spark.source.errors import LanceValueError

from .catalogs import unity_catalog
from .source_helpers import source

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.spec("spark.md#writing-types")]


def test_a_decimal_column_survives_many_batches(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(50_000).selectExpr("id", "cast(id as decimal(38,4)) / 3 as third")
    place = str(tmp_path / "t.lance")
    frame.write.format("lance").mode("append").save(place)
    again = spark.read.format("lance").load(place)
    assert again.exceptAll(frame).count() == 0
    assert again.count() == 50_000


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        (YearMonthIntervalType(), "cast it to its number of months"),
        (ArrayType(YearMonthIntervalType()), "cast it to its number of months"),
        (VariantType(), "to_json"),
        (StringType("UTF8_LCASE"), "collate UTF8_LCASE, .* cast it as STRING COLLATE UTF8_BINARY"),
        (ArrayType(StringType("UNICODE_CI")), "collate UNICODE_CI, .* no collations"),
        (MapType(StringType("UNICODE_CI"), LongType()), "no collations"),
        (StructType([StructField("s", StringType("UTF8_LCASE"))]), "no collations"),
    ],
)
def test_a_type_that_lance_has_no_place_for_is_refused_with_advice(
    tmp_path: Path, bad: DataType, hint: str
) -> None:
    made = source({"path": str(tmp_path / "t.lance")})
    with pytest.raises(LanceValueError, match=f"Column 'bad' has the type .*{hint}"):
        made.writer(StructType([StructField("bad", bad)]), overwrite=False)


def test_a_statement_with_a_refused_type_shows_the_advice_and_makes_no_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(1).selectExpr("parse_json('1') as bad")
    with pytest.raises(PySparkException, match=r"Column 'bad' has the type .*to_json"):
        frame.write.format("lance").mode("append").save(str(tmp_path / "t.lance"))
    assert not (tmp_path / "t.lance").exists()


COLLATED = "string collate UTF8_LCASE"


def test_a_table_with_a_collation_is_not_created(spark: SparkSession, tmp_path: Path) -> None:
    statements = (
        f"CREATE TABLE {{}} (id INT, name {COLLATED})",
        f"CREATE TABLE {{}} (id INT, names ARRAY<{COLLATED}>)",
        "CREATE TABLE {} (id INT, name VARCHAR(3) COLLATE UTF8_LCASE)",
        "CREATE TABLE {} (id INT, name STRING) DEFAULT COLLATION UTF8_LCASE",
        f"CREATE TABLE {{}} AS SELECT cast('Anna' as {COLLATED}) AS name",
    )
    with unity_catalog(spark, "collated", tmp_path) as catalog:
        for statement in statements:
            with pytest.raises(PySparkException, match="Lance has no collations"):
                spark.sql(statement.format(f"{catalog}.db.t"))
        assert spark.sql(f"SHOW TABLES IN {catalog}.db").collect() == []
        spark.sql(f"CREATE TABLE {catalog}.db.t (id INT, name VARCHAR(9))")
        for change in (f"ADD COLUMN other {COLLATED}", f"ALTER COLUMN name TYPE {COLLATED}"):
            with pytest.raises(PySparkException, match="Lance has no collations"):
                spark.sql(f"ALTER TABLE {catalog}.db.t {change}")
        # Into the columns of an existing table, values are stored as they are.
        spark.sql(f"INSERT INTO {catalog}.db.t SELECT 1, cast('Anna' as {COLLATED})")
        frame = spark.range(1).selectExpr("2 as id", f"cast('ANNA' as {COLLATED}) as name")
        frame.write.format("lance").mode("append").save(f"{catalog}.db.t")
        found = spark.sql(f"SELECT id FROM {catalog}.db.t WHERE name COLLATE UTF8_LCASE = 'anna'")
        assert sorted(row.id for row in found.collect()) == [1, 2]
        assert spark.table(f"{catalog}.db.t").where("name = 'Anna'").count() == 1


# -- vectors ---------------------------------------------------------------------------------------


def test_metadata_of_a_column_makes_vectors_of_lists(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    frame = spark.range(2).selectExpr("array(float(id)) as v")
    typed = frame.withMetadata("v", {"arrow.fixed-size-list.size": 1})
    typed.write.format("lance").mode("append").save(place)
    assert lance.dataset(place).schema.field("v").type == pa.list_(pa.float32(), 1)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.uint8()])
def test_the_schema_of_the_table_makes_vectors_of_lists(
    spark: SparkSession, tmp_path: Path, kind: pa.DataType
) -> None:
    place = str(tmp_path / "t.lance")
    empty = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.list_(kind, 2))]).empty_table()
    lance.write_dataset(empty, place)
    element = spark.read.format("lance").load(place).schema["v"].dataType.simpleString()
    frame = spark.sql(
        f"select * from values (1, cast(array(1, 2) as {element})), (2, null) as t(id, v)"
    ).selectExpr("v", "bigint(id) as id")
    frame.write.format("lance").mode("append").save(place)
    found = lance.dataset(place).to_table()
    assert found.schema.field("v").type == pa.list_(kind, 2)
    rows = sorted(found.to_pylist(), key=lambda row: int(row["id"]))
    assert rows == [{"id": 1, "v": [1, 2]}, {"id": 2, "v": None}]


def test_vectors_that_are_all_null_are_written(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    frame = spark.range(4).selectExpr("id", "cast(null as array<float>) as v")
    frame.write.format("lance").mode("append").option("vector.v", 8).save(place)
    assert lance.dataset(place).to_table()["v"].to_pylist() == [None] * 4


def test_a_vector_of_another_length_ends_the_write(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    frame = spark.range(4).selectExpr("array(1.0f, 1.0f) as v")
    with pytest.raises(Exception, match=r"Column 'v' has lists whose length is not 3"):
        frame.write.format("lance").mode("append").option("vector.v", 3).save(place)
    assert lance.dataset(place).count_rows() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vector.w": "2"}, "'vector.w' names a column that does not exist"),
        ({"vector.v": "0"}, "'vector.v' must be a whole number from 1"),
        ({"vector.v": "2147483648"}, "'v' must have 1 to 2147483647 numbers"),
        ({"vector.id": "2"}, "Column 'id' cannot hold vectors"),
    ],
)
def test_vectors_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    columns = StructType(
        [StructField("id", LongType()), StructField("v", ArrayType(FloatType(), False))]
    )
    with pytest.raises(LanceValueError, match=message):
        source({"path": str(tmp_path / "t"), **options}).writer(columns, overwrite=False)
