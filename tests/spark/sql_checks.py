"""Checks of the SQL catalog: each one statement's behaviour, on any Spark and any catalog.

A check is a function whose name begins with ``check_``. It is called with a namespace that exists,
and raises AssertionError. It makes what it needs under names of its own, so that all can run in one
session, again and again.
"""

from __future__ import annotations

import tempfile

import lance

from . import sql_metadata_checks, sql_option_checks, sql_procedure_checks, sql_row_checks
from .sql_helpers import Database, failure_of, own_catalog, set_conf, stream_all

PARTS = (sql_metadata_checks, sql_option_checks, sql_procedure_checks, sql_row_checks)
"""Modules with more of them."""
FAILING = (
    "SELECT CASE WHEN id = 7 THEN raise_error('this row is bad') ELSE id END AS id FROM range(9)"
)
"""A query whose tasks fail."""


# -- namespaces ------------------------------------------------------------------------------------


@own_catalog
def check_namespaces_are_created_shown_described_altered_and_dropped(db: Database) -> None:
    *outer, last = db.namespace.split(".")
    name = f"{last}_extra"
    path = ".".join([db.catalog, *outer, name])
    db.sql(f"DROP NAMESPACE IF EXISTS {path} CASCADE")
    db.sql(f"CREATE NAMESPACE {path} COMMENT 'An extra' WITH PROPERTIES (team = 'a')")
    db.sql(f"CREATE NAMESPACE IF NOT EXISTS {path}")
    db.fails(f"CREATE NAMESPACE {path}", "SCHEMA_ALREADY_EXISTS", "already exists")
    shown = [row[0] for row in db.rows(f"SHOW NAMESPACES IN {'.'.join([db.catalog, *outer])}")]
    assert {".".join([*outer, name]), db.namespace} <= set(shown), shown
    found = dict(db.rows(f"DESCRIBE NAMESPACE EXTENDED {path}"))
    assert found["Comment"] == "An extra", found
    assert "(team,a)" in found["Properties"], found
    db.sql(f"ALTER NAMESPACE {path} SET PROPERTIES (team = 'b', size = '3')")
    comment = _commented(db, path, "Another")
    found = dict(db.rows(f"DESCRIBE NAMESPACE EXTENDED {path}"))
    assert found["Comment"] == comment, found
    assert "(team,b)" in found["Properties"], found
    assert "(size,3)" in found["Properties"], found
    assert "lance_bridge" not in str(found), found
    db.fails(f"ALTER NAMESPACE {path} SET PROPERTIES ('lance_bridge.id' = 'x')", "reserved")
    db.sql(f"CREATE TABLE {path}.t (id BIGINT)")
    db.fails(f"DROP NAMESPACE {path}", "SCHEMA_NOT_EMPTY", "not empty")
    db.sql(f"DROP NAMESPACE {path} CASCADE")
    db.fails(f"SHOW TABLES IN {path}", "SCHEMA_NOT_FOUND", "not found")
    db.fails(f"DROP NAMESPACE {path}", "SCHEMA_NOT_FOUND", "not found")
    db.sql(f"DROP NAMESPACE IF EXISTS {path}")


def _commented(db: Database, path: str, text: str) -> str:
    """Change a namespace's comment, and return what it is then: not every metastore can."""
    failure = failure_of(lambda: db.sql(f"COMMENT ON NAMESPACE {path} IS '{text}'"))
    if failure is None:
        return text
    assert "its catalog keeps the one it was created with" in failure, failure
    return "An extra"


def check_a_current_namespace_shortens_names(db: Database) -> None:
    table = db.made("short", "AS SELECT 1L AS id")
    before = db.rows("SELECT current_catalog(), current_schema()")[0]
    try:
        db.sql(f"USE {db.name}")
        assert db.values("SELECT id FROM short") == [1]
        db.sql("INSERT INTO short VALUES (2)")
    finally:
        db.sql(f"USE {'.'.join(before)}")
    assert db.values(f"SELECT id FROM {table} ORDER BY id") == [1, 2]


# -- tables ----------------------------------------------------------------------------------------


