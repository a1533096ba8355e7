"""Writes by SQL: their order and files, and overwrites that lose nothing and are of all rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from lance_bridge_spark.addresses import TableAddress, address_of
from lance_bridge_spark.lookup import create_table, find_table

from .sql_helpers import Database, failure_of, set_conf

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("spark.md#create-and-replace-with-a-query", "spark.md#write-order"),
]

# -- drops -----------------------------------------------------------------------------------------


@pytest.mark.spec("common.md#dropped-tables")
def test_a_purge_knows_no_retention(spark: Any, catalog: str) -> None:
    """The catalog cannot keep dropped tables: only PURGE drops them."""
    db = Database(spark, catalog, "purged")
    db.sql(f"CREATE NAMESPACE {db.name} WITH PROPERTIES ('drop.retention' = '7d')")
    db.sql(f"CREATE TABLE {db.name}.t AS SELECT 1 AS id")
    db.fails(f"DROP TABLE {db.name}.t", "drop.retention")
    assert db.values(f"SELECT id FROM {db.name}.t") == [1]
    db.sql(f"DROP TABLE {db.name}.t PURGE")
    db.sql(f"DROP NAMESPACE {db.name}")


# -- the order of rows -----------------------------------------------------------------------------

ROWS = "SELECT id, concat('w', pmod(id * 7, 13)) AS word FROM range(0, 400, 1, 4)"


@pytest.fixture
def db(spark: Any, catalog: str) -> Iterator[Database]:
    """A namespace, in a session whose tasks are not joined for being small."""
    with set_conf(spark, "spark.sql.adaptive.enabled", "false"):
        yield Database(spark, catalog, "db")


def fragments(db: Database, table: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each fragment of a table, as they are stored."""
    dataset = lance.dataset(db.described(table)["Location"])
    found = [each.to_table().to_pylist() for each in dataset.get_fragments()]
    assert sum(map(len, found)) == 400
    return found


def test_tasks_write_ranges_of_the_order_and_sort_them(db: Database) -> None:
    properties = "TBLPROPERTIES ('write.order_by' = '`word` DESC, id')"
    db.sql(f"CREATE TABLE {db.name}.sorted (id BIGINT, word STRING) {properties}")
    db.sql(f"INSERT INTO {db.name}.sorted {ROWS}")
    db.sql(f"CREATE TABLE {db.name}.made {properties} AS {ROWS}")
    db.sql(f"INSERT OVERWRITE {db.name}.made {ROWS}")
    for table in (f"{db.name}.sorted", f"{db.name}.made"):
        written = fragments(db, table)
        assert len(written) == 2
        for rows in written:
            assert rows == sorted(
                sorted(rows, key=lambda row: row["id"]), key=lambda row: row["word"], reverse=True
            )
        # Which range is committed first depends on the tasks.
        ranges = sorted((rows[-1]["word"], rows[0]["word"]) for rows in written)
        assert ranges[0][1] <= ranges[1][0]


def test_rows_with_the_same_values_are_written_by_one_task(db: Database) -> None:
    db.sql(
        f"CREATE TABLE {db.name}.clustered (id BIGINT, word STRING) "
        "TBLPROPERTIES ('write.distribute_by' = 'word', 'write.order_by' = 'id DESC')"
    )
    db.sql(f"INSERT INTO {db.name}.clustered {ROWS}")
    one, other = fragments(db, f"{db.name}.clustered")
    assert not {row["word"] for row in one} & {row["word"] for row in other}
    for rows in (one, other):
        ids = [row["id"] for row in rows]
        assert ids == sorted(ids, reverse=True)


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
def test_what_is_no_order_of_the_table_is_refused(db: Database, order: str, message: str) -> None:
    columns = "(id BIGINT, st STRUCT<x: INT>, m MAP<STRING, INT>)"
    for name in ("write.order_by", "write.distribute_by"):
        refused = f"CREATE TABLE {db.name}.refused {columns} TBLPROPERTIES ('{name}' = '{order}')"
        assert name in db.fails(refused, message)
    assert not db.spark.catalog.tableExists(f"{db.name}.refused")


def test_a_column_that_is_dropped_is_named_by_the_next_write(db: Database) -> None:
    table = f"{db.name}.narrower"
    db.sql(
        f"CREATE TABLE {table} (id BIGINT, word STRING) TBLPROPERTIES ('write.order_by' = 'word')"
    )
    db.sql(f"ALTER TABLE {table} DROP COLUMN word")
    db.fails(f"INSERT INTO {table} VALUES (1)", "names word, which is no column")
    db.sql(f"ALTER TABLE {table} ADD COLUMN word STRING")
    db.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    assert db.spark.table(table).count() == 1


# -- overwrites ------------------------------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def table(spark: Any, catalog: str, request: pytest.FixtureRequest) -> TableAddress:
    """A table with the ids 1 to 3 in its second version."""
    found = address_of(spark, f"{catalog}.db.t{abs(hash(request.node.name))}")
    create_table(found, SCHEMA)
    append(found, 1, 2, 3)
    return found


