"""Checks of Spark on a table whose files are gone, and on one that was never written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from lance_namespace import DeclareTableRequest

from lance_bridge_spark.addresses import catalogs_of

from .sql_helpers import described, fails, failure_of, fresh, rows, values

MISSING = "is missing: there is no version at"


def lost(spark: Any, catalog: str, namespace: str) -> tuple[str, Path]:
    """Return a table whose directory was deleted, and the directory."""
    table = fresh(spark, catalog, namespace, "lost")
    spark.sql(f"CREATE TABLE {table} (id INT, word STRING) USING lance")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'one')")
    place = Path(urlparse(described(spark, table)["Location"]).path)
    shutil.rmtree(place)
    spark.catalog.clearCache()
    return table, place


def check_no_statement_reads_or_writes_missing_data(
    spark: Any, catalog: str, namespace: str
) -> None:
    table, place = lost(spark, catalog, namespace)
    for statement in (
        f"SELECT * FROM {table}",
        f"SELECT count(*) FROM {table}",
        f"INSERT INTO {table} VALUES (2, 'two')",
        f"INSERT OVERWRITE {table} VALUES (2, 'two')",
        f"DELETE FROM {table}",
        f"UPDATE {table} SET id = 3",
        f"CREATE OR REPLACE TABLE {table} USING lance AS SELECT 1 AS id",
    ):
        assert str(place) in fails(spark, statement, MISSING)
    new = spark.createDataFrame([(2, "two")], "id INT, word STRING")
    for write in (
        lambda: new.writeTo(table).append(),
        lambda: new.writeTo(table).createOrReplace(),
        lambda: new.write.format("lance").mode("append").saveAsTable(table),
    ):
        assert MISSING in (failure_of(write) or "it was written")
    assert not place.exists()


def check_missing_data_is_dropped_and_created_again(
    spark: Any, catalog: str, namespace: str
) -> None:
    table, _ = lost(spark, catalog, namespace)
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} (id INT) USING lance")
    spark.sql(f"INSERT INTO {table} VALUES (4)")
    assert values(spark, f"SELECT id FROM {table}") == [4]


def check_a_directory_above_that_is_gone_is_not_missing_data(
    spark: Any, catalog: str, namespace: str
) -> None:
    table, place = lost(spark, catalog, namespace)
    away = place.parent.with_name(f"{place.parent.name}-away")
    place.parent.rename(away)
    for statement in (f"SELECT * FROM {table}", f"INSERT INTO {table} VALUES (2, 'two')"):
        assert MISSING not in fails(spark, statement, "check that its disk is mounted")
    assert not place.parent.exists()
    away.rename(place.parent)


def check_the_data_source_refuses_missing_data(spark: Any, catalog: str, namespace: str) -> None:
    table, place = lost(spark, catalog, namespace)
    new = spark.createDataFrame([(2, "two")], "id INT, word STRING")
    name = table.removeprefix(f"{catalog}.")
    read = spark.read.format("lance").option("catalog", catalog)
    assert MISSING in (failure_of(lambda: read.load(name).collect()) or "it was read")
    write = new.write.format("lance").option("catalog", catalog).mode("append")
    assert MISSING in (failure_of(lambda: write.save(name)) or "it was written")
    assert not place.exists()


def check_a_declared_table_takes_its_first_write(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "declared")
    path = [*namespace.split("."), "declared"]
    catalogs_of(spark)[catalog].connect().declare_table(DeclareTableRequest(id=path))
    new = spark.createDataFrame([(5,)], "id INT")
    write = new.write.format("lance").option("catalog", catalog).mode("append")
    write.save(table.removeprefix(f"{catalog}."))
    assert rows(spark, f"SELECT id FROM {table}") == [(5,)]


CHECKS = (
    check_no_statement_reads_or_writes_missing_data,
    check_missing_data_is_dropped_and_created_again,
    check_a_directory_above_that_is_gone_is_not_missing_data,
    check_the_data_source_refuses_missing_data,
    check_a_declared_table_takes_its_first_write,
)