def check_tables_are_created_shown_described_and_dropped(db: Database) -> None:
    table = db.made(
        "made",
        "(id BIGINT NOT NULL COMMENT 'The key', name STRING, "
        "place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>, counts MAP<STRING, INT>) "
        "USING lance COMMENT 'All of them' TBLPROPERTIES (team = 'a')",
    )
    assert db.columns(table) == [
        ("id", "bigint", "The key"),
        ("name", "string", None),
        ("place", "struct<city:string,zip:int>", None),
        ("tags", "array<string>", None),
        ("counts", "map<string,int>", None),
    ]
    found = db.described(table)
    assert found["Comment"] == "All of them", found
    assert found["Provider"].lower() == "lance", found
    assert "made" in found["Location"], found
    assert not db.spark.table(table).schema["id"].nullable
    shown = [row[1] for row in db.rows(f"SHOW TABLES IN {db.name}")]
    assert "made" in shown, shown
    shown = [row[1] for row in db.rows(f"SHOW TABLES IN {db.name} LIKE 'mad*'")]
    assert shown == ["made"], shown
    db.sql(f"CREATE TABLE IF NOT EXISTS {table} (other INT)")
    db.fails(f"CREATE TABLE {table} (id INT)", "TABLE_OR_VIEW_ALREADY_EXISTS", "already exists")
    db.sql(f"DROP TABLE {table}")
    db.fails(f"SELECT * FROM {table}", "TABLE_OR_VIEW_NOT_FOUND", "not found")
    db.fails(f"DROP TABLE {table}", "TABLE_OR_VIEW_NOT_FOUND", "not found")
    db.sql(f"DROP TABLE IF EXISTS {table}")


def check_a_purged_table_can_be_made_again(db: Database) -> None:
    table = db.made("purged", "AS SELECT 1L AS id")
    db.sql(f"DROP TABLE {table} PURGE")
    db.sql(f"CREATE TABLE {table} (name STRING)")
    assert db.rows(f"SELECT * FROM {table}") == []


def check_what_is_not_there_is_named(db: Database) -> None:
    db.fails(f"SELECT * FROM {db.name}.none", "TABLE_OR_VIEW_NOT_FOUND")
    db.fails(f"CREATE TABLE {db.name}_none.t (id INT)", "SCHEMA_NOT_FOUND", "not found")
    table = db.made("plain", "(id INT)")
    db.fails(f"SELECT nam FROM {table}", "UNRESOLVED_COLUMN")
    db.fails(f"SELECT * FROM {table} VERSION AS OF 99", "99")
    db.fails(f"SELECT * FROM {table} TIMESTAMP AS OF '2001-01-01'", "2001-01-01")
    other = db.fresh("other_format")
    db.fails(f"CREATE TABLE {other} (id INT) USING lance PARTITIONED BY (id)", "artition")
    db.fails(f"CREATE TABLE {other} (i INTERVAL YEAR TO MONTH)", "interval year to month")
    db.fails(f"SHOW PARTITIONS {table}", "artition")


def check_properties_are_shown_set_and_unset(db: Database) -> None:
    table = db.made("with_properties", "(id INT) TBLPROPERTIES (team = 'a', size = '3')")
    assert db.properties(table).items() >= {"team": "a", "size": "3"}.items()
    assert not [key for key in db.properties(table) if key.startswith("lance_bridge")]
    change = f"ALTER TABLE {table} SET TBLPROPERTIES (team = 'b', color = 'red')"
    if not db.alters:
        db.fails(change, "LANCE_UNSUPPORTED_OPERATION")
        return
    db.sql(change)
    db.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES (size)")
    found = db.properties(table)
    assert (found.get("team"), found.get("color"), found.get("size")) == ("b", "red", None), found
    db.sql(f"COMMENT ON TABLE {table} IS 'A comment'")
    assert db.described(table)["Comment"] == "A comment"
    reserved = "('lance_bridge.id' = 'x')"
    db.fails(f"ALTER TABLE {table} SET TBLPROPERTIES {reserved}", "reserved")


def check_show_create_table_can_be_run_again(db: Database) -> None:
    table = db.made(
        "shown",
        "(id BIGINT NOT NULL COMMENT 'The key', v ARRAY<FLOAT>) "
        "COMMENT 'Vectors' TBLPROPERTIES ('vector.v' = '4')",
    )
    [(statement,)] = db.rows(f"SHOW CREATE TABLE {table}")
    lines = [line for line in statement.splitlines() if not line.startswith("LOCATION")]
    db.sql(f"DROP TABLE {table}")
    db.sql("\n".join(lines))
    assert db.columns(table)[0] == ("id", "bigint", "The key")
    assert db.described(table)["Comment"] == "Vectors"
    db.fails(f"INSERT INTO {table} VALUES (1, array(1.0f))", "4")
    db.sql(f"INSERT INTO {table} VALUES (1, array(1.0f, 2.0f, 3.0f, 4.0f))")


