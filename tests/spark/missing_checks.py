"""Checks of Spark on a table whose files are gone, and on one that was never written."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlparse

from lance_namespace import DeclareTableRequest

from lance_bridge_spark.addresses import catalogs_of

from .sql_helpers import Database, failure_of

MISSING = "is missing: there is no version at"


def lost(db: Database) -> tuple[str, Path]:
    """Return a table whose directory was deleted, and the directory."""
    table = db.fresh("lost")
    db.sql(f"CREATE TABLE {table} (id INT, word STRING) USING lance")
    db.sql(f"INSERT INTO {table} VALUES (1, 'one')")
    place = Path(urlparse(db.described(table)["Location"]).path)
    shutil.rmtree(place)
    db.spark.catalog.clearCache()
    return table, place


def check_no_statement_reads_or_writes_missing_data(db: Database) -> None:
    table, place = lost(db)
    for statement in (
        f"SELECT * FROM {table}",
        f"SELECT count(*) FROM {table}",
        f"INSERT INTO {table} VALUES (2, 'two')",
        f"INSERT OVERWRITE {table} VALUES (2, 'two')",
        f"DELETE FROM {table}",
        f"UPDATE {table} SET id = 3",
        f"CREATE OR REPLACE TABLE {table} USING lance AS SELECT 1 AS id",
    ):
        assert str(place) in db.fails(statement, MISSING)
    new = db.spark.createDataFrame([(2, "two")], "id INT, word STRING")
    for write in (
        lambda: new.writeTo(table).append(),
        lambda: new.writeTo(table).createOrReplace(),
        lambda: new.write.format("lance").mode("append").saveAsTable(table),
    ):
        assert MISSING in (failure_of(write) or "it was written")
    assert not place.exists()


def check_missing_data_is_dropped_and_created_again(db: Database) -> None:
    table, _ = lost(db)
    db.sql(f"DROP TABLE {table}")
    db.sql(f"CREATE TABLE {table} (id INT) USING lance")
    db.sql(f"INSERT INTO {table} VALUES (4)")
    assert db.values(f"SELECT id FROM {table}") == [4]


def check_a_directory_above_that_is_gone_is_not_missing_data(db: Database) -> None:
    table, place = lost(db)
    away = place.parent.with_name(f"{place.parent.name}-away")
    place.parent.rename(away)
    for statement in (f"SELECT * FROM {table}", f"INSERT INTO {table} VALUES (2, 'two')"):
        assert MISSING not in db.fails(statement, "check that its disk is mounted")
    assert not place.parent.exists()
    away.rename(place.parent)


def check_the_data_source_refuses_missing_data(db: Database) -> None:
    table, place = lost(db)
    new = db.spark.createDataFrame([(2, "two")], "id INT, word STRING")
    name = table.removeprefix(f"{db.catalog}.")
    read = db.spark.read.format("lance").option("catalog", db.catalog)
    assert MISSING in (failure_of(lambda: read.load(name).collect()) or "it was read")
    write = new.write.format("lance").option("catalog", db.catalog).mode("append")
    assert MISSING in (failure_of(lambda: write.save(name)) or "it was written")
    assert not place.exists()


def check_a_declared_table_takes_its_first_write(db: Database) -> None:
    table = db.fresh("declared")
    path = [*db.namespace.split("."), "declared"]
    catalogs_of(db.spark)[db.catalog].connect().declare_table(DeclareTableRequest(id=path))
    new = db.spark.createDataFrame([(5,)], "id INT")
    write = new.write.format("lance").option("catalog", db.catalog).mode("append")
    write.save(table.removeprefix(f"{db.catalog}."))
    assert db.rows(f"SELECT id FROM {table}") == [(5,)]
