"""What the data source must do on every release and master.

Functions of a session, a catalog and a namespace. They run in a process of their own
(`servers.sparks`), and raise where something is wrong. Tables are made and dropped by name, in the
catalog; what is exact is compared with Spark's own Parquet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lance_namespace import DropTableRequest
from lance_namespace.errors import TableNotFoundError

from lance_bridge_spark.addresses import address_of
from lance_bridge_spark.lookup import find_table

from .sql_helpers import failure_of

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


@contextmanager
def dropped(spark: Any, table: str) -> Iterator[str]:
    """Lend a table's name, and drop what there is of it in the end."""
    address = address_of(spark, table)
    assert address.catalog is not None
    try:
        yield table
    finally:
        with suppress(TableNotFoundError):
            address.catalog.connect().drop_table(DropTableRequest(id=list(address.path)))


def write(frame: Any, table: str, mode: str = "append", **options: Any) -> None:
    """Write a DataFrame to a table by its name."""
    frame.write.format("lance").options(**options).mode(mode).save(table)


def read(spark: Any, table: str, **options: Any) -> Any:
    """Return a table as a DataFrame."""
    return spark.read.format("lance").options(**options).load(table)


def every_type_comes_back_as_parquet_gives_it(spark: Any, catalog: str, namespace: str) -> None:
    """Values, nulls and types of all columns, and of rows where every column is null."""
    with dropped(spark, f"{catalog}.{namespace}.types") as table:
        frame = spark.sql(ALL_TYPES)
        empty = frame.selectExpr(*[f"IF(false, {name}, NULL) AS {name}" for name in frame.columns])
        rows = frame.unionByName(empty.limit(2))
        with tempfile.TemporaryDirectory() as directory:
            rows.write.parquet(f"{directory}/rows")
            expected = spark.read.parquet(f"{directory}/rows")
            write(rows, table)
            found = read(spark, table)
            assert found.dtypes == expected.dtypes, found.dtypes
            require_same(found, expected)


def floats_become_vectors_by_option(spark: Any, catalog: str, namespace: str) -> None:
    """A dimension makes a vector of a column, and a search finds the nearest."""
    with dropped(spark, f"{catalog}.{namespace}.floats") as table:
        frame = spark.sql("SELECT id, array(CAST(id AS FLOAT), 0F) AS v FROM range(100)")
        write(frame.repartition(3), table, "append", **{"vector.v": 2})
        search = {"nearest.column": "v", "nearest.query": "[41.2, 0]", "nearest.k": 3}
        found = read(spark, table, **search).orderBy("_distance").collect()
        assert [row.id for row in found] == [41, 42, 40], found


def columns_filter_and_version_are_honoured(spark: Any, catalog: str, namespace: str) -> None:
    """Options of a read, on a table with two versions of rows."""
    with dropped(spark, f"{catalog}.{namespace}.options") as table:
        write(spark.range(10).selectExpr("id", "concat('w', id) AS w"), table)
        first = int(find_table(address_of(spark, table)).open().version)
        write(spark.range(10, 15).selectExpr("concat('w', id) AS w", "id"), table)
        found = read(spark, table, columns="w", filter="id > 7")
        assert sorted(row.w for row in found.collect()) == sorted(f"w{n}" for n in range(8, 15))
        assert found.columns == ["w"]
        assert read(spark, table, version=first).count() == 10
        assert len(read(spark, table, limit=4).collect()) == 4
        frame = read(spark, table)
        assert (frame.filter("id < 5").count(), frame.count()) == (5, 15)
        assert frame.alias("a").join(frame.alias("b"), "id").count() == 15


def an_overwrite_leaves_the_new_rows_alone(spark: Any, catalog: str, namespace: str) -> None:
    """Overwrites of all rows keep the columns."""
    with dropped(spark, f"{catalog}.{namespace}.overwritten") as table:
        write(spark.range(10), table)
        write(spark.range(3), table, "overwrite")
        assert sorted(row.id for row in read(spark, table).collect()) == [0, 1, 2]


def a_missing_table_and_a_wrong_option_are_named(spark: Any, catalog: str, namespace: str) -> None:
    """Errors say what was expected."""
    table = f"{catalog}.{namespace}.nowhere"
    error = failure_of(lambda: read(spark, table).collect()) or ""
    assert "nowhere" in error, error
    error = failure_of(lambda: read(spark, table, colunms="x").collect()) or ""
    assert "colunms" in error, error
    assert "columns" in error, error


def a_stream_copies_a_table_once(spark: Any, catalog: str, namespace: str) -> None:
    """From a table into another, and after a restart only what is new."""
    source, sink = (f"{catalog}.{namespace}.stream_{name}" for name in ("source", "sink"))
    with dropped(spark, source), dropped(spark, sink), tempfile.TemporaryDirectory() as directory:
        write(spark.range(10), source)
        copy(spark, source, sink, Path(directory))
        write(spark.range(10, 25), source)
        copy(spark, source, sink, Path(directory))
        copy(spark, source, sink, Path(directory))
        assert sorted(row.id for row in read(spark, sink).collect()) == list(range(25))


def copy(spark: Any, source: str, sink: str, checkpoint: Path) -> None:
    """Stream what there is of one table into another."""
    frame = spark.readStream.format("lance").load(source)
    writer = frame.writeStream.format("lance").option("path", sink)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    try:
        assert query.awaitTermination(60), "the stream did not end"
    finally:
        query.stop()


def require_same(found: Any, expected: Any) -> None:
    """Compare the rows of two DataFrames, whatever their order."""
    ours, theirs = (sorted(map(repr, frame.collect())) for frame in (found, expected))
    assert ours == theirs, "\n".join(
        f"{a}\n  {b}" for a, b in zip(ours, theirs, strict=False) if a != b
    )


ONLY = "hive"
"""Catalogs differ by their entries, which `sql_checks` look at; these read and write rows."""
CHECKS = (
    every_type_comes_back_as_parquet_gives_it,
    floats_become_vectors_by_option,
    columns_filter_and_version_are_honoured,
    an_overwrite_leaves_the_new_rows_alone,
    a_missing_table_and_a_wrong_option_are_named,
    a_stream_copies_a_table_once,
)
