"""Checks of statements that make and change whole tables: CTAS, RTAS, ALTER, and their DataFrames.

See `sql_checks` for how they are called.
"""

from __future__ import annotations

import tempfile
from typing import Any

from .sql_helpers import (
    alters,
    columns,
    described,
    fails,
    failure_of,
    fresh,
    properties,
    rows,
    values,
)

FAILING = (
    "SELECT CASE WHEN id = 7 THEN raise_error('this row is bad') ELSE id END AS id FROM range(9)"
)
"""A query whose tasks fail."""


def check_tables_are_made_of_queries(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "of_query")
    spark.sql(
        f"CREATE TABLE {table} COMMENT 'Made' TBLPROPERTIES (team = 'a') "
        "AS SELECT id, string(id) AS name FROM range(100)"
    )
    assert rows(spark, f"SELECT count(*), sum(id), max(name) FROM {table}") == [(100, 4950, "99")]
    assert described(spark, table)["Comment"] == "Made"
    assert properties(spark, table)["team"] == "a"
    fails(spark, f"CREATE TABLE {table} AS SELECT 1", "ALREADY_EXISTS", "already exists")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT 1 AS other")
    assert values(spark, f"SELECT count(*) FROM {table}") == [100]
    empty = fresh(spark, catalog, namespace, "of_no_rows")
    spark.sql(f"CREATE TABLE {empty} AS SELECT id FROM range(10) WHERE id < 0")
    assert values(spark, f"SELECT count(*) FROM {empty}") == [0]


def check_a_failed_query_makes_no_table(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "not_made")
    for _ in range(2):
        fails(spark, f"CREATE TABLE {table} AS {FAILING}", "this row is bad")
        fails(spark, f"SELECT * FROM {table}", "TABLE_OR_VIEW_NOT_FOUND")
        shown = [row[1] for row in rows(spark, f"SHOW TABLES IN {catalog}.{namespace}")]
        assert "not_made" not in shown, shown
    spark.sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    assert values(spark, f"SELECT id FROM {table}") == [1]


def check_tables_are_replaced_by_queries(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "replaced")
    fails(spark, f"REPLACE TABLE {table} AS SELECT 1 AS id", "NOT_FOUND", "cannot be found")
    spark.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT id FROM range(3)")
    replacement = f"AS SELECT id + 10 AS id, 'x' AS name FROM {table}"
    with_comment = f"CREATE OR REPLACE TABLE {table} COMMENT 'New' {replacement}"
    if alters(spark, catalog):
        spark.sql(with_comment)
    else:
        fails(spark, with_comment, "LANCE_UNSUPPORTED_OPERATION")
        assert values(spark, f"SELECT id FROM {table} ORDER BY id") == [0, 1, 2]
        spark.sql(f"CREATE OR REPLACE TABLE {table} {replacement}")
    assert rows(spark, f"SELECT * FROM {table} ORDER BY id") == [(10, "x"), (11, "x"), (12, "x")]
    if alters(spark, catalog):
        assert described(spark, table)["Comment"] == "New"
    spark.sql(f"REPLACE TABLE {table} AS SELECT 5 AS five")
    assert rows(spark, f"SELECT * FROM {table}") == [(5,)]
    fails(spark, f"CREATE OR REPLACE TABLE {table} AS {FAILING}", "this row is bad")
    assert rows(spark, f"SELECT * FROM {table}") == [(5,)]
    spark.sql(f"REPLACE TABLE {table} (other STRING)")
    assert rows(spark, f"SELECT * FROM {table}") == []
    assert columns(spark, table) == [("other", "string", None)]


def check_vectors_are_made_by_property_and_kept_by_queries(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "vectors")
    copy = fresh(spark, catalog, namespace, "vectors_too")
    spark.sql(f"CREATE TABLE {table} (id INT, v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v' = '2')")
    spark.sql(f"INSERT INTO {table} VALUES (1, array(1.0f, 2.0f)), (2, NULL)")
    spark.sql(f"CREATE TABLE {copy} AS SELECT * FROM {table}")
    assert rows(spark, f"SELECT id, v FROM {copy} ORDER BY id") == [(1, [1.0, 2.0]), (2, None)]
    for each in (table, copy):
        fails(spark, f"INSERT INTO {each} VALUES (3, array(1.0f))", "2")
        assert values(spark, f"SELECT count(*) FROM {each}") == [2]


