"""Checks of `lance_search`, the table function. See `sql_checks` for how they are called."""

from __future__ import annotations

from .sql_helpers import Database


def _filled(db: Database, name: str) -> str:
    """Make a table of texts and vectors, whose last row is of its last version."""
    table = db.made(
        name, "(id BIGINT, name STRING, v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v' = '2')"
    )
    db.sql(
        f"INSERT INTO {table} VALUES (1, 'red lamp', array(0f, 1f)), (2, 'shoe', array(1f, 0f)), "
        "(3, 'lamp and lamp', array(5f, 5f)), (4, NULL, NULL)"
    )
    db.sql(f"INSERT INTO {table} VALUES (5, 'shoe', array(1f, 0.25f))")
    return table


def check_vectors_are_searched_by_a_function(db: Database) -> None:
    table = _filled(db, "searched_vectors")
    near = f"lance_search('{table}', vector => array(1.0, 0.0), k => 2)"
    found = db.sql(f"SELECT * FROM {near}")
    assert [(f.name, f.dataType.simpleString()) for f in found.schema.fields] == [
        ("id", "bigint"),
        ("name", "string"),
        ("v", "array<float>"),
        ("_distance", "float"),
    ]
    assert [(row.id, row._distance) for row in found.collect()] == [(2, 0.0), (5, 0.0625)]
    assert db.values(f"SELECT id FROM {near} WHERE id > 2") == [5]
    assert db.values(f"SELECT count(*) FROM {near}") == [2]
    before = f"lance_search('{table}', vector => array(1, 0), filter => 'id <> 2')"
    assert db.rows(f"SELECT id FROM {before} ORDER BY _distance LIMIT 2") == [(5,), (1,)]
    old = f"lance_search('{table}', vector => array(1, 0), k => 2, version => 2)"
    assert db.values(f"SELECT id FROM {old}") == [2, 1]
    joined = f"SELECT t.name FROM {near} s JOIN {table} t ON s.id = t.id ORDER BY s._distance"
    assert db.values(joined) == ["shoe", "shoe"]
    # Spark 4.2 takes all reads of one name in a statement for one.
    for first, second in ((near, table), (table, near)):
        counted = f"SELECT (SELECT count(*) FROM {first}), (SELECT count(*) FROM {second})"
        assert sorted(db.rows(counted)[0]) == [
            2,
            db.values(f"SELECT count(*) FROM {table}")[0],
        ]
    given = db.spark.sql(
        "SELECT id FROM lance_search(:table, vector => :vector, metric => 'cosine', k => 1)",
        {"table": table, "vector": [7.0, 7.0]},
    )
    assert [row.id for row in given.collect()] == [3]
    db.sql(f"CREATE OR REPLACE TEMPORARY VIEW near_ones AS SELECT * FROM {near}")
    assert db.values("SELECT id FROM near_ones") == [2, 5]


def check_texts_are_searched_by_a_function(db: Database) -> None:
    table = _filled(db, "searched_texts")
    lamps = db.sql(f"SELECT * FROM lance_search('{table}', text => 'lamp', text_columns => 'name')")
    assert lamps.columns == ["id", "name", "v", "_score"]
    found = lamps.collect()
    assert sorted(row.id for row in found) == [1, 3]
    assert found[0]._score >= found[1]._score > 0
    quoted = db.spark.sql(
        "SELECT id FROM lance_search(:table, text => :words, text_columns => array('name'))",
        {"table": table, "words": 'the "red" one\'s \\ or none'},
    )
    assert [row.id for row in quoted.collect()] == [1]


def check_both_are_searched_by_a_function(db: Database) -> None:
    table = _filled(db, "searched_both")
    both = db.sql(
        f"SELECT * FROM lance_search('{table}', vector => array(0, 1), text => 'lamp', "
        "text_columns => 'name', k => 3)"
    )
    ranks = ["_distance", "_score", "_relevance_score"]
    assert both.columns == ["id", "name", "v", *ranks]
    assert {both.schema[name].dataType.simpleString() for name in ranks} == {"float"}
    found = both.collect()
    assert found[0].id == 1, found
    assert len({row.id for row in found}) == 3, found
    assert list(found[0].v) == [0.0, 1.0]
    assert found[0]._distance == 0.0
    assert found[0]._score > 0
    assert [row._distance is None or row._score is None for row in found] == [False, True, True]
    scores = [row._relevance_score for row in found]
    assert scores == sorted(scores, reverse=True)
    assert 2 / 62 < scores[0] <= 2 / 60 + 1e-6


def check_a_search_that_cannot_be_is_refused(db: Database) -> None:
    table = _filled(db, "searched_wrongly")
    for arguments, words in (
        ("", "needs the name of a table"),
        (f"'{table}'", "a vector, a text, or both"),
        (f"'{table}', array(1, 0)", "by name"),
        (f"'{table}', vector => array(1, 0), kay => 3", "no argument 'kay'"),
        (f"'{table}', vector => array(1, 0), k => 0", "above 0"),
        (f"'{table}', vector => 'red'", "JSON"),
        (f"'{table}', vector => array('red')", "numbers"),
        (f"'{table}', text => 'red', text_columns => array('name', null)", "an array of names"),
        (f"'{table}', vector => array(1, 0), text_columns => 'name'", "needs 'text'"),
        (f"'{table}', vector => array(rand(), 1)", "constant"),
        (f"'{table}', vector => array(1, 0), version => 'none'", "no tag and no branch 'none'"),
        (f"'{table}', vector => array(1, 2, 3)", "2"),
        (f"'{table}_none', vector => array(1, 2, 3)", "TABLE_OR_VIEW_NOT_FOUND"),
        ("'spark_catalog.default.t', vector => array(1)", "another"),
    ):
        db.fails(f"SELECT id FROM lance_search({arguments})", words)
