"""Checks of what people do with tables of other formats: evolution, dynamic overwrites, and so on.

See `sql_checks` for how they are called.
"""

from __future__ import annotations

from typing import Any

import lance
import pytest
from py4j.protocol import Py4JJavaError

from .sql_helpers import columns, described, fails, failure_of, fresh, rows, setting, values


def release(spark: Any) -> tuple[int, int]:
    """Return Spark's release, such as (4, 1)."""
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)


def check_a_merge_evolves_the_table(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "evolved")
    spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING, small INT)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 1), (2, 'b', 2)")

    def merge(*columns: str) -> str:
        source = " UNION ALL ".join(f"SELECT {each}" for each in columns)
        return (
            f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING ({source}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    spark.sql(
        merge("2L AS id, 'B' AS name, 3000000000L AS small, 0.5D AS size", "3L, 'c', 3L, 1.5D")
    )
    found = [(1, "a", 1, None), (2, "B", 3_000_000_000, 0.5), (3, "c", 3, 1.5)]
    assert rows(spark, f"SELECT * FROM {table} ORDER BY id") == found
    assert [each[:2] for each in columns(spark, table)][2:] == [
        ("small", "bigint"),
        ("size", "double"),
    ]
    # Of the wrong type, the new column is not added either.
    wrong = "4 AS id, 'd' AS name, 4L AS small, 1.0D AS size, true AS other"
    assert "CAST" in fails(spark, merge(wrong), "cannot make column 'id'")
    fails(spark, merge("4L AS id, 4 AS name, 4L AS small, 1.0D AS size"), "cannot make column")
    assert rows(spark, f"SELECT * FROM {table} ORDER BY id") == found


def check_an_insert_evolves_the_table_or_is_refused(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "evolved_too")
    spark.sql(f"CREATE TABLE {table} (id BIGINT)")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    insert = f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 'b' AS name, 2L AS id"
    if release(spark) < (4, 2):
        fails(spark, insert, "EVOLUTION")
        assert rows(spark, f"SELECT * FROM {table}") == [(1,)]
        return
    spark.sql(insert)
    assert rows(spark, f"SELECT * FROM {table} ORDER BY id") == [(1, None), (2, "b")]
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} SELECT 3L, 'c', DATE'2026-01-02' AS day")
    assert values(spark, f"SELECT name FROM {table} ORDER BY id") == [None, "b", "c"]
    assert len(columns(spark, table)) == 3


def check_rows_with_other_columns_are_refused(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "as_it_is")
    spark.sql(f"CREATE TABLE {table} (id BIGINT)")
    more = spark.sql("SELECT 1L AS id, 'a' AS name")
    for action, words in (
        (lambda: more.writeTo(table).append(), "_COLUMNS"),
        (lambda: more.writeTo(table).option("mergeSchema", "true").append(), "_COLUMNS"),
        (lambda: more.write.mode("append").saveAsTable(table), "_COLUMNS"),
        (
            lambda: spark.sql(f"INSERT INTO {table} BY NAME SELECT 1L AS id, 2 AS b"),
            "_COLUMNS",
        ),
        (
            lambda: spark.range(1).writeTo(table).option("mergeSchema", "true").append(),
            "WITH SCHEMA EVOLUTION",
        ),
    ):
        found = str(failure_of(action))
        assert words in found, found
    assert rows(spark, f"SELECT * FROM {table}") == []


def check_dynamic_overwrites_replace_all_rows(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "overwritten")
    spark.sql(f"CREATE TABLE {table} AS SELECT id FROM range(3)")
    frame = spark.range(10, 12)
    with setting(spark, "spark.sql.sources.partitionOverwriteMode", "dynamic"):
        spark.sql(f"INSERT OVERWRITE {table} SELECT 7L")
        assert values(spark, f"SELECT id FROM {table}") == [7]
        frame.write.insertInto(table, overwrite=True)
        assert values(spark, f"SELECT id FROM {table} ORDER BY id") == [10, 11]
        spark.sql(f"INSERT OVERWRITE {table} SELECT id + 1 FROM {table}")
        assert values(spark, f"SELECT id FROM {table} ORDER BY id") == [11, 12]
    frame.writeTo(table).overwritePartitions()
    assert values(spark, f"SELECT id FROM {table} ORDER BY id") == [10, 11]
    writer = frame.write.format("lance").mode("overwrite")
    writer.option("partitionOverwriteMode", "dynamic").saveAsTable(table)
    assert values(spark, f"SELECT id FROM {table} ORDER BY id") == [10, 11]
    spark.range(0).writeTo(table).overwritePartitions()
    assert values(spark, f"SELECT count(*) FROM {table}") == [0]


def check_a_branch_is_read_by_its_name(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "branched")
    spark.sql(f"CREATE TABLE {table} AS SELECT id FROM range(2)")
    dataset = lance.dataset(described(spark, table)["Location"].removeprefix("file:"))
    dataset.create_branch("dev/one", dataset.version)
    dataset.tags.create("first", dataset.version)
    spark.sql(f"INSERT INTO {table} VALUES (2)")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN name STRING")
    branch = f"SELECT * FROM {table} VERSION AS OF 'dev/one' ORDER BY id"
    assert rows(spark, branch) == [(0,), (1,)]
    spark.range(5, 6).write.format("lance").option("branch", "dev/one").mode("append").save(table)
    assert rows(spark, branch) == [(0,), (1,), (5,)]
    assert values(spark, f"SELECT count(*) FROM {table} VERSION AS OF 'dev/one'") == [3]
    assert values(spark, f"SELECT count(*) FROM {table} VERSION AS OF 'first'") == [2]
    assert values(spark, f"SELECT count(*) FROM {table} VERSION AS OF 'main'") == [3]
    none = f"SELECT * FROM {table} VERSION AS OF 'none'"
    fails(spark, none, "has no tag and no branch 'none'")


def check_writers_that_create_name_the_format(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "no_format")
    frame = spark.range(2)
    named = failure_of(lambda: frame.write.saveAsTable(table))
    assert named is not None
    assert '.format("lance")' in named, named
    fails(spark, f"CREATE TABLE {table} USING parquet AS SELECT 1 AS id", "USING lance")
    fails(spark, f"SELECT * FROM {table}", "NOT_FOUND")
    frame.write.format("lance").saveAsTable(table)
    frame.write.mode("append").saveAsTable(table)
    assert values(spark, f"SELECT count(*) FROM {table}") == [4]


def check_a_table_is_made_like_another(spark: Any, catalog: str, namespace: str) -> None:
    source = fresh(spark, catalog, namespace, "pattern")
    table = fresh(spark, catalog, namespace, "likeness")
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT NOT NULL COMMENT 'Key', v ARRAY<FLOAT>) "
        "TBLPROPERTIES ('vector.v' = '2')"
    )
    spark.sql(f"INSERT INTO {source} VALUES (1, array(1f, 2f))")
    like = f"CREATE TABLE {table} LIKE {source}"
    if release(spark) < (4, 2):
        fails(spark, like, "PARSE_SYNTAX_ERROR")
        spark.sql(f"CREATE TABLE {table} AS SELECT * FROM {source} LIMIT 0")
    else:
        spark.sql(like)
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} LIKE {source}")
        fails(spark, like, "ALREADY_EXISTS")
        assert columns(spark, table) == columns(spark, source)
        assert not spark.table(table).schema["id"].nullable
    assert rows(spark, f"SELECT * FROM {table}") == []
    fails(spark, f"INSERT INTO {table} VALUES (1, array(1f))", "2")