def check_tables_are_renamed(db: Database) -> None:
    table = db.fresh("before")
    after = db.fresh("after")
    db.sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    db.sql(f"ALTER TABLE {table} RENAME TO after")
    assert db.values(f"SELECT id FROM {after}") == [1]
    db.sql(f"ALTER TABLE {after} RENAME TO {db.namespace}.before")
    assert db.values(f"SELECT id FROM {table}") == [1]
    db.sql(f"CREATE TABLE {after} (id INT)")
    db.fails(f"ALTER TABLE {table} RENAME TO after", "already exists", "ALREADY_EXISTS")
    db.fails(f"SELECT * FROM {db.name}.befor", "NOT_FOUND")


# -- versions --------------------------------------------------------------------------------------


def check_versions_are_read_by_number_and_by_time(db: Database) -> None:
    table = db.made("travelled", "(id BIGINT)")
    db.sql(f"INSERT INTO {table} VALUES (1)")
    [(moment,)] = db.rows("SELECT string(current_timestamp())")
    db.sql(f"INSERT INTO {table} VALUES (2)")
    assert [row.id for row in db.spark.read.option("version", "2").table(table).collect()] == [1]
    db.sql(f"ALTER TABLE {table} ADD COLUMN extra STRING")
    latest = f"SELECT id FROM {table} ORDER BY id"
    assert db.values(latest) == [1, 2]
    assert db.values(f"SELECT * FROM {table} VERSION AS OF 2") == [1]
    assert db.values(f"SELECT * FROM {table} VERSION AS OF '1'") == []
    assert db.values(f"SELECT * FROM {table} TIMESTAMP AS OF '{moment}'") == [1]
    later = f"SELECT id FROM {table} TIMESTAMP AS OF date_add(current_date(), 1) ORDER BY id"
    assert db.values(later) == [1, 2]
    assert db.spark.table(table).columns == ["id", "extra"]
    count = f"SELECT count(*) FROM {table} VERSION AS OF 2"
    assert db.values(count) == [1]


# -- whole tables made and changed: CTAS, RTAS, ALTER, and their DataFrames ------------------------


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


def check_fields_of_structs_in_lists_are_added_renamed_and_dropped(db: Database) -> None:
    inner = "ARRAY<STRUCT<x: INT>>"
    table = db.made("nested", f"(id INT, st STRUCT<b: {inner}>, m MAP<STRING, STRUCT<x: INT>>)")
    db.sql(
        f"INSERT INTO {table} VALUES "
        "(1, named_struct('b', array(named_struct('x', 7))), map('k', named_struct('x', 8)))"
    )
    db.sql(f"ALTER TABLE {table} ADD COLUMN st.b.element.z STRING")
    assert db.columns(table)[1][1] == "struct<b:array<struct<x:int,z:string>>>"
    assert db.rows(f"SELECT st.b[0].x, st.b[0].z, st.b.z FROM {table}") == [(7, None, [None])]
    value = "transform(st.b, e -> named_struct('x', e.x, 'z', 'new'))"
    db.sql(f"UPDATE {table} SET st.b = {value} WHERE id = 1")
    assert db.rows(f"SELECT st.b[0].x, st.b[0].z FROM {table}") == [(7, "new")]
    db.sql(f"ALTER TABLE {table} RENAME COLUMN st.b.element.x TO y")
    db.sql(f"ALTER TABLE {table} DROP COLUMN st.b.element.z")
    assert db.rows(f"SELECT st.b FROM {table}") == [([(7,)],)]
    assert db.columns(table)[1][1] == "struct<b:array<struct<y:int>>>"
    db.fails(f"ALTER TABLE {table} ADD COLUMN m.value.z INT", "inside the map 'm'")
    db.fails(f"ALTER TABLE {table} ADD COLUMN st.b.z INT", "st", "b")
    assert db.rows(f"SELECT m['k'].x FROM {table}") == [(8,)]


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


# -- searches by `lance_search`, the table function ------------------------------------------------


