"""Checks of statements that read and change rows. See `sql_checks` for how they are called."""

from __future__ import annotations

from .source_checks import ALL_TYPES
from .sql_helpers import Database, set_conf


def _filled(db: Database, name: str) -> str:
    """Make a table of ten rows in two files: id, name ('n0', …), size (id / 2, null for 9)."""
    table = db.made(name, "(id BIGINT, name STRING, size DOUBLE)")
    for start in (0, 5):
        db.sql(
            f"INSERT INTO {table} SELECT id, concat('n', id), IF(id = 9, NULL, id / 2) "
            f"FROM range({start}, {start + 5}, 1, 1)"
        )
    return table


def _ids(db: Database, table: str) -> list[int]:
    return db.values(f"SELECT id FROM {table} ORDER BY id")


def check_rows_are_inserted_in_every_form(db: Database) -> None:
    table = db.made("inserted", "(id BIGINT NOT NULL, name STRING)")
    db.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, NULL)")
    db.sql(f"INSERT INTO {table} (name, id) VALUES ('c', 3)")
    db.sql(f"INSERT INTO {table} BY NAME SELECT 'd' AS name, 4L AS id")
    db.sql(f"INSERT INTO TABLE {table} SELECT id + 4, 'e' FROM {table} WHERE id = 1")
    expected = [(1, "a"), (2, None), (3, "c"), (4, "d"), (5, "e")]
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == expected
    db.fails(f"INSERT INTO {table} VALUES (NULL, 'x')", "NULL", "null")
    db.fails(f"INSERT INTO {table} VALUES (1)", "NOT_ENOUGH_DATA_COLUMNS", "INSERT_COLUMN")
    db.fails(f"INSERT INTO {table} VALUES ('x', 'y')", "CAST_INVALID_INPUT", "CANNOT_SAFELY")
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == expected
    db.sql(f"INSERT OVERWRITE {table} SELECT id, 'z' FROM {table} WHERE id > 3")
    assert db.rows(f"SELECT * FROM {table} ORDER BY id") == [(4, "z"), (5, "z")]


def check_declared_lengths_of_strings_are_kept(db: Database) -> None:
    table = db.made("lengths", "(code VARCHAR(3))")
    db.sql(f"INSERT INTO {table} VALUES ('abc')")
    db.fails(f"INSERT INTO {table} VALUES ('abcd')", "EXCEED_LIMIT_LENGTH", "length")
    assert db.values(f"SELECT code FROM {table} WHERE code = 'abc'") == ["abc"]


def check_queries_filter_join_group_and_limit(db: Database) -> None:
    table = _filled(db, "queried")
    db.spark.range(3, 6).createOrReplaceTempView("some_ids")
    join = f"SELECT t.name FROM {table} t JOIN some_ids s ON t.id = s.id ORDER BY t.id"
    assert db.values(join) == ["n3", "n4", "n5"]
    for where, count in (
        ("id < 3", 3),
        ("id BETWEEN 2 AND 4", 3),
        ("id IN (1, 9, 50)", 2),
        ("name LIKE 'n%'", 10),
        ("name = 'n4' OR size IS NULL", 2),
        ("NOT (size > 1)", 3),
        ("length(name) = 2 AND id % 2 = 0", 5),
        ("size <=> NULL", 1),
        ("false", 0),
    ):
        found = db.values(f"SELECT count(*) FROM {table} WHERE {where}")
        assert found == [count], (where, found)
        assert len(db.rows(f"SELECT name FROM {table} WHERE {where}")) == count, where
    grouped = f"SELECT id % 2, count(*), sum(size), min(id) FROM {table} GROUP BY 1 ORDER BY 1"
    assert db.rows(grouped) == [(0, 5, 10.0, 0), (1, 5, 8.0, 1)]
    totals = f"SELECT count(*), count(size), sum(id), min(id), max(id), avg(size) FROM {table}"
    assert db.rows(totals) == [(10, 9, 45, 0, 9, 2.0)]
    assert len(db.rows(f"SELECT * FROM {table} LIMIT 3")) == 3
    assert db.values(f"SELECT id FROM {table} ORDER BY id DESC LIMIT 2") == [9, 8]
    both = f"SELECT a.id FROM {table} a JOIN {table} b ON a.id = b.id + 8 ORDER BY 1"
    assert db.values(both) == [8, 9]


def check_views_and_caches_read_tables(db: Database) -> None:
    table = _filled(db, "viewed")
    db.sql(f"CREATE OR REPLACE TEMPORARY VIEW small AS SELECT * FROM {table} WHERE id < 4")
    assert db.values("SELECT count(*) FROM small") == [4]
    db.sql(f"INSERT INTO {table} VALUES (-1, 'm', 0)")
    assert db.values("SELECT count(*) FROM small") == [5]
    db.sql(f"CACHE TABLE {table}")
    db.sql(f"INSERT INTO {table} VALUES (-2, 'm', 0)")
    db.sql(f"REFRESH TABLE {table}")
    assert db.values("SELECT count(*) FROM small") == [6]
    db.sql(f"UNCACHE TABLE {table}")


