"""Checks of metadata tables: versions, fragments, indices, tags, branches and transactions."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from lance_bridge_spark.sql.metadata_tables import TABLES

from .sql_helpers import Database, failure_of


def _filled(db: Database, name: str) -> str:
    """Make a table of four rows in two versions, one row of which is deleted in a third."""
    table = db.made(name, "AS SELECT id, CAST(id AS STRING) AS word FROM range(0, 3, 1, 1)")
    db.sql(f"INSERT INTO {table} VALUES (3, 'three')")
    db.sql(f"DELETE FROM {table} WHERE id = 1")
    return table


def _call(db: Database, call: str) -> None:
    db.sql(f"CALL {db.catalog}.system.{call}")


def check_versions_and_fragments_are_read_as_tables(db: Database) -> None:
    table = _filled(db, "of_versions")
    counts = "version, rows, deleted_rows, fragments, files"
    assert db.rows(f"SELECT {counts} FROM {table}.versions ORDER BY version") == [
        (1, 3, 0, 1, 1),
        (2, 4, 0, 2, 2),
        (3, 3, 1, 2, 2),
    ]
    [(first, last)] = db.rows(f"SELECT min(timestamp), max(timestamp) FROM {table}.versions")
    assert isinstance(first, datetime)
    assert first < last
    fragments = db.rows(f"SELECT * FROM {table}.fragments ORDER BY id")
    assert [row[:4] for row in fragments] == [(0, 2, 1, 1), (1, 1, 0, 1)]
    sizes = f"SELECT sum(bytes) FROM {table}.fragments"
    latest = f"SELECT max_by(bytes, version) FROM {table}.versions"
    assert db.values(sizes) == db.values(latest)
    assert db.values(sizes)[0] > 0


def check_indices_are_read_as_a_table(db: Database) -> None:
    table = _filled(db, "of_indices")
    assert db.rows(f"SELECT * FROM {table}.indices") == []
    _call(db, f"create_index('{table}', 'id')")
    _call(db, f"create_index('{table}', 'word', type => 'BITMAP', name => 'by word')")
    db.sql(f"INSERT INTO {table} VALUES (4, 'four')")
    columns = "name, columns, type, rows_indexed, rows_unindexed, segments"
    assert db.rows(f"SELECT {columns} FROM {table}.indices ORDER BY name") == [
        ("by word", ["word"], "BITMAP", 3, 1, 1),
        ("id_idx", ["id"], "BTREE", 3, 1, 1),
    ]


def check_tags_and_branches_are_read_as_tables(db: Database) -> None:
    table = _filled(db, "of_tags")
    assert db.rows(f"SELECT * FROM {table}.tags") == []
    _call(db, f"create_tag('{table}', 'first', 1)")
    _call(db, f"create_branch('{table}', 'dev', 2)")
    assert db.rows(f"SELECT * FROM {table}.tags") == [("first", 1, None)]
    branches = "SELECT name, version, parent_branch, parent_version, created_at IS NOT NULL"
    assert db.rows(f"{branches} FROM {table}.branches") == [("dev", 2, None, 2, True)]
    tagged = f"SELECT rows FROM {table}.versions JOIN {table}.tags USING (version)"
    assert db.values(tagged) == [3]


def check_transactions_are_read_as_a_table(db: Database) -> None:
    table = _filled(db, "of_transactions")
    found = db.rows(
        f"SELECT version, read_version, operation, uuid, properties FROM {table}.transactions "
        "ORDER BY version"
    )
    assert [row[0] for row in found] == [1, 2, 3]
    assert [row[1] for row in found][1:] == [1, 2]
    assert [row[2] for row in found] == ["Overwrite", "Append", "Delete"]
    assert len({row[3] for row in found}) == 3
    assert all(isinstance(row[4], dict) for row in found)


def check_metadata_tables_show_the_latest_state_and_are_joined(db: Database) -> None:
    table = _filled(db, "of_itself")
    named = db.spark.table(f"{table}.versions")
    assert named.columns == ["version", "timestamp", "rows", "deleted_rows", "fragments", "files",
                             "bytes"]  # fmt: skip
    assert named.count() == 3
    db.sql(f"INSERT INTO {table} VALUES (9, 'nine')")
    assert db.spark.table(f"{table}.VERSIONS").count() == 4
    change = f"""
        SELECT v.version, t.operation, v.rows - lag(v.rows) OVER (ORDER BY v.version) AS more
        FROM {table}.versions v JOIN {table}.transactions t ON v.version = t.version
        ORDER BY v.version DESC LIMIT 1"""
    assert db.rows(change) == [(4, "Append", 1)]
    before = db.rows("SELECT current_catalog(), current_schema()")[0]
    try:
        db.sql(f"USE {db.catalog}")
        assert db.values(f"SELECT count(*) FROM {db.namespace}.of_itself.versions") == [4]
    finally:
        db.sql(f"USE {'.'.join(before)}")
    described = db.columns(f"{table}.tags")
    assert described[0] == ("name", "string", "The name")


def check_metadata_tables_are_read_only(db: Database) -> None:
    table = _filled(db, "of_constants")
    for name in TABLES:
        assert db.spark.catalog.tableExists(f"{table}.{name}"), name
    for statement in (
        f"INSERT INTO {table}.tags VALUES ('x', 1, NULL)",
        f"INSERT OVERWRITE {table}.versions SELECT * FROM {table}.versions",
        f"DELETE FROM {table}.versions WHERE version = 1",
        f"UPDATE {table}.tags SET version = 1",
        f"TRUNCATE TABLE {table}.versions",
        f"ALTER TABLE {table}.versions ADD COLUMN x INT",
        f"DROP TABLE {table}.versions",
        f"CREATE TABLE {table}.versions (id INT)",
    ):
        assert failure_of(partial(db.sql, statement)) is not None, statement
    assert db.values(f"SELECT count(*) FROM {table}.versions") == [3]


def check_metadata_tables_that_cannot_be_are_refused(db: Database) -> None:
    table = _filled(db, "of_nothing")
    listed = db.fails(f"SELECT * FROM {table}.snapshots", "no metadata table 'snapshots'")
    assert "branches, fragments, indices, tags, transactions, versions" in listed
    # The session catalog passes it on, as the name of no Lance table.
    missing = ("NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE")
    db.fails(f"SELECT * FROM {table}_none.versions", *missing)
    db.fails(f"SELECT * FROM {table}.versions VERSION AS OF 1", "leave out VERSION AS OF")
    now = "TIMESTAMP AS OF current_timestamp()"
    db.fails(f"SELECT * FROM {table}.tags {now}", "leave out VERSION AS OF")
    db.fails(f"SELECT * FROM {table}.fragments WITH ('version' = '1')", "takes no options")
    shown = {row[1] for row in db.rows(f"SHOW TABLES IN {db.name}")}
    assert "of_nothing" in shown
    assert not shown & set(TABLES)
