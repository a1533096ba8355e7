"""The data source in a session: what only Spark's own plans can show."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> str:
    """A hundred rows that Spark has written, in two fragments at least."""
    path = str(tmp_path / "t.lance")
    frame = spark.range(100).selectExpr("id", "id % 7 as k", "concat('w', id) as word")
    frame.repartition(2).write.format("lance").mode("append").save(path)
    return path


def test_a_frame_that_is_used_twice_gives_the_same_rows(spark: SparkSession, place: str) -> None:
    frame = spark.read.format("lance").load(place)
    assert frame.filter("id < 5").count() == 5
    assert frame.count() == 100
    few = frame.filter("id < 9").alias("a")
    assert few.join(frame.filter("id < 9").alias("b"), "id").count() == 9


def test_a_view_is_read_and_inserted_into(spark: SparkSession, place: str) -> None:
    spark.read.format("lance").load(place).createOrReplaceTempView("through")
    try:
        spark.sql("INSERT INTO through VALUES (1000, 6, 'last')")
        assert lance.dataset(place).count_rows() == 101
        lance.dataset(place).delete("id = 1000")
        spark.sql("INSERT OVERWRITE through SELECT id + 1, k, word FROM through")
        ids = lance.dataset(place).to_table()["id"].to_pylist()
        assert sorted(ids) == list(range(1, 101))
    finally:
        spark.catalog.dropTempView("through")


def test_a_task_that_fails_leaves_no_version(spark: SparkSession, place: str) -> None:
    before = lance.dataset(place).version
    frame = spark.range(100).selectExpr(
        "id", "id as k", "if(id = 99, raise_error('not this row'), 'w') as word"
    )
    with pytest.raises(Exception, match="not this row"):
        frame.repartition(2).write.format("lance").mode("append").save(place)
    assert lance.dataset(place).version == before


def test_an_error_names_what_to_do_in_sparks_style(spark: SparkSession, place: str) -> None:
    frame = spark.range(1).selectExpr("id", "id as k", "id as word", "1 as more")
    with pytest.raises(
        Exception,
        match=r"\[LANCE_TABLE_SCHEMA_VALIDATION\] The rows do not fit .* the table has no 'more'",
    ):
        frame.write.format("lance").mode("append").save(place)


def test_batches_without_columns_are_counted(spark: SparkSession, place: str) -> None:
    frame = spark.read.format("lance").option("columns", "k").load(place)
    assert frame.groupBy().count().first()[0] == 100  # type: ignore[index]  # there is a row
    assert frame.schema.fieldNames() == ["k"]


@pytest.mark.spec("spark.md#write-options")
def test_an_option_makes_vectors_of_lists_which_come_back_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "v")
    frame = spark.range(1000).selectExpr("id", "array(float(id), float(2)) as Emb")
    frame.write.format("lance").mode("append").option("vector.Emb", 2).save(path)
    assert lance.dataset(path).schema.field("Emb").type == pa.list_(pa.float32(), 2)
    again = spark.read.format("lance").load(path)
    assert again.exceptAll(frame).count() == 0
