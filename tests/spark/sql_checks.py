"""Checks of the SQL catalog: each one statement's behaviour, on any Spark and any catalog.

A check is a function whose name begins with ``check_``. It is called with a namespace that exists,
and raises AssertionError. It makes what it needs under names of its own, so that all can run in one
session, again and again.
"""

from __future__ import annotations

from . import sql_change_checks, sql_habit_checks, sql_row_checks, sql_search_checks
from .sql_helpers import Database, failure_of

PARTS = (sql_change_checks, sql_row_checks, sql_habit_checks, sql_search_checks)
"""Modules with more of them."""

# -- namespaces ----------------------------------------------------------------------------------


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


# -- tables --------------------------------------------------------------------------------------


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
    db.fails(
        f"CREATE TABLE {db.name}_none.t (id INT)",
        "SCHEMA_NOT_FOUND",
        "not found",
    )
    table = db.made("plain", "(id INT)")
    db.fails(f"SELECT nam FROM {table}", "UNRESOLVED_COLUMN")
    db.fails(f"SELECT * FROM {table} VERSION AS OF 99", "99")
    db.fails(f"SELECT * FROM {table} TIMESTAMP AS OF '2001-01-01'", "2001-01-01")
    other = db.fresh("other_format")
    db.fails(f"CREATE TABLE {other} (id INT) USING parquet", "USING lance")
    db.fails(f"CREATE TABLE {other} (id INT) PARTITIONED BY (id)", "artition")
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


# -- versions ------------------------------------------------------------------------------------


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
