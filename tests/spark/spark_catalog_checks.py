"""Lance tables beside ordinary ones of the same metastore, which are in Spark's own catalog."""

from __future__ import annotations

from typing import Any

from .sql_helpers import fails


def check_ordinary_tables_are_joined_with_and_never_touched(
    spark: Any, catalog: str, namespace: str
) -> None:
    """Both kinds in one database, through both catalogs."""
    ordinary = f"spark_catalog.{namespace}.people"
    ours = f"{catalog}.{namespace}.scores"
    spark.sql(f"DROP TABLE IF EXISTS {ordinary}")
    spark.sql(f"DROP TABLE IF EXISTS {ours}")
    spark.sql(f"CREATE TABLE {ordinary} (id BIGINT, name STRING) USING parquet")
    spark.sql(f"INSERT INTO {ordinary} VALUES (1, 'ada'), (2, 'bob'), (3, 'eve')")
    before = spark.sql(f"DESCRIBE TABLE EXTENDED {ordinary}").collect()
    spark.sql(f"CREATE TABLE {ours} AS SELECT id, id * 10 AS score FROM {ordinary}")
    joined = spark.sql(
        f"SELECT p.name, s.score FROM {ordinary} p JOIN {ours} s ON p.id = s.id ORDER BY p.id"
    )
    assert [tuple(row) for row in joined.collect()] == [("ada", 10), ("bob", 20), ("eve", 30)]
    spark.sql(
        f"MERGE INTO {ours} t USING {ordinary} p ON t.id = p.id AND p.id > 2 "
        "WHEN MATCHED THEN UPDATE SET t.score = 0"
    )
    assert spark.sql(f"SELECT sum(score) FROM {ours}").collect()[0][0] == 30
    names = [row.tableName for row in spark.sql(f"SHOW TABLES IN {catalog}.{namespace}").collect()]
    assert "scores" in names, names
    assert "people" not in names, names
    in_hive = spark.sql(f"SHOW TABLES IN spark_catalog.{namespace}").collect()
    assert "people" in [row.tableName for row in in_hive], in_hive
    for statement in ("SELECT * FROM", "DROP TABLE"):
        theirs = f"{catalog}.{namespace}.people"
        assert "people" in fails(spark, f"{statement} {theirs}", "not a Lance table")
    spark.sql(f"INSERT INTO {ordinary} SELECT id + 10, 'copied' FROM {ours}")
    assert spark.table(ordinary).count() == 6
    spark.sql(f"DROP TABLE {ours}")
    assert spark.table(ordinary).count() == 6
    after = spark.sql(f"DESCRIBE TABLE EXTENDED {ordinary}").collect()
    assert _lasting(after) == _lasting(before)


def _lasting(described: list[Any]) -> list[tuple[Any, ...]]:
    """Leave out what a count or a read of Spark's may change."""
    changing = ("Last Access", "Statistics", "Table Properties")
    return [tuple(row) for row in described if row.col_name not in changing]


ONLY = "hive"
"""The one catalog that Spark has ordinary tables in by itself."""
CHECKS = (check_ordinary_tables_are_joined_with_and_never_touched,)
