"""Checks of the SQL catalog: each one statement's behaviour, on any Spark and any catalog.

A check is called with a session, the name of a catalog of it, and a namespace there that exists
(its names joined with dots). It raises AssertionError. It makes what it needs under names of its
own, so that all can run in one session, again and again.
"""

from __future__ import annotations

from typing import Any

from .sql_change_checks import CHANGE_CHECKS
from .sql_habit_checks import HABIT_CHECKS
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
from .sql_row_checks import ROW_CHECKS
from .sql_search_checks import SEARCH_CHECKS

# -- namespaces ----------------------------------------------------------------------------------


def check_namespaces_are_created_shown_described_altered_and_dropped(
    spark: Any, catalog: str, namespace: str
) -> None:
    *outer, last = namespace.split(".")
    name = f"{last}_extra"
    path = ".".join([catalog, *outer, name])
    spark.sql(f"DROP NAMESPACE IF EXISTS {path} CASCADE")
    spark.sql(f"CREATE NAMESPACE {path} COMMENT 'An extra' WITH PROPERTIES (team = 'a')")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {path}")
    fails(spark, f"CREATE NAMESPACE {path}", "SCHEMA_ALREADY_EXISTS", "already exists")
    shown = [row[0] for row in rows(spark, f"SHOW NAMESPACES IN {'.'.join([catalog, *outer])}")]
    assert {".".join([*outer, name]), namespace} <= set(shown), shown
    found = dict(rows(spark, f"DESCRIBE NAMESPACE EXTENDED {path}"))
    assert found["Comment"] == "An extra", found
    assert "(team,a)" in found["Properties"], found
    spark.sql(f"ALTER NAMESPACE {path} SET PROPERTIES (team = 'b', size = '3')")
    comment = _commented(spark, path, "Another")
    found = dict(rows(spark, f"DESCRIBE NAMESPACE EXTENDED {path}"))
    assert found["Comment"] == comment, found
    assert "(team,b)" in found["Properties"], found
    assert "(size,3)" in found["Properties"], found
    assert "lance_bridge" not in str(found), found
    fails(spark, f"ALTER NAMESPACE {path} SET PROPERTIES ('lance_bridge.id' = 'x')", "reserved")
    spark.sql(f"CREATE TABLE {path}.t (id BIGINT)")
    fails(spark, f"DROP NAMESPACE {path}", "SCHEMA_NOT_EMPTY", "not empty")
    spark.sql(f"DROP NAMESPACE {path} CASCADE")
    fails(spark, f"SHOW TABLES IN {path}", "SCHEMA_NOT_FOUND", "not found")
    fails(spark, f"DROP NAMESPACE {path}", "SCHEMA_NOT_FOUND", "not found")
    spark.sql(f"DROP NAMESPACE IF EXISTS {path}")


def _commented(spark: Any, path: str, text: str) -> str:
    """Change a namespace's comment, and return what it is then: not every metastore can."""
    failure = failure_of(lambda: spark.sql(f"COMMENT ON NAMESPACE {path} IS '{text}'"))
    if failure is None:
        return text
    assert "its catalog keeps the one it was created with" in failure, failure
    return "An extra"


def check_a_current_namespace_shortens_names(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "short")
    spark.sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    before = rows(spark, "SELECT current_catalog(), current_schema()")[0]
    try:
        spark.sql(f"USE {catalog}.{namespace}")
        assert values(spark, "SELECT id FROM short") == [1]
        spark.sql("INSERT INTO short VALUES (2)")
    finally:
        spark.sql(f"USE {'.'.join(before)}")
    assert values(spark, f"SELECT id FROM {table} ORDER BY id") == [1, 2]


# -- tables --------------------------------------------------------------------------------------


def check_tables_are_created_shown_described_and_dropped(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "made")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT NOT NULL COMMENT 'The key', name STRING, "
        "place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>, counts MAP<STRING, INT>) "
        "USING lance COMMENT 'All of them' TBLPROPERTIES (team = 'a')"
    )
    assert columns(spark, table) == [
        ("id", "bigint", "The key"),
        ("name", "string", None),
        ("place", "struct<city:string,zip:int>", None),
        ("tags", "array<string>", None),
        ("counts", "map<string,int>", None),
    ]
    found = described(spark, table)
    assert found["Comment"] == "All of them", found
    assert found["Provider"].lower() == "lance", found
    assert "made" in found["Location"], found
    assert not spark.table(table).schema["id"].nullable
    shown = [row[1] for row in rows(spark, f"SHOW TABLES IN {catalog}.{namespace}")]
    assert "made" in shown, shown
    shown = [row[1] for row in rows(spark, f"SHOW TABLES IN {catalog}.{namespace} LIKE 'mad*'")]
    assert shown == ["made"], shown
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (other INT)")
    fails(spark, f"CREATE TABLE {table} (id INT)", "TABLE_OR_VIEW_ALREADY_EXISTS", "already exists")
    spark.sql(f"DROP TABLE {table}")
    fails(spark, f"SELECT * FROM {table}", "TABLE_OR_VIEW_NOT_FOUND", "not found")
    fails(spark, f"DROP TABLE {table}", "TABLE_OR_VIEW_NOT_FOUND", "not found")
    spark.sql(f"DROP TABLE IF EXISTS {table}")


def check_a_purged_table_can_be_made_again(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "purged")
    spark.sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    spark.sql(f"DROP TABLE {table} PURGE")
    spark.sql(f"CREATE TABLE {table} (name STRING)")
    assert rows(spark, f"SELECT * FROM {table}") == []


