"""Lance tables beside ordinary ones of the same metastore, which are in Spark's own catalog."""

from __future__ import annotations

from typing import Any

from .sql_helpers import Database


def check_ordinary_tables_are_joined_with_and_never_touched(db: Database) -> None:
    """Both kinds in one database, through both catalogs."""
    ordinary = f"spark_catalog.{db.namespace}.people"
    ours = f"{db.name}.scores"
    db.sql(f"DROP TABLE IF EXISTS {ordinary}")
    db.sql(f"DROP TABLE IF EXISTS {ours}")
    db.sql(f"CREATE TABLE {ordinary} (id BIGINT, name STRING) USING parquet")
    db.sql(f"INSERT INTO {ordinary} VALUES (1, 'ada'), (2, 'bob'), (3, 'eve')")
    before = db.sql(f"DESCRIBE TABLE EXTENDED {ordinary}").collect()
    db.sql(f"CREATE TABLE {ours} AS SELECT id, id * 10 AS score FROM {ordinary}")
    joined = db.sql(
        f"SELECT p.name, s.score FROM {ordinary} p JOIN {ours} s ON p.id = s.id ORDER BY p.id"
    )
    assert [tuple(row) for row in joined.collect()] == [("ada", 10), ("bob", 20), ("eve", 30)]
    db.sql(
        f"MERGE INTO {ours} t USING {ordinary} p ON t.id = p.id AND p.id > 2 "
        "WHEN MATCHED THEN UPDATE SET t.score = 0"
    )
    assert db.sql(f"SELECT sum(score) FROM {ours}").collect()[0][0] == 30
    names = [row.tableName for row in db.sql(f"SHOW TABLES IN {db.name}").collect()]
    assert "scores" in names, names
    assert "people" not in names, names
    in_hive = db.sql(f"SHOW TABLES IN spark_catalog.{db.namespace}").collect()
    assert "people" in [row.tableName for row in in_hive], in_hive
    for statement in ("SELECT * FROM", "DROP TABLE"):
        ordinary = f"{db.name}.people"
        assert "people" in db.fails(f"{statement} {ordinary}", "not a Lance table")
    db.sql(f"INSERT INTO {ordinary} SELECT id + 10, 'copied' FROM {ours}")
    assert db.spark.table(ordinary).count() == 6
    db.sql(f"DROP TABLE {ours}")
    assert db.spark.table(ordinary).count() == 6
    after = db.sql(f"DESCRIBE TABLE EXTENDED {ordinary}").collect()
    assert _without_counters(after) == _without_counters(before)


def _without_counters(described: list[Any]) -> list[tuple[Any, ...]]:
    """Leave out what a count or a read of Spark's may change."""
    changing = ("Last Access", "Statistics", "Table Properties")
    return [tuple(row) for row in described if row.col_name not in changing]


ONLY = "hive"
"""The one catalog that Spark has ordinary tables in by itself."""