def _filled(db: Database, name: str) -> str:
    """Make a table of texts and vectors, whose last row is of its last version."""
    table = db.made(
        name, "(id BIGINT, name STRING, v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v' = '2')"
    )
    db.sql(
        f"INSERT INTO {table} VALUES (1, 'red lamp', array(0f, 1f)), (2, 'shoe', array(1f, 0f)), "
        "(3, 'lamp and lamp', array(5f, 5f)), (4, NULL, NULL)"
    )
    db.sql(f"INSERT INTO {table} VALUES (5, 'shoe', array(1f, 0.25f))")
    return table


def check_vectors_are_searched_by_a_function(db: Database) -> None:
    table = _filled(db, "searched_vectors")
    near = f"lance_search('{table}', vector => array(1.0, 0.0), k => 2)"
    found = db.sql(f"SELECT * FROM {near}")
    assert [(f.name, f.dataType.simpleString()) for f in found.schema.fields] == [
        ("id", "bigint"),
        ("name", "string"),
        ("v", "array<float>"),
        ("_distance", "float"),
    ]
    assert [(row.id, row._distance) for row in found.collect()] == [(2, 0.0), (5, 0.0625)]
    assert db.values(f"SELECT id FROM {near} WHERE id > 2") == [5]
    assert db.values(f"SELECT count(*) FROM {near}") == [2]
    before = f"lance_search('{table}', vector => array(1, 0), filter => 'id <> 2')"
    assert db.rows(f"SELECT id FROM {before} ORDER BY _distance LIMIT 2") == [(5,), (1,)]
    old = f"lance_search('{table}', vector => array(1, 0), k => 2, version => 2)"
    assert db.values(f"SELECT id FROM {old}") == [2, 1]
    joined = f"SELECT t.name FROM {near} s JOIN {table} t ON s.id = t.id ORDER BY s._distance"
    assert db.values(joined) == ["shoe", "shoe"]
    # Spark 4.2 takes all reads of one name in a statement for one.
    for first, second in ((near, table), (table, near)):
        counted = f"SELECT (SELECT count(*) FROM {first}), (SELECT count(*) FROM {second})"
        assert sorted(db.rows(counted)[0]) == [2, db.values(f"SELECT count(*) FROM {table}")[0]]
    given = db.spark.sql(
        "SELECT id FROM lance_search(:table, vector => :vector, metric => 'cosine', k => 1)",
        {"table": table, "vector": [7.0, 7.0]},
    )
    assert [row.id for row in given.collect()] == [3]
    db.sql(f"CREATE OR REPLACE TEMPORARY VIEW near_ones AS SELECT * FROM {near}")
    assert db.values("SELECT id FROM near_ones") == [2, 5]


def check_texts_are_searched_by_a_function(db: Database) -> None:
    table = _filled(db, "searched_texts")
    lamps = db.sql(f"SELECT * FROM lance_search('{table}', text => 'lamp', text_columns => 'name')")
    assert lamps.columns == ["id", "name", "v", "_score"]
    found = lamps.collect()
    assert sorted(row.id for row in found) == [1, 3]
    assert found[0]._score >= found[1]._score > 0
    quoted = db.spark.sql(
        "SELECT id FROM lance_search(:table, text => :words, text_columns => array('name'))",
        {"table": table, "words": 'the "red" one\'s \\ or none'},
    )
    assert [row.id for row in quoted.collect()] == [1]


def check_both_are_searched_by_a_function(db: Database) -> None:
    table = _filled(db, "searched_both")
    both = db.sql(
        f"SELECT * FROM lance_search('{table}', vector => array(0, 1), text => 'lamp', "
        "text_columns => 'name', k => 3)"
    )
    ranks = ["_distance", "_score", "_relevance_score"]
    assert both.columns == ["id", "name", "v", *ranks]
    assert {both.schema[name].dataType.simpleString() for name in ranks} == {"float"}
    found = both.collect()
    assert found[0].id == 1, found
    assert len({row.id for row in found}) == 3, found
    assert list(found[0].v) == [0.0, 1.0]
    assert found[0]._distance == 0.0
    assert found[0]._score > 0
    assert [row._distance is None or row._score is None for row in found] == [False, True, True]
    scores = [row._relevance_score for row in found]
    assert scores == sorted(scores, reverse=True)
    assert 2 / 62 < scores[0] <= 2 / 60 + 1e-6