def check_rows_are_deleted(db: Database) -> None:
    table = _filled(db, "deleted")
    db.sql(f"DELETE FROM {table} WHERE id = 0")
    assert _ids(db, table) == list(range(1, 10))
    db.sql(f"DELETE FROM {table} WHERE length(name) + id = 3")
    assert _ids(db, table) == list(range(2, 10))
    db.sql(f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE size >= 3.5)")
    assert _ids(db, table) == [2, 3, 4, 5, 6, 9]
    db.sql(f"DELETE FROM {table} WHERE size > 100")
    assert len(_ids(db, table)) == 6
    db.sql(f"TRUNCATE TABLE {table}")
    assert _ids(db, table) == []
    assert db.values(f"SELECT count(*) FROM {table} VERSION AS OF 3") == [10]
    db.sql(f"INSERT INTO {table} VALUES (1, 'a', 0)")
    db.sql(f"DELETE FROM {table}")
    assert _ids(db, table) == []


def check_rows_are_updated(db: Database) -> None:
    table = _filled(db, "updated")
    db.sql(f"UPDATE {table} SET name = concat(name, '!'), size = id WHERE id < 2")
    db.sql(f"UPDATE {table} SET size = NULL WHERE id IN (SELECT id FROM range(8, 10))")
    found = db.rows(f"SELECT * FROM {table} WHERE id < 3 OR id > 7 ORDER BY id")
    expected = [(0, "n0!", 0.0), (1, "n1!", 1.0), (2, "n2", 1.0), (8, "n8", None), (9, "n9", None)]
    assert found == expected, found
    db.sql(f"UPDATE {table} SET size = 1 WHERE id > 100")
    db.sql(f"UPDATE {table} SET size = 7")
    assert db.rows(f"SELECT count(*), sum(size) FROM {table}") == [(10, 70.0)]
    db.fails(f"UPDATE {table} SET name = raise_error('bad row') WHERE id = 3", "bad row")
    assert db.rows(f"SELECT count(*), sum(size) FROM {table}") == [(10, 70.0)]


def check_rows_are_merged(db: Database) -> None:
    table = _filled(db, "merged")
    db.sql(
        "CREATE OR REPLACE TEMPORARY VIEW changes AS SELECT * FROM VALUES "
        "(1L, 'one', 'u'), (2L, 'two', 'd'), (50L, 'fifty', 'i') AS t(id, name, op)"
    )
    db.sql(
        f"MERGE INTO {table} t USING changes c ON t.id = c.id "
        "WHEN MATCHED AND c.op = 'd' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET name = c.name "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (c.id, c.name) "
        "WHEN NOT MATCHED BY SOURCE AND t.id > 7 THEN DELETE"
    )
    found = db.rows(f"SELECT id, name FROM {table} ORDER BY id")
    expected = [(0, "n0"), (1, "one"), *((i, f"n{i}") for i in range(3, 8)), (50, "fifty")]
    assert found == expected, found
    twice = "(SELECT 1L AS id, name FROM changes)"
    db.fails(
        f"MERGE INTO {table} t USING {twice} c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET name = c.name",
        "MERGE_CARDINALITY_VIOLATION",
    )
    assert db.rows(f"SELECT id, name FROM {table} ORDER BY id") == expected


def _plan(db: Database, query: str) -> str:
    # Such a plan shows all before it runs.
    with set_conf(db.spark, "spark.sql.adaptive.enabled", "false"):
        return str(db.rows(f"EXPLAIN {query}")[0][0])


def check_values_of_every_type_come_back_by_columns_and_by_rows(db: Database) -> None:
    table = db.made("columnar", f"AS {ALL_TYPES}")
    db.sql(f"INSERT INTO {table} (i64) VALUES (100)")
    source = f"{table} WITH (`batch_size` = '3', `rows_per_task` = '4')"
    queries = [
        f"SELECT * FROM {source} ORDER BY i64",
        f"SELECT max(word), min(money), sum(large) FROM {source} WHERE length(word) > 1",
    ]
    for query in queries:
        found = []
        for columnar in ("auto", "false"):
            with (
                set_conf(db.spark, "spark.lance_bridge.local.rows", "0"),
                set_conf(db.spark, "spark.lance_bridge.columnar", columnar),
            ):
                assert ("ColumnarToRow" in _plan(db, query)) == (columnar == "auto")
                found.append(db.rows(query))
        assert found[0] == found[1] != [], query
    *typed, nulls = db.rows(queries[0])
    assert typed == db.rows(f"SELECT * FROM ({ALL_TYPES}) ORDER BY i64")
    assert set(nulls) == {None, 100}


def check_limits_skip_rows_and_take_the_first_of_an_order(db: Database) -> None:
    table = _filled(db, "limited")
    db.sql(f"DELETE FROM {table} WHERE id = 3")
    query = f"SELECT id, size FROM {table} WITH (`rows_per_task` = '5')"
    expected = {
        f"{query} ORDER BY name DESC LIMIT 3": (" order: ", [(9, None), (8, 4.0), (7, 3.5)]),
        f"{query} ORDER BY name LIMIT 2 OFFSET 4": (" order: ", [(5, 2.5), (6, 3.0)]),
        f"{query} LIMIT 2 OFFSET 3": (" offset: ", [(4, 2.0), (5, 2.5)]),
        f"{query} OFFSET 7": (" offset: ", [(8, 4.0), (9, None)]),
    }
    for local in ("0", "1000"):
        with set_conf(db.spark, "spark.lance_bridge.local.rows", local):
            for statement, (pushed, found) in expected.items():
                assert (pushed in _plan(db, statement)) == (local == "0"), statement
                assert db.rows(statement) == found, statement