def check_columns_are_added_renamed_retyped_commented_and_dropped(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "altered")
    spark.sql(f"CREATE TABLE {table} (id INT NOT NULL, name STRING, place STRUCT<city: STRING>)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', named_struct('city', 'Bern'))")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (size DOUBLE COMMENT 'In m', place.zip INT)")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN name TO title")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN id DROP NOT NULL")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN id COMMENT 'The key'")
    assert columns(spark, table) == [
        ("id", "bigint", "The key"),
        ("title", "string", None),
        ("place", "struct<city:string,zip:int>", None),
        ("size", "double", "In m"),
    ]
    spark.sql(f"INSERT INTO {table} (title) VALUES ('b')")
    found = rows(spark, f"SELECT id, title, place.city, place.zip, size FROM {table} ORDER BY id")
    assert found == [(None, "b", None, None, None), (1, "a", "Bern", None, None)], found
    spark.sql(f"ALTER TABLE {table} DROP COLUMNS (size, title)")
    assert spark.table(table).columns == ["id", "place"]
    fails(spark, f"ALTER TABLE {table} ADD COLUMN id INT", "ALREADY_EXISTS", "already exists")
    fails(spark, f"ALTER TABLE {table} ADD COLUMN first INT FIRST", "Lance appends columns")
    fails(spark, f"ALTER TABLE {table} DROP COLUMN none", "FIELD_NOT_FOUND", "NOT_FOUND", "none")
    assert spark.table(table).columns == ["id", "place"]


def check_dataframes_are_written_by_name(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "by_dataframe")
    frame = spark.range(3)
    writer = frame.writeTo(table).using("lance")
    if alters(spark, catalog):
        writer.tableProperty("team", "a").create()
        assert properties(spark, table)["team"] == "a"
    else:
        writer.create()  # a replacement could not take the property away
    frame.writeTo(table).append()
    frame.write.insertInto(table)
    assert values(spark, f"SELECT count(*) FROM {table}") == [9]
    frame.write.insertInto(table, overwrite=True)
    assert values(spark, f"SELECT count(*) FROM {table}") == [3]
    frame.selectExpr("id", "'x' AS name").writeTo(table).using("lance").createOrReplace()
    assert spark.table(table).columns == ["id", "name"]
    frame.selectExpr("id AS other").writeTo(table).replace()
    assert spark.table(table).columns == ["other"]


def check_dataframes_are_saved_as_tables_in_every_mode(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "saved")
    frame = spark.range(2)
    frame.write.format("lance").saveAsTable(table)
    again = failure_of(lambda: frame.write.format("lance").saveAsTable(table))
    assert "exists" in str(again).lower(), again
    frame.write.format("lance").mode("ignore").saveAsTable(table)
    frame.write.format("lance").mode("append").saveAsTable(table)
    assert values(spark, f"SELECT count(*) FROM {table}") == [4]
    frame.selectExpr("id * 10 AS id").write.format("lance").mode("overwrite").saveAsTable(table)
    assert values(spark, f"SELECT id FROM {table} ORDER BY id") == [0, 10]


def check_streams_read_and_write_tables_by_name(spark: Any, catalog: str, namespace: str) -> None:
    source = fresh(spark, catalog, namespace, "stream_in")
    target = fresh(spark, catalog, namespace, "stream_out")
    spark.sql(f"CREATE TABLE {source} AS SELECT id FROM range(5)")
    spark.sql(f"CREATE TABLE {target} (id BIGINT)")
    with tempfile.TemporaryDirectory() as checkpoint:
        for rows_by_then in (5, 8):
            query = (
                spark.readStream.table(source)
                .writeStream.option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .toTable(target)
            )
            query.awaitTermination(300)
            assert not query.isActive
            assert values(spark, f"SELECT count(DISTINCT id) FROM {target}") == [rows_by_then]
            assert values(spark, f"SELECT count(*) FROM {target}") == [rows_by_then]
            spark.sql(f"INSERT INTO {source} SELECT id + 100 FROM range(3)")


CHANGE_CHECKS = (
    check_tables_are_made_of_queries,
    check_a_failed_query_makes_no_table,
    check_tables_are_replaced_by_queries,
    check_vectors_are_made_by_property_and_kept_by_queries,
    check_columns_are_added_renamed_retyped_commented_and_dropped,
    check_dataframes_are_written_by_name,
    check_dataframes_are_saved_as_tables_in_every_mode,
    check_streams_read_and_write_tables_by_name,
)