@pytest.fixture
def meddle(spark: Any, table: TableAddress, tmp_path: Path) -> None:
    """Let the function `meddle` of SQL append the id 90, as another writer; it returns its own."""
    place, done = find_table(table).record.location, tmp_path / "done"

    def of_row(number: int) -> int:
        import lance  # noqa: PLC0415 - runs in a worker
        import pyarrow as pa  # noqa: PLC0415

        try:
            os.close(os.open(done, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return number
        lance.write_dataset(pa.table({"id": [90]}), place, mode="append")
        return number

    spark.udf.register("meddle", F.udf(of_row, "bigint").asNondeterministic())


def append(table: TableAddress, *ids: int) -> None:
    rows = pa.table({"id": ids}, schema=SCHEMA)
    lance.write_dataset(rows, find_table(table).open(write=True), mode="append")


def ids(table: TableAddress) -> list[int]:
    return sorted(find_table(table).open().to_table()["id"].to_pylist())


@pytest.mark.usefixtures("meddle")
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT meddle(id) + 10 FROM {}", marks=pytest.mark.slow),
        "SELECT meddle(id) FROM range(2) WHERE id < (SELECT count(*) FROM {})",
    ],
)
def test_an_overwrite_by_rows_of_the_table_itself_loses_none_of_others(
    spark: Any, table: TableAddress, query: str
) -> None:
    with pytest.raises(PySparkException, match="LANCE_CONCURRENT_MODIFICATION"):
        spark.sql(f"INSERT OVERWRITE {table.name} {query.format(table.name)}")
    assert ids(table) == [1, 2, 3, 90]


@pytest.mark.usefixtures("meddle")
def test_an_overwrite_by_other_rows_takes_the_place_of_all(spark: Any, table: TableAddress) -> None:
    spark.sql(f"INSERT OVERWRITE {table.name} SELECT meddle(id) FROM range(2)")
    assert ids(table) == [0, 1]


@pytest.mark.usefixtures("meddle")
def test_an_overwrite_by_an_old_version_takes_the_place_of_all(
    spark: Any, table: TableAddress
) -> None:
    spark.sql(f"INSERT OVERWRITE {table.name} SELECT meddle(id) FROM {table.name} VERSION AS OF 2")
    assert ids(table) == [1, 2, 3]


def test_a_dataframe_that_was_made_before_loses_no_rows_either(
    spark: Any, table: TableAddress
) -> None:
    rows = spark.table(table.name)
    append(table, 90)
    refused = failure_of(lambda: rows.writeTo(table.name).overwrite(F.lit(True)))
    assert refused is None or "LANCE_CONCURRENT_MODIFICATION" in refused
    assert ids(table) == [1, 2, 3, 90]


@pytest.mark.spec("spark.md#unsupported-statements")
def test_an_overwrite_of_some_rows_is_refused_with_advice(spark: Any, table: TableAddress) -> None:
    with pytest.raises(AnalysisException, match=r"overwritten as a whole only.*MERGE") as caught:
        spark.sql(f"INSERT INTO {table.name} REPLACE WHERE id > 1 SELECT 5L AS id")
    assert caught.value.getCondition() == "LANCE_UNSUPPORTED_OPERATION"
    with pytest.raises(AnalysisException, match="LANCE_UNSUPPORTED_OPERATION"):
        spark.table(table.name).writeTo(table.name).overwrite(F.col("id") == 1)
    assert ids(table) == [1, 2, 3]


# -- names that differ only in letter case ---------------------------------------------------------

ALIKE = {
    "columns": {"id": [1, 9], "Id": [2, 8], "v": [3, 7]},
    "fields": {"k": [1, 9], "s": [{"a": 1, "A": 2}, {"a": 5, "A": 6}], "v": [3, 7]},
    "fields in a list": {"k": [1, 9], "s": [[{"a": 1, "A": 2}], []], "v": [3, 7]},
}
WRITES = [
    "UPDATE {} SET v = 4 WHERE v = 3",
    "MERGE INTO {} t USING (SELECT 3L k) o ON t.v = o.k WHEN MATCHED THEN UPDATE SET v = 4",
    "MERGE INTO {} t USING (SELECT 3L k) o ON t.v = o.k WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "INSERT INTO {} SELECT * FROM VALUES (5L, 6L, 7L)",
    "INSERT INTO {} BY NAME SELECT 5L AS v",
    "DELETE FROM {} WHERE v + rand() > 100",
]


@pytest.mark.spec("spark.md#row-level-changes")
@pytest.mark.parametrize("statement", WRITES)
@pytest.mark.parametrize("kind", ALIKE)
def test_a_write_in_which_spark_confuses_columns_is_refused(
    db: Database, kind: str, statement: str
) -> None:
    """Spark would write the values of one of them to both."""
    table = f"{db.name}.alike{abs(hash((kind, statement)))}"
    rows = pa.table(ALIKE[kind])
    address = address_of(db.spark, table)
    create_table(address, rows.schema)
    location = find_table(address).record.location or ""
    lance.write_dataset(rows, location, mode="append")

    refused = failure_of(lambda: db.sql(statement.format(table)).collect())
    # Spark itself refuses some, in its own words.
    assert refused is not None
    assert re.search("spark.sql.caseSensitive=true|AMBIGUOUS|INCOMPATIBLE|INSERT_COLUMN", refused)
    assert lance.dataset(location).to_table() == rows
    if statement.startswith("UPDATE"):
        assert "differ only in letter case" in refused
        with set_conf(db.spark, "spark.sql.caseSensitive", "true"):
            db.sql(statement.format(table))
        found = lance.dataset(location).to_table().sort_by("v").to_pylist()
        assert found == [{**rows.to_pylist()[0], "v": 4}, rows.to_pylist()[1]]
