"""Checks of what people do with tables of other formats: evolution, dynamic overwrites, and so on.

See `sql_checks` for how they are called.
"""

from __future__ import annotations

import lance
import pytest
from py4j.protocol import Py4JJavaError

from .sql_helpers import Database, failure_of, setting


def release(db: Database) -> tuple[int, int]:
    """Return Spark's release, such as (4, 1)."""
    major, minor = db.spark.version.split(".")[:2]
    return int(major), int(minor)


def check_a_merge_evolves_the_table(db: Database) -> None:
    table = db.made("evolved", "(id BIGINT, name STRING, small INT)")
    db.sql(f"INSERT INTO {table} VALUES (1, 'a', 1), (2, 'b', 2)")

    def merge(*columns: str) -> str:
        source = " UNION ALL ".join(f"SELECT {each}" for each in columns)
        return (
            f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING ({source}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    db.sql(merge("2L AS id, 'B' AS name, 3000000000L AS small, 0.5D AS size", "3L, 'c', 3L, 1.5D"))
    found = [(1, "a", 1, None), (2, "B", 3_000_000_000, 0.5), (3, "c", 3, 1.5)]
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == found
    assert [each[:2] for each in db.columns(table)][2:] == [
        ("small", "bigint"),
        ("size", "double"),
    ]
    # Of the wrong type, the new column is not added either.
    wrong = "4 AS id, 'd' AS name, 4L AS small, 1.0D AS size, true AS other"
    assert "CAST" in db.fails(merge(wrong), "cannot make column 'id'")
    db.fails(merge("4L AS id, 4 AS name, 4L AS small, 1.0D AS size"), "cannot make column")
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == found


def check_an_insert_evolves_the_table_or_is_refused(db: Database) -> None:
    table = db.made("evolved_too", "(id BIGINT)")
    db.sql(f"INSERT INTO {table} VALUES (1)")
    insert = f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 'b' AS name, 2L AS id"
    if release(db) < (4, 2):
        db.fails(insert, "EVOLUTION")
        assert db.rows(f"SELECT * FROM {table}") == [(1,)]
        return
    db.sql(insert)
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == [(1, None), (2, "b")]
    db.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} SELECT 3L, 'c', DATE'2026-01-02' AS day")
    assert db.values(f"SELECT name FROM {table} ORDER BY id") == [None, "b", "c"]
    assert len(db.columns(table)) == 3


def check_rows_with_other_columns_are_refused(db: Database) -> None:
    table = db.made("as_it_is", "(id BIGINT)")
    more = db.sql("SELECT 1L AS id, 'a' AS name")
    for action, words in (
        (lambda: more.writeTo(table).append(), "_COLUMNS"),
        (lambda: more.writeTo(table).option("mergeSchema", "true").append(), "_COLUMNS"),
        (lambda: more.write.mode("append").saveAsTable(table), "_COLUMNS"),
        (
            lambda: db.sql(f"INSERT INTO {table} BY NAME SELECT 1L AS id, 2 AS b"),
            "_COLUMNS",
        ),
        (
            lambda: db.spark.range(1).writeTo(table).option("mergeSchema", "true").append(),
            "WITH SCHEMA EVOLUTION",
        ),
    ):
        found = str(failure_of(action))
        assert words in found, found
    assert db.rows(f"SELECT * FROM {table}") == []


def check_dynamic_overwrites_replace_all_rows(db: Database) -> None:
    table = db.made("overwritten", "AS SELECT id FROM range(3)")
    frame = db.spark.range(10, 12)
    with setting(db.spark, "spark.sql.sources.partitionOverwriteMode", "dynamic"):
        db.sql(f"INSERT OVERWRITE {table} SELECT 7L")
        assert db.values(f"SELECT id FROM {table}") == [7]
        frame.write.insertInto(table, overwrite=True)
        assert db.values(f"SELECT id FROM {table} ORDER BY id") == [10, 11]
        db.sql(f"INSERT OVERWRITE {table} SELECT id + 1 FROM {table}")
        assert db.values(f"SELECT id FROM {table} ORDER BY id") == [11, 12]
    frame.writeTo(table).overwritePartitions()
    assert db.values(f"SELECT id FROM {table} ORDER BY id") == [10, 11]
    writer = frame.write.format("lance").mode("overwrite")
    writer.option("partitionOverwriteMode", "dynamic").saveAsTable(table)
    assert db.values(f"SELECT id FROM {table} ORDER BY id") == [10, 11]
    db.spark.range(0).writeTo(table).overwritePartitions()
    assert db.values(f"SELECT count(*) FROM {table}") == [0]


def check_a_branch_is_read_by_its_name(db: Database) -> None:
    table = db.made("branched", "AS SELECT id FROM range(2)")
    dataset = lance.dataset(db.described(table)["Location"].removeprefix("file:"))
    dataset.create_branch("dev/one", dataset.version)
    dataset.tags.create("first", dataset.version)
    db.sql(f"INSERT INTO {table} VALUES (2)")
    db.sql(f"ALTER TABLE {table} ADD COLUMN name STRING")
    branch = f"SELECT * FROM {table} VERSION AS OF 'dev/one' ORDER BY id"
    assert db.rows(branch) == [(0,), (1,)]
    writer = db.spark.range(5, 6).write.format("lance").option("branch", "dev/one")
    writer.mode("append").save(table)
    assert db.rows(branch) == [(0,), (1,), (5,)]
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 'dev/one'") == [3]
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 'first'") == [2]
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 'main'") == [3]
    none = f"SELECT * FROM {table} VERSION AS OF 'none'"
    db.fails(none, "has no tag and no branch 'none'")


def check_writers_that_create_name_the_format(db: Database) -> None:
    table = db.fresh("no_format")
    frame = db.spark.range(2)
    named = failure_of(lambda: frame.write.saveAsTable(table))
    assert named is not None
    assert '.format("lance")' in named, named
    db.fails(f"CREATE TABLE {table} USING parquet AS SELECT 1 AS id", "USING lance")
    db.fails(f"SELECT * FROM {table}", "NOT_FOUND")
    frame.write.format("lance").saveAsTable(table)
    frame.write.mode("append").saveAsTable(table)
    assert db.values(f"SELECT count(*) FROM {table}") == [4]


def check_a_table_is_made_like_another(db: Database) -> None:
    source = db.fresh("pattern")
    table = db.fresh("likeness")
    db.sql(
        f"CREATE TABLE {source} (id BIGINT NOT NULL COMMENT 'Key', v ARRAY<FLOAT>) "
        "TBLPROPERTIES ('vector.v' = '2')"
    )
    db.sql(f"INSERT INTO {source} VALUES (1, array(1f, 2f))")
    like = f"CREATE TABLE {table} LIKE {source}"
    if release(db) < (4, 2):
        db.fails(like, "PARSE_SYNTAX_ERROR")
        db.sql(f"CREATE TABLE {table} AS SELECT * FROM {source} LIMIT 0")
    else:
        db.sql(like)
        db.sql(f"CREATE TABLE IF NOT EXISTS {table} LIKE {source}")
        db.fails(like, "ALREADY_EXISTS")
        assert db.columns(table) == db.columns(source)
        assert not db.spark.table(table).schema["id"].nullable
    assert db.rows(f"SELECT * FROM {table}") == []
    db.fails(f"INSERT INTO {table} VALUES (1, array(1f))", "2")


def check_views_of_sparks_own_catalog_read_tables(db: Database) -> None:
    table = db.made("behind_a_view", "AS SELECT id FROM range(3)")
    view = "spark_catalog.default.lance_bridge_view"
    db.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT id * 2 AS twice FROM {table}")
    try:
        db.sql(f"INSERT INTO {table} VALUES (3)")
        assert db.values(f"SELECT twice FROM {view} ORDER BY twice") == [0, 2, 4, 6]
    finally:
        db.sql(f"DROP VIEW {view}")


def check_what_spark_does_not_do_for_such_catalogs_is_refused(db: Database) -> None:
    table = db.made("untouched", "AS SELECT id FROM range(3)")
    view = f"{db.name}.a_view"
    for statement, words in (
        (f"DESCRIBE TABLE EXTENDED {table} AS JSON", ("JSON",)),
        (f"ANALYZE TABLE {table} COMPUTE STATISTICS", ("ANALYZE TABLE",)),
        (f"MSCK REPAIR TABLE {table}", ("REPAIR TABLE",)),
    ):
        db.fails(statement, *words)
    create_view = f"CREATE VIEW {view} AS SELECT 1 AS one"
    has_hive = db.spark.conf.get("spark.sql.catalogImplementation") == "hive"
    if release(db) >= (4, 3) and has_hive:
        with pytest.raises(Py4JJavaError, match=r"ClassCastException.*ViewCatalog"):
            db.sql(create_view)
    else:
        db.fails(create_view, "VIEW")
    assert db.values(f"SELECT count(*) FROM {table}") == [3]


def check_rows_are_written_in_the_order_of_the_table(db: Database) -> None:
    table = db.made(
        "ordered", "(id BIGINT, word STRING) TBLPROPERTIES ('write.order_by' = 'word DESC, id')"
    )
    db.sql(f"INSERT INTO {table} SELECT id, char(65 + id * 7 % 13) FROM range(0, 100, 1, 4)")
    stored = f"SELECT _rowaddr >> 32 AS fragment, word, id FROM {table} ORDER BY _rowaddr"
    ordered = f"SELECT _rowaddr >> 32 AS fragment, word, id FROM {table} ORDER BY 1, 2 DESC, 3"
    assert db.rows(stored) == db.rows(ordered)
    db.fails(f"CREATE TABLE {table}_2 (id INT) TBLPROPERTIES ('write.order_by' = 'x')", "x")
