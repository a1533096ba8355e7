"""Checks of options that jobs bring from other formats, and of writers that name no format."""

from __future__ import annotations

import tempfile
from functools import partial

from .sql_helpers import Database, failure_of, own_catalog, set_conf, stream_all


def check_versions_are_read_by_options_of_other_formats(db: Database) -> None:
    table = db.made("optioned", "AS SELECT id FROM range(2)")
    [(moment,)] = db.rows("SELECT string(current_timestamp())")
    db.sql(f"INSERT INTO {table} VALUES (2)")
    db.sql(f"ALTER TABLE {table} ADD COLUMN name STRING")
    for name, value in (("versionAsOf", 1), ("VERSIONASOF", "1"), ("timestampAsOf", moment)):
        found = db.spark.read.option(name, value).table(table)
        assert (found.columns, found.count()) == (["id"], 2), name
        assert sorted(row.id for row in found.collect()) == [0, 1], name
    with set_conf(db.spark, "spark.sql.session.timeZone", "America/New_York"):
        [(local,)] = db.rows("SELECT string(current_timestamp())")
        assert db.spark.read.option("timestampAsOf", local).table(table).count() == 3
    with set_conf(db.spark, "spark.sql.session.timeZone", "America/New_York"):
        [(local,)] = db.rows("SELECT string(current_timestamp())")
        db.sql(f"INSERT INTO {table} VALUES (3, 'three')")
        assert db.spark.read.option("timestamp", local).table(table).count() == 3
    [(millis,)] = db.rows(
        f"SELECT unix_millis(timestamp) + 1 FROM {table}.versions WHERE version = 3"
    )
    assert db.spark.read.option("as-of-timestamp", millis).table(table).count() == 3
    assert db.values(f"SELECT count(*) FROM {table} WITH ('mergeSchema' = 'true')") == [4]
    read = db.spark.read.option("snapshot-id", 7)
    refused = str(failure_of(lambda: read.table(table).collect()))
    assert "use option 'version'" in refused


def check_writes_obey_or_refuse_options_of_other_formats(db: Database) -> None:
    table = db.fresh("optioned_too")
    frame = db.spark.range(0, 4, 1, 1)

    def rows_of_fragments() -> list[int]:
        return db.values(f"SELECT rows FROM {table}.fragments ORDER BY id")

    frame.write.format("lance").option("maxRecordsPerFile", 2).saveAsTable(table)
    assert rows_of_fragments() == [2, 2]
    frame.write.option("maxRecordsPerFile", 3).insertInto(table)
    frame.writeTo(table).option("MAXRECORDSPERFILE", "0").append()
    assert rows_of_fragments() == [2, 2, 3, 1, 4]
    wider = frame.selectExpr("id", "'x' AS name")
    overwrite = wider.write.format("lance").mode("overwrite")
    overwrite.option("overwriteSchema", "true").saveAsTable(table)
    assert db.spark.table(table).columns == ["id", "name"]
    for name, sentence in (
        ("replaceWhere", "delete those rows and append"),
        ("compression", "leave it out"),
        ("mergeSchema", "WITH SCHEMA EVOLUTION"),
    ):
        replacing = wider.write.format("lance").mode("overwrite").option(name, "true")
        assert sentence in str(failure_of(partial(replacing.saveAsTable, table))), name
        appending = wider.writeTo(table).option(name, "true")
        assert sentence in str(failure_of(appending.append)), name
    assert db.values(f"SELECT count(*) FROM {table}") == [4]


@own_catalog
def check_writers_that_name_no_format_create_tables(db: Database) -> None:
    table = db.fresh("no_format")
    frame = db.spark.range(2)
    frame.write.saveAsTable(table)
    assert db.described(table)["Provider"] == "lance"
    frame.write.mode("append").saveAsTable(table)
    assert db.values(f"SELECT count(*) FROM {table}") == [4]
    frame.selectExpr("id AS other").write.mode("overwrite").saveAsTable(table)
    assert db.spark.table(table).columns == ["other"]
    frame.write.mode("ignore").saveAsTable(table)
    assert "exists" in str(failure_of(lambda: frame.write.saveAsTable(table))).lower()
    new = db.fresh("no_format_either")
    db.spark.table(table).writeTo(new).create()
    assert db.described(new)["Provider"] == "lance"
    with set_conf(db.spark, "spark.sql.sources.default", "orc"):
        frame.write.saveAsTable(db.fresh("no_format"))
    assert db.values(f"SELECT count(*) FROM {table}") == [2]


@own_catalog
def check_streams_that_name_no_format_create_tables(db: Database) -> None:
    source = db.made("no_format_in", "AS SELECT id FROM range(3)")
    table = db.fresh("no_format_out")
    with tempfile.TemporaryDirectory() as checkpoint:
        stream_all(db.spark.readStream.table(source).writeStream, checkpoint, table)
    assert db.described(table)["Provider"] == "lance"
    assert db.values(f"SELECT count(*) FROM {table}") == [3]


@own_catalog
def check_statements_name_no_other_format(db: Database) -> None:
    table = db.fresh("other_formats")
    frame = db.spark.range(2)
    named = failure_of(lambda: frame.write.format("orc").saveAsTable(table))
    assert '.format("lance")' in str(named), named
    db.fails(f"CREATE TABLE {table} (id INT) USING parquet", "USING lance")
    db.fails(f"CREATE TABLE {table} USING parquet AS SELECT 1 AS id", "USING lance")
    db.fails(f"SELECT * FROM {table}", "NOT_FOUND")
    for how in ("(id INT)", "AS SELECT 1 AS id"):
        db.made("other_formats", how)
        assert db.described(table)["Provider"] == "lance"