def check_a_search_that_cannot_be_is_refused(db: Database) -> None:
    table = _filled(db, "searched_wrongly")
    for arguments, words in (
        ("", "needs the name of a table"),
        (f"'{table}'", "a vector, a text, or both"),
        (f"'{table}', array(1, 0)", "by name"),
        (f"'{table}', vector => array(1, 0), kay => 3", "no argument 'kay'"),
        (f"'{table}', vector => array(1, 0), k => 0", "above 0"),
        (f"'{table}', vector => 'red'", "JSON"),
        (f"'{table}', vector => array('red')", "numbers"),
        (f"'{table}', text => 'red', text_columns => array('name', null)", "an array of names"),
        (f"'{table}', vector => array(1, 0), text_columns => 'name'", "needs 'text'"),
        (f"'{table}', vector => array(rand(), 1)", "constant"),
        (f"'{table}', vector => array(1, 0), version => 'none'", "no tag and no branch 'none'"),
        (f"'{table}', vector => array(1, 2, 3)", "2"),
        (f"'{table}_none', vector => array(1, 2, 3)", "TABLE_OR_VIEW_NOT_FOUND"),
    ):
        db.fails(f"SELECT id FROM lance_search({arguments})", words)


@own_catalog
def check_a_search_in_another_catalog_is_refused(db: Database) -> None:
    search = "lance_search('spark_catalog.default.t', vector => array(1))"
    db.fails(f"SELECT id FROM {search}", "another")


# -- what people do with tables of other formats ---------------------------------------------------


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
    assert [each[:2] for each in db.columns(table)][2:] == [("small", "bigint"), ("size", "double")]
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
        (lambda: db.sql(f"INSERT INTO {table} BY NAME SELECT 1L AS id, 2 AS b"), "_COLUMNS"),
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
    with set_conf(db.spark, "spark.sql.sources.partitionOverwriteMode", "dynamic"):
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


@own_catalog
def check_what_spark_does_not_do_for_such_catalogs_is_refused(db: Database) -> None:
    table = db.made("untouched", "AS SELECT id FROM range(3)")
    view = f"{db.name}.a_view"
    sparks_own = ("does not support views",) if release(db) < (4, 2) else ()
    for statement, words in (
        (f"DESCRIBE TABLE EXTENDED {table} AS JSON", ("JSON",)),
        (f"ANALYZE TABLE {table} COMPUTE STATISTICS", ("ANALYZE TABLE",)),
        (f"MSCK REPAIR TABLE {table}", ("REPAIR TABLE",)),
    ):
        db.fails(statement, *words)
    for statement in (
        f"CREATE VIEW {view} AS SELECT 1 AS one",
        f"CREATE OR REPLACE VIEW {view} AS SELECT 1 AS one",
        f"CREATE VIEW IF NOT EXISTS {view} AS SELECT id FROM {table}",
        f"ALTER VIEW {view} AS SELECT 1 AS one",
        f"ALTER VIEW {view} RENAME TO {view}_too",
        f"DROP VIEW {view}",
        f"CREATE MATERIALIZED VIEW {view} AS SELECT 1 AS one",
    ):
        db.fails(statement, "VIEW", "LANCE_UNSUPPORTED_OPERATION", *sparks_own)
    assert db.values(f"SELECT count(*) FROM {table}") == [3]
    assert "a_view" not in {row[1] for row in db.rows(f"SHOW TABLES IN {db.name}")}


def check_rows_are_written_in_the_order_of_the_table(db: Database) -> None:
    table = db.made(
        "ordered", "(id BIGINT, word STRING) TBLPROPERTIES ('write.order_by' = 'word DESC, id')"
    )
    db.sql(f"INSERT INTO {table} SELECT id, char(65 + id * 7 % 13) FROM range(0, 100, 1, 4)")
    stored = f"SELECT _rowaddr >> 32 AS fragment, word, id FROM {table} ORDER BY _rowaddr"
    ordered = f"SELECT _rowaddr >> 32 AS fragment, word, id FROM {table} ORDER BY 1, 2 DESC, 3"
    assert db.rows(stored) == db.rows(ordered)
    db.fails(f"CREATE TABLE {table}_2 (id INT) TBLPROPERTIES ('write.order_by' = 'x')", "x")
