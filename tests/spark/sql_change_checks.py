"""Checks of statements that make and change whole tables: CTAS, RTAS, ALTER, and their DataFrames.

See `sql_checks` for how they are called.
"""

from __future__ import annotations

import tempfile

from .sql_helpers import Database, failure_of, stream_all

FAILING = (
    "SELECT CASE WHEN id = 7 THEN raise_error('this row is bad') ELSE id END AS id FROM range(9)"
)
"""A query whose tasks fail."""


def check_tables_are_made_of_queries(db: Database) -> None:
    table = db.made(
        "of_query",
        "COMMENT 'Made' TBLPROPERTIES (team = 'a') "
        "AS SELECT id, string(id) AS name FROM range(100)",
    )
    assert db.rows(f"SELECT count(*), sum(id), max(name) FROM {table}") == [(100, 4950, "99")]
    assert db.described(table)["Comment"] == "Made"
    assert db.properties(table)["team"] == "a"
    db.fails(f"CREATE TABLE {table} AS SELECT 1", "ALREADY_EXISTS", "already exists")
    db.sql(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT 1 AS other")
    assert db.values(f"SELECT count(*) FROM {table}") == [100]
    empty = db.made("of_no_rows", "AS SELECT id FROM range(10) WHERE id < 0")
    assert db.values(f"SELECT count(*) FROM {empty}") == [0]


def check_a_failed_query_makes_no_table(db: Database) -> None:
    table = db.fresh("not_made")
    for _ in range(2):
        db.fails(f"CREATE TABLE {table} AS {FAILING}", "this row is bad")
        db.fails(f"SELECT * FROM {table}", "TABLE_OR_VIEW_NOT_FOUND")
        shown = [row[1] for row in db.rows(f"SHOW TABLES IN {db.name}")]
        assert "not_made" not in shown, shown
    db.sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    assert db.values(f"SELECT id FROM {table}") == [1]


def check_tables_are_replaced_by_queries(db: Database) -> None:
    table = db.fresh("replaced")
    db.fails(f"REPLACE TABLE {table} AS SELECT 1 AS id", "NOT_FOUND", "cannot be found")
    db.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT id FROM range(3)")
    replacement = f"AS SELECT id + 10 AS id, 'x' AS name FROM {table}"
    with_comment = f"CREATE OR REPLACE TABLE {table} COMMENT 'New' {replacement}"
    if db.alters:
        db.sql(with_comment)
    else:
        db.fails(with_comment, "LANCE_UNSUPPORTED_OPERATION")
        assert db.values(f"SELECT id FROM {table} ORDER BY id") == [0, 1, 2]
        db.sql(f"CREATE OR REPLACE TABLE {table} {replacement}")
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == [(10, "x"), (11, "x"), (12, "x")]
    if db.alters:
        assert db.described(table)["Comment"] == "New"
    db.sql(f"REPLACE TABLE {table} AS SELECT 5 AS five")
    assert db.rows(f"SELECT * FROM {table}") == [(5,)]
    db.fails(f"CREATE OR REPLACE TABLE {table} AS {FAILING}", "this row is bad")
    assert db.rows(f"SELECT * FROM {table}") == [(5,)]
    db.sql(f"REPLACE TABLE {table} (other STRING)")
    assert db.rows(f"SELECT * FROM {table}") == []
    assert db.columns(table) == [("other", "string", None)]


def check_vectors_are_made_by_property_and_kept_by_queries(db: Database) -> None:
    table = db.fresh("vectors")
    copy = db.fresh("vectors_too")
    db.sql(f"CREATE TABLE {table} (id INT, v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v' = '2')")
    db.sql(f"INSERT INTO {table} VALUES (1, array(1.0f, 2.0f)), (2, NULL)")
    db.sql(f"CREATE TABLE {copy} AS SELECT * FROM {table}")
    assert db.rows(f"SELECT id, v FROM {copy} ORDER BY id") == [(1, [1.0, 2.0]), (2, None)]
    for each in (table, copy):
        db.fails(f"INSERT INTO {each} VALUES (3, array(1.0f))", "2")
        assert db.values(f"SELECT count(*) FROM {each}") == [2]


def check_columns_are_added_renamed_retyped_commented_and_dropped(db: Database) -> None:
    table = db.made("altered", "(id INT NOT NULL, name STRING, place STRUCT<city: STRING>)")
    db.sql(f"INSERT INTO {table} VALUES (1, 'a', named_struct('city', 'Bern'))")
    db.sql(f"ALTER TABLE {table} ADD COLUMNS (size DOUBLE COMMENT 'In m', place.zip INT)")
    db.sql(f"ALTER TABLE {table} RENAME COLUMN name TO title")
    db.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    db.sql(f"ALTER TABLE {table} ALTER COLUMN id DROP NOT NULL")
    db.sql(f"ALTER TABLE {table} ALTER COLUMN id COMMENT 'The key'")
    assert db.columns(table) == [
        ("id", "bigint", "The key"),
        ("title", "string", None),
        ("place", "struct<city:string,zip:int>", None),
        ("size", "double", "In m"),
    ]
    db.sql(f"INSERT INTO {table} (title) VALUES ('b')")
    found = db.rows(f"SELECT id, title, place.city, place.zip, size FROM {table} ORDER BY id")
    assert found == [(None, "b", None, None, None), (1, "a", "Bern", None, None)], found
    db.sql(f"ALTER TABLE {table} DROP COLUMNS (size, title)")
    assert db.spark.table(table).columns == ["id", "place"]
    db.fails(f"ALTER TABLE {table} ADD COLUMN id INT", "ALREADY_EXISTS", "already exists")
    db.fails(f"ALTER TABLE {table} ADD COLUMN first INT FIRST", "Lance appends columns")
    db.fails(f"ALTER TABLE {table} DROP COLUMN none", "FIELD_NOT_FOUND", "NOT_FOUND", "none")
    assert db.spark.table(table).columns == ["id", "place"]


def check_dataframes_are_written_by_name(db: Database) -> None:
    table = db.fresh("by_dataframe")
    frame = db.spark.range(3)
    writer = frame.writeTo(table).using("lance")
    if db.alters:
        writer.tableProperty("team", "a").create()
        assert db.properties(table)["team"] == "a"
    else:
        writer.create()  # a replacement could not take the property away
    frame.writeTo(table).append()
    frame.write.insertInto(table)
    assert db.values(f"SELECT count(*) FROM {table}") == [9]
    frame.write.insertInto(table, overwrite=True)
    assert db.values(f"SELECT count(*) FROM {table}") == [3]
    frame.selectExpr("id", "'x' AS name").writeTo(table).using("lance").createOrReplace()
    assert db.spark.table(table).columns == ["id", "name"]
    frame.selectExpr("id AS other").writeTo(table).replace()
    assert db.spark.table(table).columns == ["other"]


def check_dataframes_are_saved_as_tables_in_every_mode(db: Database) -> None:
    table = db.fresh("saved")
    frame = db.spark.range(2)
    frame.write.format("lance").saveAsTable(table)
    again = failure_of(lambda: frame.write.format("lance").saveAsTable(table))
    assert "exists" in str(again).lower(), again
    frame.write.format("lance").mode("ignore").saveAsTable(table)
    frame.write.format("lance").mode("append").saveAsTable(table)
    assert db.values(f"SELECT count(*) FROM {table}") == [4]
    frame.selectExpr("id * 10 AS id").write.format("lance").mode("overwrite").saveAsTable(table)
    assert db.values(f"SELECT id FROM {table} ORDER BY id") == [0, 10]


def check_streams_read_and_write_tables_by_name(db: Database) -> None:
    source = db.fresh("stream_in")
    target = db.fresh("stream_out")
    db.sql(f"CREATE TABLE {source} AS SELECT id FROM range(5)")
    db.sql(f"CREATE TABLE {target} (id BIGINT)")
    with tempfile.TemporaryDirectory() as checkpoint:
        for rows_by_then in (5, 8):
            stream_all(db.spark.readStream.table(source).writeStream, checkpoint, target)
            assert db.values(f"SELECT count(DISTINCT id) FROM {target}") == [rows_by_then]
            assert db.values(f"SELECT count(*) FROM {target}") == [rows_by_then]
            db.sql(f"INSERT INTO {source} SELECT id + 100 FROM range(3)")