def check_what_is_not_there_is_named(spark: Any, catalog: str, namespace: str) -> None:
    fails(spark, f"SELECT * FROM {catalog}.{namespace}.none", "TABLE_OR_VIEW_NOT_FOUND")
    fails(
        spark,
        f"CREATE TABLE {catalog}.{namespace}_none.t (id INT)",
        "SCHEMA_NOT_FOUND",
        "not found",
    )
    table = fresh(spark, catalog, namespace, "plain")
    spark.sql(f"CREATE TABLE {table} (id INT)")
    fails(spark, f"SELECT nam FROM {table}", "UNRESOLVED_COLUMN")
    fails(spark, f"SELECT * FROM {table} VERSION AS OF 99", "99")
    fails(spark, f"SELECT * FROM {table} TIMESTAMP AS OF '2001-01-01'", "2001-01-01")
    other = fresh(spark, catalog, namespace, "other_format")
    fails(spark, f"CREATE TABLE {other} (id INT) USING parquet", "USING lance")
    fails(spark, f"CREATE TABLE {other} (id INT) PARTITIONED BY (id)", "artition")
    fails(spark, f"CREATE TABLE {other} (i INTERVAL YEAR TO MONTH)", "interval year to month")
    fails(spark, f"SHOW PARTITIONS {table}", "artition")


def check_properties_are_shown_set_and_unset(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "with_properties")
    spark.sql(f"CREATE TABLE {table} (id INT) TBLPROPERTIES (team = 'a', size = '3')")
    assert properties(spark, table).items() >= {"team": "a", "size": "3"}.items()
    assert not [key for key in properties(spark, table) if key.startswith("lance_bridge")]
    change = f"ALTER TABLE {table} SET TBLPROPERTIES (team = 'b', color = 'red')"
    if not alters(spark, catalog):
        fails(spark, change, "LANCE_UNSUPPORTED_OPERATION")
        return
    spark.sql(change)
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES (size)")
    found = properties(spark, table)
    assert (found.get("team"), found.get("color"), found.get("size")) == ("b", "red", None), found
    spark.sql(f"COMMENT ON TABLE {table} IS 'A comment'")
    assert described(spark, table)["Comment"] == "A comment"
    reserved = "('lance_bridge.id' = 'x')"
    fails(spark, f"ALTER TABLE {table} SET TBLPROPERTIES {reserved}", "reserved")


def check_show_create_table_can_be_run_again(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "shown")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT NOT NULL COMMENT 'The key', v ARRAY<FLOAT>) "
        "COMMENT 'Vectors' TBLPROPERTIES ('vector.v' = '4')"
    )
    [(statement,)] = rows(spark, f"SHOW CREATE TABLE {table}")
    lines = [line for line in statement.splitlines() if not line.startswith("LOCATION")]
    spark.sql(f"DROP TABLE {table}")
    spark.sql("\n".join(lines))
    assert columns(spark, table)[0] == ("id", "bigint", "The key")
    assert described(spark, table)["Comment"] == "Vectors"
    fails(spark, f"INSERT INTO {table} VALUES (1, array(1.0f))", "4")
    spark.sql(f"INSERT INTO {table} VALUES (1, array(1.0f, 2.0f, 3.0f, 4.0f))")


def check_tables_are_renamed(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "before")
    after = fresh(spark, catalog, namespace, "after")
    spark.sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    spark.sql(f"ALTER TABLE {table} RENAME TO after")
    assert values(spark, f"SELECT id FROM {after}") == [1]
    spark.sql(f"ALTER TABLE {after} RENAME TO {namespace}.before")
    assert values(spark, f"SELECT id FROM {table}") == [1]
    spark.sql(f"CREATE TABLE {after} (id INT)")
    fails(spark, f"ALTER TABLE {table} RENAME TO after", "already exists", "ALREADY_EXISTS")
    fails(spark, f"SELECT * FROM {catalog}.{namespace}.befor", "NOT_FOUND")


# -- versions ------------------------------------------------------------------------------------


def check_versions_are_read_by_number_and_by_time(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "travelled")
    spark.sql(f"CREATE TABLE {table} (id BIGINT)")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    [(moment,)] = rows(spark, "SELECT string(current_timestamp())")
    spark.sql(f"INSERT INTO {table} VALUES (2)")
    assert [row.id for row in spark.read.option("version", "2").table(table).collect()] == [1]
    spark.sql(f"ALTER TABLE {table} ADD COLUMN extra STRING")
    latest = f"SELECT id FROM {table} ORDER BY id"
    assert values(spark, latest) == [1, 2]
    assert values(spark, f"SELECT * FROM {table} VERSION AS OF 2") == [1]
    assert values(spark, f"SELECT * FROM {table} VERSION AS OF '1'") == []
    assert values(spark, f"SELECT * FROM {table} TIMESTAMP AS OF '{moment}'") == [1]
    later = f"SELECT id FROM {table} TIMESTAMP AS OF date_add(current_date(), 1) ORDER BY id"
    assert values(spark, later) == [1, 2]
    assert spark.table(table).columns == ["id", "extra"]
    count = f"SELECT count(*) FROM {table} VERSION AS OF 2"
    assert values(spark, count) == [1]


TABLE_CHECKS = (
    check_namespaces_are_created_shown_described_altered_and_dropped,
    check_a_current_namespace_shortens_names,
    check_tables_are_created_shown_described_and_dropped,
    check_a_purged_table_can_be_made_again,
    check_what_is_not_there_is_named,
    check_properties_are_shown_set_and_unset,
    check_show_create_table_can_be_run_again,
    check_tables_are_renamed,
    check_versions_are_read_by_number_and_by_time,
)
CHECKS = (*TABLE_CHECKS, *CHANGE_CHECKS, *ROW_CHECKS, *HABIT_CHECKS, *SEARCH_CHECKS)
