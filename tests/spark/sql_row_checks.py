"""Checks of statements that read and change rows. See `sql_checks` for how they are called."""

from __future__ import annotations

from typing import Any

from .source_checks import ALL_TYPES
from .sql_helpers import fails, fresh, rows, setting, values


def _filled(spark: Any, catalog: str, namespace: str, name: str) -> str:
    """Make a table of ten rows in two files: id, name ('n0', …), size (id / 2, null for 9)."""
    table = fresh(spark, catalog, namespace, name)
    spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING, size DOUBLE)")
    for start in (0, 5):
        spark.sql(
            f"INSERT INTO {table} SELECT id, concat('n', id), IF(id = 9, NULL, id / 2) "
            f"FROM range({start}, {start + 5}, 1, 1)"
        )
    return table


def _ids(spark: Any, table: str) -> list[int]:
    return values(spark, f"SELECT id FROM {table} ORDER BY id")


def check_rows_are_inserted_in_every_form(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "inserted")
    spark.sql(f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, NULL)")
    spark.sql(f"INSERT INTO {table} (name, id) VALUES ('c', 3)")
    spark.sql(f"INSERT INTO {table} BY NAME SELECT 'd' AS name, 4L AS id")
    spark.sql(f"INSERT INTO TABLE {table} SELECT id + 4, 'e' FROM {table} WHERE id = 1")
    expected = [(1, "a"), (2, None), (3, "c"), (4, "d"), (5, "e")]
    assert rows(spark, f"SELECT * FROM {table} ORDER BY id") == expected
    fails(spark, f"INSERT INTO {table} VALUES (NULL, 'x')", "NULL", "null")
    fails(spark, f"INSERT INTO {table} VALUES (1)", "NOT_ENOUGH_DATA_COLUMNS", "INSERT_COLUMN")
    fails(spark, f"INSERT INTO {table} VALUES ('x', 'y')", "CAST_INVALID_INPUT", "CANNOT_SAFELY")
    assert rows(spark, f"SELECT * FROM {table} ORDER BY id") == expected
    spark.sql(f"INSERT OVERWRITE {table} SELECT id, 'z' FROM {table} WHERE id > 3")
    assert rows(spark, f"SELECT * FROM {table} ORDER BY id") == [(4, "z"), (5, "z")]


def check_declared_lengths_of_strings_are_kept(spark: Any, catalog: str, namespace: str) -> None:
    table = fresh(spark, catalog, namespace, "lengths")
    spark.sql(f"CREATE TABLE {table} (code VARCHAR(3))")
    spark.sql(f"INSERT INTO {table} VALUES ('abc')")
    fails(spark, f"INSERT INTO {table} VALUES ('abcd')", "EXCEED_LIMIT_LENGTH", "length")
    assert values(spark, f"SELECT code FROM {table} WHERE code = 'abc'") == ["abc"]


def check_queries_filter_join_group_and_limit(spark: Any, catalog: str, namespace: str) -> None:
    table = _filled(spark, catalog, namespace, "queried")
    spark.range(3, 6).createOrReplaceTempView("some_ids")
    join = f"SELECT t.name FROM {table} t JOIN some_ids s ON t.id = s.id ORDER BY t.id"
    assert values(spark, join) == ["n3", "n4", "n5"]
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
        found = values(spark, f"SELECT count(*) FROM {table} WHERE {where}")
        assert found == [count], (where, found)
        assert len(rows(spark, f"SELECT name FROM {table} WHERE {where}")) == count, where
    grouped = f"SELECT id % 2, count(*), sum(size), min(id) FROM {table} GROUP BY 1 ORDER BY 1"
    assert rows(spark, grouped) == [(0, 5, 10.0, 0), (1, 5, 8.0, 1)]
    totals = f"SELECT count(*), count(size), sum(id), min(id), max(id), avg(size) FROM {table}"
    assert rows(spark, totals) == [(10, 9, 45, 0, 9, 2.0)]
    assert len(rows(spark, f"SELECT * FROM {table} LIMIT 3")) == 3
    assert values(spark, f"SELECT id FROM {table} ORDER BY id DESC LIMIT 2") == [9, 8]
    both = f"SELECT a.id FROM {table} a JOIN {table} b ON a.id = b.id + 8 ORDER BY 1"
    assert values(spark, both) == [8, 9]


def check_views_and_caches_read_tables(spark: Any, catalog: str, namespace: str) -> None:
    table = _filled(spark, catalog, namespace, "viewed")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW small AS SELECT * FROM {table} WHERE id < 4")
    assert values(spark, "SELECT count(*) FROM small") == [4]
    spark.sql(f"INSERT INTO {table} VALUES (-1, 'm', 0)")
    assert values(spark, "SELECT count(*) FROM small") == [5]
    spark.sql(f"CACHE TABLE {table}")
    spark.sql(f"INSERT INTO {table} VALUES (-2, 'm', 0)")
    spark.sql(f"REFRESH TABLE {table}")
    assert values(spark, "SELECT count(*) FROM small") == [6]
    spark.sql(f"UNCACHE TABLE {table}")


def check_rows_are_deleted(spark: Any, catalog: str, namespace: str) -> None:
    table = _filled(spark, catalog, namespace, "deleted")
    spark.sql(f"DELETE FROM {table} WHERE id = 0")
    assert _ids(spark, table) == list(range(1, 10))
    spark.sql(f"DELETE FROM {table} WHERE length(name) + id = 3")
    assert _ids(spark, table) == list(range(2, 10))
    spark.sql(f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE size >= 3.5)")
    assert _ids(spark, table) == [2, 3, 4, 5, 6, 9]
    spark.sql(f"DELETE FROM {table} WHERE size > 100")
    assert len(_ids(spark, table)) == 6
    spark.sql(f"TRUNCATE TABLE {table}")
    assert _ids(spark, table) == []
    assert values(spark, f"SELECT count(*) FROM {table} VERSION AS OF 3") == [10]
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 0)")
    spark.sql(f"DELETE FROM {table}")
    assert _ids(spark, table) == []