def check_views_of_sparks_own_catalog_read_tables(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "behind_a_view")
    spark.sql(f"CREATE TABLE {table} AS SELECT id FROM range(3)")
    view = "spark_catalog.default.lance_bridge_view"
    spark.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT id * 2 AS twice FROM {table}")
    try:
        spark.sql(f"INSERT INTO {table} VALUES (3)")
        assert values(spark, f"SELECT twice FROM {view} ORDER BY twice") == [0, 2, 4, 6]
    finally:
        spark.sql(f"DROP VIEW {view}")


def check_what_spark_does_not_do_for_such_catalogs_is_refused(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "untouched")
    spark.sql(f"CREATE TABLE {table} AS SELECT id FROM range(3)")
    view = f"{catalog}.{namespace}.a_view"
    for statement, words in (
        (f"DESCRIBE TABLE EXTENDED {table} AS JSON", ("JSON",)),
        (f"ANALYZE TABLE {table} COMPUTE STATISTICS", ("ANALYZE TABLE",)),
        (f"MSCK REPAIR TABLE {table}", ("REPAIR TABLE",)),
    ):
        fails(spark, statement, *words)
    create_view = f"CREATE VIEW {view} AS SELECT 1 AS one"
    if release(spark) >= (4, 3) and spark.conf.get("spark.sql.catalogImplementation") == "hive":
        with pytest.raises(Py4JJavaError, match=r"ClassCastException.*ViewCatalog"):
            spark.sql(create_view)
    else:
        fails(spark, create_view, "VIEW")
    assert values(spark, f"SELECT count(*) FROM {table}") == [3]


def check_rows_are_written_in_the_order_of_the_table(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "ordered")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, word STRING) "
        "TBLPROPERTIES ('write.order_by' = 'word DESC, id')"
    )
    spark.sql(f"INSERT INTO {table} SELECT id, char(65 + id * 7 % 13) FROM range(0, 100, 1, 4)")
    stored = f"SELECT _rowaddr >> 32 AS fragment, word, id FROM {table} ORDER BY _rowaddr"
    ordered = f"SELECT _rowaddr >> 32 AS fragment, word, id FROM {table} ORDER BY 1, 2 DESC, 3"
    assert rows(spark, stored) == rows(spark, ordered)
    fails(spark, f"CREATE TABLE {table}_2 (id INT) TBLPROPERTIES ('write.order_by' = 'x')", "x")


HABIT_CHECKS = (
    check_a_merge_evolves_the_table,
    check_an_insert_evolves_the_table_or_is_refused,
    check_rows_with_other_columns_are_refused,
    check_dynamic_overwrites_replace_all_rows,
    check_a_branch_is_read_by_its_name,
    check_writers_that_create_name_the_format,
    check_a_table_is_made_like_another,
    check_views_of_sparks_own_catalog_read_tables,
    check_what_spark_does_not_do_for_such_catalogs_is_refused,
    check_rows_are_written_in_the_order_of_the_table,
)
