"""Writes by SQL put rows in the order, and into the files, that properties of the table say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

from .catalogs import unity_catalog
from .sql_helpers import described, fails, setting

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.spec("spark.md#write-order")]

ROWS = "SELECT id, concat('w', pmod(id * 7, 13)) AS word FROM range(0, 400, 1, 4)"


@pytest.fixture(scope="module")
def db(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace, in a session whose tasks are not joined for being small."""
    with (
        setting(spark, "spark.sql.adaptive.enabled", "false"),
        unity_catalog(spark, "ordered", tmp_path_factory.mktemp("ordered")) as catalog,
    ):
        yield f"{catalog}.db"


def fragments(spark: Any, table: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each fragment of a table, as they are stored."""
    dataset = lance.dataset(described(spark, table)["Location"])
    found = [each.to_table().to_pylist() for each in dataset.get_fragments()]
    assert sum(map(len, found)) == 400
    return found


@pytest.mark.servers
def test_tasks_write_ranges_of_the_order_and_sort_them(spark: Any, db: str) -> None:
    properties = "TBLPROPERTIES ('write.order_by' = '`word` DESC, id')"
    spark.sql(f"CREATE TABLE {db}.sorted (id BIGINT, word STRING) {properties}")
    spark.sql(f"INSERT INTO {db}.sorted {ROWS}")
    spark.sql(f"CREATE TABLE {db}.made {properties} AS {ROWS}")
    spark.sql(f"INSERT OVERWRITE {db}.made {ROWS}")
    for table in (f"{db}.sorted", f"{db}.made"):
        written = fragments(spark, table)
        assert len(written) == 2
        for rows in written:
            assert rows == sorted(
                sorted(rows, key=lambda row: row["id"]), key=lambda row: row["word"], reverse=True
            )
        # Which range is committed first depends on the tasks.
        ranges = sorted((rows[-1]["word"], rows[0]["word"]) for rows in written)
        assert ranges[0][1] <= ranges[1][0]


@pytest.mark.servers
def test_rows_with_the_same_values_are_written_by_one_task(spark: Any, db: str) -> None:
    spark.sql(
        f"CREATE TABLE {db}.clustered (id BIGINT, word STRING) "
        "TBLPROPERTIES ('write.distribute_by' = 'word', 'write.order_by' = 'id DESC')"
    )
    spark.sql(f"INSERT INTO {db}.clustered {ROWS}")
    one, other = fragments(spark, f"{db}.clustered")
    assert not {row["word"] for row in one} & {row["word"] for row in other}
    for rows in (one, other):
        ids = [row["id"] for row in rows]
        assert ids == sorted(ids, reverse=True)


@pytest.mark.slow
def test_a_stream_sorts_each_batch(spark: Any, db: str, tmp_path: Path) -> None:
    spark.sql(ROWS).write.parquet(str(tmp_path / "rows"))
    spark.sql(
        f"CREATE TABLE {db}.streamed (id BIGINT, word STRING) "
        "TBLPROPERTIES ('write.order_by' = 'word, id DESC')"
    )
    rows = spark.readStream.schema("id BIGINT, word STRING").parquet(str(tmp_path / "rows"))
    query = (
        rows.writeStream.format("lance")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(f"{db}.streamed")
    )
    assert query.awaitTermination(120)
    for rows in fragments(spark, f"{db}.streamed"):
        assert rows == sorted(rows, key=lambda row: (row["word"], -row["id"]))


@pytest.mark.servers
@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("size", "names size, which is no column at the top level"),
        ("st.x", "names st.x, which is no column at the top level"),
        ("m", "names column m, whose values have no order"),
        ("id,", "must be columns with commas between, as after ORDER BY, not 'id,'"),
        ("id LIMIT 1", "must be columns with commas between"),
        ("id + 1", "must be columns with commas between"),
        ("", "must be columns with commas between"),
    ],
)
def test_what_is_no_order_of_the_table_is_refused(
    spark: Any, db: str, order: str, message: str
) -> None:
    columns = "(id BIGINT, st STRUCT<x: INT>, m MAP<STRING, INT>)"
    for name in ("write.order_by", "write.distribute_by"):
        refused = f"CREATE TABLE {db}.refused {columns} TBLPROPERTIES ('{name}' = '{order}')"
        assert name in fails(spark, refused, message)
    assert not spark.catalog.tableExists(f"{db}.refused")


@pytest.mark.servers
def test_a_column_that_is_dropped_is_named_by_the_next_write(spark: Any, db: str) -> None:
    table = f"{db}.narrower"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, word STRING) TBLPROPERTIES ('write.order_by' = 'word')"
    )
    spark.sql(f"ALTER TABLE {table} DROP COLUMN word")
    fails(spark, f"INSERT INTO {table} VALUES (1)", "names word, which is no column")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN word STRING")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    assert spark.table(table).count() == 1
