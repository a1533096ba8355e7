"""Checks of CALL: procedures of maintenance, indices, tags, branches, and jobs."""

from __future__ import annotations

import lance_bridge_spark as lb

from .sql_helpers import Database


def called(db: Database, call: str) -> list[tuple[object, ...]]:
    return db.rows(f"CALL {db.catalog}.system.{call}")


def short(db: Database, table: str) -> str:
    """Return a table's name without its catalog."""
    return table.removeprefix(f"{db.catalog}.")


def _filled(db: Database, name: str) -> str:
    table = db.made(name, "AS SELECT id, CAST(id AS STRING) AS word FROM range(3)")
    db.sql(f"INSERT INTO {table} VALUES (3, 'three')")
    return table


def check_procedures_compact_restore_and_clean_up(db: Database) -> None:
    table = _filled(db, "maintained")
    fragments = len(db.rows(f"SELECT DISTINCT _rowaddr >> 32 FROM {table}"))
    planned = called(db, f"compact(table => '{table}', dry_run => true)")
    assert planned == [(2, fragments, None)]
    assert called(db, f"compact('{short(db, table)}')") == [(4, fragments, 1)]
    assert db.values(f"SELECT count(*) FROM {table}") == [4]
    assert called(db, f"restore('{table}', 1)") == [(5,)]
    assert db.values(f"SELECT count(*) FROM {table}") == [3]
    assert called(db, f"clean_up('{table}', keep_versions => 1)") == [(0, 0, "")]
    db.fails(f"CALL {db.catalog}.system.clean_up('{table}', older_than_hours => 0)", "older_than")
    db.fails(f"CALL {db.catalog}.system.restore('{table}', 99)", "99")


def check_procedures_create_tags_and_branches(db: Database) -> None:
    table = _filled(db, "labelled")
    assert called(db, f"create_tag('{table}', 'first', 1)") == [("first", 1)]
    assert called(db, f"create_tag(table => '{table}', tag => 'now')") == [("now", 2)]
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 'first'") == [3]
    assert called(db, f"update_tag('{table}', 'first', 2)") == [("first", 2)]
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 'first'") == [4]
    assert called(db, f"delete_tag('{table}', 'first')") == [("first",)]
    db.fails(f"CALL {db.catalog}.system.delete_tag('{table}', 'first')", "first")
    assert called(db, f"create_branch('{table}', 'dev', 1)") == [("dev",)]
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 'dev'") == [3]
    assert called(db, f"delete_branch('{table}', 'dev')") == [("dev",)]


def check_procedures_build_and_drop_indices(db: Database) -> None:
    table = _filled(db, "indexed_by_call")
    assert called(db, f"create_index('{table}', 'id')") == [("id_idx",)]
    named = f"create_index('{table}', 'word', type => 'BITMAP', name => 'by word')"
    assert called(db, named) == [("by word",)]
    assert called(db, f"create_index('{table}', '`word`')") == [("word_idx",)]
    names = f"SELECT name FROM {table}.indices ORDER BY name"
    assert db.values(names) == ["by word", "id_idx", "word_idx"]
    db.sql(f"INSERT INTO {table} VALUES (4, 'four')")
    assert called(db, f"optimize_indices('{table}')") != []
    assert db.values(f"SELECT id FROM {table} WHERE word = 'four'") == [4]
    assert called(db, f"drop_index('{table}', 'by word')") == [("by word",)]
    db.fails(f"CALL {db.catalog}.system.drop_index('{table}', 'by word')", "by word")


def check_calls_that_cannot_be_are_refused(db: Database) -> None:
    table = _filled(db, "called_wrongly")
    call = f"CALL {db.catalog}.system"
    db.fails(f"{call}.no_such('{table}')", "no procedure", "no_such")
    db.fails(f"{call}.compact()", "table")
    db.fails(f"{call}.compact(NULL)", "needs 'table'")
    db.fails(f"{call}.compact('{table}', 0)", "target_rows")
    db.fails(f"{call}.compact('{table}_none')", "not found", "NOT_FOUND")
    assert db.values(f"SELECT count(*) FROM {table}") == [4]


def check_procedures_backfill_columns_in_the_session(db: Database) -> None:
    table = _filled(db, "filled_by_call")
    plus_one = "FUNCTION plus_one(x BIGINT) RETURNS BIGINT RETURN x + 1"
    db.sql(f"CREATE OR REPLACE TEMPORARY {plus_one}")
    try:
        [made] = called(db, f"backfill('{table}', 'next', 'plus_one(id)')")
    finally:
        db.sql("DROP TEMPORARY FUNCTION plus_one")
    fragments = len(db.rows(f"SELECT * FROM {table}.fragments"))
    assert made[:2] == (3, fragments)
    assert db.rows(f"SELECT id, next FROM {table} ORDER BY id") == [(0, 1), (1, 2), (2, 3), (3, 4)]
    uuid = f"SELECT uuid FROM {table}.transactions WHERE version = 3"
    assert db.values(uuid) == [made[2]]
    some = "column => 'word', expression => 'upper(word)', where => 'id = 3'"
    called(db, f"backfill('{short(db, table)}', {some})")
    assert db.values(f"SELECT word FROM {table} ORDER BY id") == ["0", "1", "2", "THREE"]


def check_backfills_that_cannot_be_are_refused(db: Database) -> None:
    table = _filled(db, "not_filled")
    call = f"CALL {db.catalog}.system.backfill('{table}'"
    db.fails(f"{call}, 'twice', 'none * 2')", "none")
    db.fails(f"{call}, 'twice', 'id * ')", "PARSE_SYNTAX_ERROR", "yntax")
    db.fails(f"{call}, 'twice', 'id', where => 'none = 1')", "none")
    db.fails(f"{call}, 'ID', 'id')", "letter case")
    db.fails(f"{call}, 'twice', 'CAST(word AS BIGINT)')", "CAST_INVALID_INPUT")
    assert db.values(f"SELECT max(version) FROM {table}.versions") == [2]


def check_procedures_refresh_views(db: Database) -> None:
    table, view = _filled(db, "behind_it"), db.fresh("of_it")
    lb.create_materialized_view(db.spark, view, f"SELECT id * 2 AS twice FROM {table}")
    assert called(db, f"refresh_view('{view}')")[0][1] is False
    db.sql(f"INSERT INTO {table} VALUES (9, 'nine')")
    assert called(db, f"refresh_view('{view}')")[0][1] is False
    assert db.values(f"SELECT twice FROM {view} ORDER BY 1") == [0, 2, 4, 6, 18]
    db.sql(f"DELETE FROM {table} WHERE id = 9")
    assert called(db, f"refresh_view(table => '{view}', full => true)")[0][1] is True
    assert db.values(f"SELECT twice FROM {view} ORDER BY 1") == [0, 2, 4, 6]
    refused = f"CALL {db.catalog}.system.refresh_view('{table}')"
    db.fails(refused, "is not a materialized view")
