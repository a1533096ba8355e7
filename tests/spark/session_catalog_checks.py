"""Lance tables in Spark's session catalog: two-part names, and other tables beside them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import lance_bridge_spark as lb

from .sql_helpers import Database, failure_of, stream_all

ONLY = "spark_catalog"


def _filled(db: Database, name: str) -> str:
    """Return the two-part name of a new Lance table with the ids 0 to 3."""
    table = f"{db.namespace}.{name}"
    db.sql(f"DROP TABLE IF EXISTS {table}")
    db.sql(f"CREATE TABLE {table} USING lance AS SELECT id, id * 10 AS score FROM range(4)")
    return table


def _parquet(db: Database, name: str) -> str:
    table = f"{db.namespace}.{name}"
    db.sql(f"DROP TABLE IF EXISTS {table}")
    db.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING parquet")
    db.sql(f"INSERT INTO {table} VALUES (1, 'ada'), (2, 'bob')")
    return table


def check_statements_use_two_part_names(db: Database) -> None:
    table, people = _filled(db, "two_parts"), _parquet(db, "people")
    joined = f"SELECT name, score FROM {people} JOIN {table} USING (id) ORDER BY id"
    assert db.rows(joined) == [("ada", 10), ("bob", 20)]
    db.sql(f"MERGE INTO {table} t USING {people} p ON t.id = p.id WHEN MATCHED THEN DELETE")
    db.sql(f"UPDATE {table} SET score = -1 WHERE id = 3")
    db.sql(f"INSERT INTO {people} SELECT id, 'copied' FROM {table}")
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == [(0, 0), (3, -1)]
    assert db.values(f"SELECT count(*) FROM {people}") == [4]
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 1") == [4]
    db.sql(f"USE {db.namespace}")
    try:
        assert db.values("SELECT count(*) FROM two_parts") == [2]
    finally:
        db.sql("USE default")


def check_dataframes_use_two_part_names(db: Database) -> None:
    table = f"{db.namespace}.frames"
    db.sql(f"DROP TABLE IF EXISTS {table}")
    frame = db.spark.range(3)
    frame.write.format("lance").saveAsTable(table)
    frame.write.insertInto(table)
    frame.write.format("lance").mode("append").saveAsTable(table)
    frame.writeTo(table).append()
    assert db.spark.table(table).count() == 12
    assert db.spark.read.table(table).count() == 12
    assert db.spark.read.format("lance").load(table).count() == 12
    assert lb.read(db.spark, table, filter="id = 1").count() == 4
    assert lb.compact(db.spark, f"spark_catalog.{table}").fragments_added == 1
    frame.write.format("lance").mode("overwrite").saveAsTable(table)
    assert db.spark.table(table).count() == 3


def check_tables_are_listed_and_described_with_all_others(db: Database) -> None:
    table, _ = _filled(db, "listed"), _parquet(db, "people")
    shown = {row[1] for row in db.rows(f"SHOW TABLES IN {db.namespace}")}
    assert {"listed", "people"} <= shown, shown
    names = {each.name for each in db.spark.catalog.listTables(db.namespace)}
    assert {"listed", "people"} <= names, names
    extended = db.rows(f"SHOW TABLE EXTENDED IN {db.namespace} LIKE 'listed|people'")
    assert [row[1] for row in extended] == ["listed", "people"], extended
    assert db.described(table)["Provider"] == "lance"
    assert db.spark.catalog.tableExists(table)
    assert [each.name for each in db.spark.catalog.listColumns(table)] == ["id", "score"]


def check_permanent_views_read_tables(db: Database) -> None:
    table, people = _filled(db, "viewed"), _parquet(db, "people")
    view = f"{db.namespace}.a_view"
    db.sql(
        f"CREATE OR REPLACE VIEW {view} AS SELECT name, score FROM {table} JOIN {people} USING (id)"
    )
    try:
        db.sql(f"UPDATE {table} SET score = 7 WHERE id = 1")
        assert db.rows(f"SELECT * FROM {view} ORDER BY name") == [("ada", 7), ("bob", 20)]
        assert db.spark.newSession().table(view).count() == 2
    finally:
        db.sql(f"DROP VIEW {view}")


def check_streams_use_two_part_names(db: Database) -> None:
    table, copy = _filled(db, "streamed"), f"{db.namespace}.stream_copy"
    db.sql(f"DROP TABLE IF EXISTS {copy}")
    db.sql(f"CREATE TABLE {copy} USING lance AS SELECT * FROM {table} LIMIT 0")
    checkpoint = Path(urlparse(db.described(table)["Location"]).path).parent / "checkpoint"
    stream_all(db.spark.readStream.table(table).writeStream, checkpoint, copy)
    assert db.spark.table(copy).count() == 4


def check_formats_do_not_replace_each_other(db: Database) -> None:
    table, people = _filled(db, "kept"), _parquet(db, "people")
    db.fails(f"CREATE OR REPLACE TABLE {people} USING lance AS SELECT 1 AS id", "not a Lance table")
    db.fails(f"REPLACE TABLE {people} (id INT) USING lance", "not a Lance table")
    db.fails(f"CREATE TABLE {people} USING lance AS SELECT 1 AS id", "ALREADY_EXISTS")
    db.fails(f"CREATE TABLE {table} (id INT) USING parquet", "ALREADY_EXISTS")
    assert db.values(f"SELECT count(*) FROM {people}") == [2]
    assert db.values(f"SELECT count(*) FROM {table}") == [4]


def check_a_database_is_dropped_with_its_lance_tables(db: Database) -> None:
    database = f"{db.namespace}_dropped"
    db.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")
    db.sql(f"CREATE DATABASE {database}")
    inside = Database(db.spark, db.catalog, database)
    table = _filled(inside, "t")
    _parquet(inside, "people")
    location = Path(urlparse(db.described(table)["Location"]).path)
    assert location.is_dir()
    db.fails(f"DROP DATABASE {database}", "SCHEMA_NOT_EMPTY", "not empty")
    db.sql(f"DROP DATABASE {database} CASCADE")
    assert not location.exists()
    assert database not in {row[0] for row in db.rows("SHOW DATABASES")}


def check_lance_tables_are_renamed_and_dropped_with_their_data(db: Database) -> None:
    table, other = _filled(db, "before"), f"{db.namespace}.after"
    db.sql(f"DROP TABLE IF EXISTS {other}")
    db.sql(f"ALTER TABLE {table} RENAME TO {other}")
    assert db.values(f"SELECT count(*) FROM {other}") == [4]
    location = Path(urlparse(db.described(other)["Location"]).path)
    db.sql(f"DROP TABLE {other}")
    assert not location.exists()
    assert failure_of(lambda: db.spark.table(other).collect()) is not None


def check_a_new_session_knows_the_tables(db: Database) -> None:
    table = _filled(db, "elsewhere")
    session = db.spark.newSession()
    assert session.table(table).count() == 4
    session.sql(f"INSERT INTO {table} VALUES (9, 9)")
    assert db.spark.table(table).count() == 5
    nearest = f"SELECT id FROM lance_search('{table}', vector => array(1))"
    assert "vector" in str(failure_of(lambda: session.sql(nearest).collect()))


def check_a_table_like_another_is_of_its_format(db: Database) -> None:
    table, copy = _filled(db, "pattern_of"), f"{db.namespace}.like_it"
    db.sql(f"DROP TABLE IF EXISTS {copy}")
    failure = failure_of(lambda: db.sql(f"CREATE TABLE {copy} LIKE {table}"))
    print("LIKE", failure)
    if failure is None:
        assert db.described(copy)["Provider"] == "lance"
        assert db.rows(f"SELECT * FROM {copy}") == []


def check_metadata_tables_use_three_part_names(db: Database) -> None:
    table, people = _filled(db, "inspected"), _parquet(db, "people")
    assert db.values(f"SELECT operation FROM {table}.transactions") == ["Overwrite"]
    assert db.spark.table(f"{table}.versions").count() == 1
    assert db.spark.table(f"spark_catalog.{table}.versions").count() == 1
    db.fails(f"SELECT * FROM {people}.versions", "REQUIRES_SINGLE_PART_NAMESPACE", "NOT_FOUND")
    db.fails(f"SELECT * FROM {table}_none.versions", "REQUIRES_SINGLE_PART_NAMESPACE", "NOT_FOUND")
    db.sql(f"CALL spark_catalog.system.backfill('{table}', 'twice', 'id * 2')")
    assert db.values(f"SELECT sum(twice) FROM {table}") == [12]