def check_rows_are_updated(spark: Any, catalog: str, namespace: str) -> None:
    table = _filled(spark, catalog, namespace, "updated")
    spark.sql(f"UPDATE {table} SET name = concat(name, '!'), size = id WHERE id < 2")
    spark.sql(f"UPDATE {table} SET size = NULL WHERE id IN (SELECT id FROM range(8, 10))")
    found = rows(spark, f"SELECT * FROM {table} WHERE id < 3 OR id > 7 ORDER BY id")
    expected = [(0, "n0!", 0.0), (1, "n1!", 1.0), (2, "n2", 1.0), (8, "n8", None), (9, "n9", None)]
    assert found == expected, found
    spark.sql(f"UPDATE {table} SET size = 1 WHERE id > 100")
    spark.sql(f"UPDATE {table} SET size = 7")
    assert rows(spark, f"SELECT count(*), sum(size) FROM {table}") == [(10, 70.0)]
    fails(spark, f"UPDATE {table} SET name = raise_error('bad row') WHERE id = 3", "bad row")
    assert rows(spark, f"SELECT count(*), sum(size) FROM {table}") == [(10, 70.0)]


def check_rows_are_merged(spark: Any, catalog: str, namespace: str) -> None:
    table = _filled(spark, catalog, namespace, "merged")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW changes AS SELECT * FROM VALUES "
        "(1L, 'one', 'u'), (2L, 'two', 'd'), (50L, 'fifty', 'i') AS t(id, name, op)"
    )
    spark.sql(
        f"MERGE INTO {table} t USING changes c ON t.id = c.id "
        "WHEN MATCHED AND c.op = 'd' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET name = c.name "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (c.id, c.name) "
        "WHEN NOT MATCHED BY SOURCE AND t.id > 7 THEN DELETE"
    )
    found = rows(spark, f"SELECT id, name FROM {table} ORDER BY id")
    expected = [(0, "n0"), (1, "one"), *((i, f"n{i}") for i in range(3, 8)), (50, "fifty")]
    assert found == expected, found
    twice = "(SELECT 1L AS id, name FROM changes)"
    fails(
        spark,
        f"MERGE INTO {table} t USING {twice} c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET name = c.name",
        "MERGE_CARDINALITY_VIOLATION",
    )
    assert rows(spark, f"SELECT id, name FROM {table} ORDER BY id") == expected


def _plan(spark: Any, query: str) -> str:
    # Such a plan shows all before it runs.
    with setting(spark, "spark.sql.adaptive.enabled", "false"):
        return str(rows(spark, f"EXPLAIN {query}")[0][0])


def check_values_of_every_type_come_back_by_columns_and_by_rows(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = fresh(spark, catalog, namespace, "columnar")
    spark.sql(f"CREATE TABLE {table} AS {ALL_TYPES}")
    spark.sql(f"INSERT INTO {table} (i64) VALUES (100)")
    source = f"{table} WITH (`batch_size` = '3', `rows_per_task` = '4')"
    queries = [
        f"SELECT * FROM {source} ORDER BY i64",
        f"SELECT max(word), min(money), sum(large) FROM {source} WHERE length(word) > 1",
    ]
    for query in queries:
        found = []
        for columnar in ("auto", "false"):
            with (
                setting(spark, "spark.lance_bridge.local.rows", "0"),
                setting(spark, "spark.lance_bridge.columnar", columnar),
            ):
                assert ("ColumnarToRow" in _plan(spark, query)) == (columnar == "auto")
                found.append(rows(spark, query))
        assert found[0] == found[1] != [], query
    *typed, nulls = rows(spark, queries[0])
    assert typed == rows(spark, f"SELECT * FROM ({ALL_TYPES}) ORDER BY i64")
    assert set(nulls) == {None, 100}


def check_limits_skip_rows_and_take_the_first_of_an_order(
    spark: Any, catalog: str, namespace: str
) -> None:
    table = _filled(spark, catalog, namespace, "limited")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    query = f"SELECT id, size FROM {table} WITH (`rows_per_task` = '5')"
    expected = {
        f"{query} ORDER BY name DESC LIMIT 3": (" order: ", [(9, None), (8, 4.0), (7, 3.5)]),
        f"{query} ORDER BY name LIMIT 2 OFFSET 4": (" order: ", [(5, 2.5), (6, 3.0)]),
        f"{query} LIMIT 2 OFFSET 3": (" offset: ", [(4, 2.0), (5, 2.5)]),
        f"{query} OFFSET 7": (" offset: ", [(8, 4.0), (9, None)]),
    }
    for local in ("0", "1000"):
        with setting(spark, "spark.lance_bridge.local.rows", local):
            for statement, (pushed, found) in expected.items():
                assert (pushed in _plan(spark, statement)) == (local == "0"), statement
                assert rows(spark, statement) == found, statement


ROW_CHECKS = (
    check_rows_are_inserted_in_every_form,
    check_declared_lengths_of_strings_are_kept,
    check_queries_filter_join_group_and_limit,
    check_views_and_caches_read_tables,
    check_rows_are_deleted,
    check_rows_are_updated,
    check_rows_are_merged,
    check_values_of_every_type_come_back_by_columns_and_by_rows,
    check_limits_skip_rows_and_take_the_first_of_an_order,
)
