"""What the data source must do on every release and master.

See `sql_checks` for how they are called. What is exact is compared with Spark's own Parquet.
"""

from __future__ import annotations

import tempfile
from typing import Any

from lance_bridge_spark.addresses import address_of
from lance_bridge_spark.lookup import find_table

from .sql_helpers import Database, failure_of, stream_all

ALL_TYPES = """
    SELECT CAST(id AS INT) % 3 = 0 AS truth, CAST(id AS TINYINT) AS i8, CAST(id AS SMALLINT) AS i16,
        CAST(id AS INT) AS i32, id AS i64, CAST(id AS FLOAT) / 3 AS f32, id / 3D AS f64,
        CAST(id AS DECIMAL(38, 18)) AS large, CAST(id AS DECIMAL(9, 2)) AS money,
        concat('row ', id) AS word, CAST(concat('b', id) AS BINARY) AS bytes,
        date_add(DATE'1969-12-30', CAST(id AS INT)) AS day,
        timestamp_micros(id * 1000001 - 1) AS moment,
        CAST(timestamp_micros(id * 1000001) AS TIMESTAMP_NTZ) AS wall,
        make_dt_interval(CAST(id AS INT), 1, 2, 3.5) AS span,
        array(CAST(id AS FLOAT), 0.5F) AS floats, array(array(concat(id)), array()) AS nested,
        named_struct('a', id, 'b', named_struct('c', concat(id))) AS parts,
        map(concat('k', id), id) AS pairs
    FROM range(-2, 8)
"""


def write(frame: Any, table: str, mode: str = "append", **options: Any) -> None:
    """Write a DataFrame to a table by its name."""
    frame.write.format("lance").options(**options).mode(mode).save(table)


def read(db: Database, table: str, **options: Any) -> Any:
    """Return a table as a DataFrame."""
    return db.spark.read.format("lance").options(**options).load(table)


def check_every_type_comes_back_as_parquet_gives_it(db: Database) -> None:
    """Values, nulls and types of all columns, and of rows where every column is null."""
    table = db.fresh("types")
    frame = db.sql(ALL_TYPES)
    empty = frame.selectExpr(*[f"IF(false, {name}, NULL) AS {name}" for name in frame.columns])
    rows = frame.unionByName(empty.limit(2))
    with tempfile.TemporaryDirectory() as directory:
        rows.write.parquet(f"{directory}/rows")
        expected = db.spark.read.parquet(f"{directory}/rows")
        write(rows, table)
        found = read(db, table)
        assert found.dtypes == expected.dtypes, found.dtypes
        require_same(found, expected)


def check_floats_become_vectors_by_option(db: Database) -> None:
    """A dimension makes a vector of a column, and a search finds the nearest."""
    table = db.fresh("floats")
    frame = db.sql("SELECT id, array(CAST(id AS FLOAT), 0F) AS v FROM range(100)")
    write(frame.repartition(3), table, "append", **{"vector.v": 2})
    search = {"nearest.column": "v", "nearest.query": "[41.2, 0]", "nearest.k": 3}
    found = read(db, table, **search).orderBy("_distance").collect()
    assert [row.id for row in found] == [41, 42, 40], found


def check_columns_filter_and_version_are_honoured(db: Database) -> None:
    """Options of a read, on a table with two versions of rows."""
    table = db.fresh("options")
    write(db.spark.range(10).selectExpr("id", "concat('w', id) AS w"), table)
    first = int(find_table(address_of(db.spark, table)).open().version)
    write(db.spark.range(10, 15).selectExpr("concat('w', id) AS w", "id"), table)
    found = read(db, table, columns="w", filter="id > 7")
    assert sorted(row.w for row in found.collect()) == sorted(f"w{n}" for n in range(8, 15))
    assert found.columns == ["w"]
    assert read(db, table, version=first).count() == 10
    assert len(read(db, table, limit=4).collect()) == 4
    frame = read(db, table)
    assert (frame.filter("id < 5").count(), frame.count()) == (5, 15)
    assert frame.alias("a").join(frame.alias("b"), "id").count() == 15


def check_an_overwrite_leaves_the_new_rows_alone(db: Database) -> None:
    """Overwrites of all rows keep the columns."""
    table = db.fresh("overwritten")
    write(db.spark.range(10), table)
    write(db.spark.range(3), table, "overwrite")
    assert sorted(row.id for row in read(db, table).collect()) == [0, 1, 2]


def check_a_missing_table_and_a_wrong_option_are_named(db: Database) -> None:
    """Errors say what was expected."""
    table = f"{db.name}.nowhere"
    error = failure_of(lambda: read(db, table).collect()) or ""
    assert "nowhere" in error, error
    error = failure_of(lambda: read(db, table, colunms="x").collect()) or ""
    assert "colunms" in error, error
    assert "columns" in error, error


def check_a_stream_copies_a_table_once(db: Database) -> None:
    """From a table into another, and after a restart only what is new."""
    source, sink = db.fresh("stream_source"), db.fresh("stream_sink")
    with tempfile.TemporaryDirectory() as directory:
        write(db.spark.range(10), source)
        rows = db.spark.readStream.format("lance").load(source)
        writer = rows.writeStream.format("lance").option("path", sink)
        stream_all(writer, directory)
        write(db.spark.range(10, 25), source)
        for _ in range(2):
            stream_all(writer, directory)
        assert sorted(row.id for row in read(db, sink).collect()) == list(range(25))


def require_same(found: Any, expected: Any) -> None:
    """Compare the rows of two DataFrames, whatever their order."""
    found_rows, expected_rows = (sorted(map(repr, frame.collect())) for frame in (found, expected))
    assert found_rows == expected_rows, "\n".join(
        f"{a}\n  {b}" for a, b in zip(found_rows, expected_rows, strict=False) if a != b
    )


ONLY = "hive"
"""Catalogs differ by their entries, which `sql_checks` look at; these read and write rows."""
