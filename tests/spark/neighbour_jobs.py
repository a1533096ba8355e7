"""Tables of Spark's own, in every way that people make them; called through `sparks`."""

from __future__ import annotations

from typing import Any

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
