"""What the test of vended credentials lets Spark do in processes of its own."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions
from stores.short_lived import SECONDS

from lance_bridge_spark.registration import register

FILES = 6


def write_and_read(spark: Any, table: str) -> list[int]:
    """Write and read a table in SQL and as a frame, in tasks longer than credentials last.

    Returns:
        The rows that SQL counts, and those that the data source reads.
    """
    register(spark)
    spark.sql(f"CREATE TABLE {table} (id BIGINT)")
    slowly = functions.udf(_pass_slowly, "long")
    numbers = spark.range(0, FILES, numPartitions=2).withColumn("id", slowly("id"))
    numbers.createOrReplaceTempView("numbers")
    spark.sql(f"INSERT INTO {table} SELECT id FROM numbers")
    numbers.write.format("lance").mode("append").save(table)
    [[counted]] = spark.sql(f"SELECT count(*) FROM {table}").collect()
    read = spark.read.format("lance").load(table)
    return [counted, len(read.collect())]


def _pass_slowly(number: int) -> int:
    import time  # noqa: PLC0415 - runs in workers

    time.sleep(SECONDS / 2)
    return number
