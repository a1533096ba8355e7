"""UPDATE and DELETE as functions: what they change, and what becomes of failures and of races."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.commit import CommitConflictError
from lance.fragment import write_fragments
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableColumnNotFoundError,
    TableNotFoundError,
    TableSchemaValidationError,
)
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lance_bridge_spark.functions import Changed, delete, merge_into, update
from lance_bridge_spark.functions.rows.change import Outcome, build_operation
from lance_bridge_spark.functions.rows.tasks import Kind

from .row_tables import Row, made, numbered, rows_of, version_of

pytestmark = [pytest.mark.spark, pytest.mark.spec("spark.md#update")]


@pytest.mark.servers
def test_an_update_changes_the_rows_that_match_and_no_other_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = numbered(tmp_path, 8)
    changed = update(spark, place, {"V": "v + k", "k": "k + 100"}, "s IN ('s1', 's6')")
    assert changed == Changed(version=2, updated=2)
    rows = rows_of(place)
    assert [(r["k"], r["v"], r["s"]) for r in rows if r["k"] > 50] == [
        (101.0, 11, "s1"),
        (106.0, 66, "s6"),
    ]
    assert [r for r in rows if r["k"] < 50] == [
        r for r in rows_of(place, 1) if r["s"] not in ("s1", "s6")
    ]


@pytest.mark.servers
def test_columns_that_are_not_set_keep_values_that_spark_has_no_type_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema(
        [
            ("k", pa.int32()),
            ("u", pa.uint64()),
            ("t", pa.timestamp("ns")),
            ("v", pa.list_(pa.float32(), 2)),
        ]
    )
    rows = [{"k": 1, "u": 2**64 - 1, "t": 1_234_567_891, "v": [0.5, 1.5]}]
    place = made(tmp_path, rows, schema=schema)
    update(spark, place, {"k": "k + 1"})
    table = lance.dataset(place).to_table()
    assert table.schema == schema
    assert table["t"].cast(pa.int64()).to_pylist() == [1_234_567_891]
    assert table.select(["k", "u", "v"]).to_pylist() == [{"k": 2, "u": 2**64 - 1, "v": [0.5, 1.5]}]


@pytest.mark.spec("spark.md#delete")
@pytest.mark.servers
def test_a_delete_takes_null_for_no_and_writes_no_data_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[Row] = [{"k": 1.0, "v": None, "s": "a"}, {"k": 2.0, "v": 2, "s": "b"}]
    place = made(tmp_path, rows)
    files = set((Path(place) / "data").iterdir())
    assert delete(spark, place, "v = 2") == Changed(version=2, deleted=1)
    assert delete(spark, place, "v = 2") == Changed(version=2)
    assert rows_of(place) == [rows[0]]
    assert set((Path(place) / "data").iterdir()) == files
    assert delete(spark, place, "true").deleted == 1
    assert rows_of(place) == []


@pytest.mark.servers
@pytest.mark.parametrize(
    ("values", "where", "expected"),
    [
        ({}, None, (InvalidInputError, "Nothing is set")),
        ({"x": "1"}, None, (TableColumnNotFoundError, "it has k, v, s")),
        ({"v": "'1'"}, None, (TableSchemaValidationError, "cast it")),
        ({"v": "1", "V": "2"}, None, (InvalidInputError, "set twice")),
        ({"v": 1}, None, (InvalidInputError, "must be SQL or a Spark column, not 1")),
        ({"v": "nope"}, None, (AnalysisException, "nope")),
        ({"v": "1"}, "nope > 1", (AnalysisException, "nope")),
        ({"v": "1e30D"}, None, (PySparkException, "CAST_OVERFLOW")),
        ({"v": "if(k > 1, raise_error('half-way'), 1)"}, None, (PySparkException, "half-way")),
    ],
)
def test_an_update_that_fails_leaves_the_table_as_it_was(
    spark: SparkSession,
    tmp_path: Path,
    values: dict[str, Any],
    where: str | None,
    expected: tuple[type[Exception], str],
) -> None:
    error, message = expected
    place = numbered(tmp_path, 4)
    before = rows_of(place)
    with pytest.raises(error, match=message):
        update(spark, place, values, where)
    assert (rows_of(place), version_of(place)) == (before, 1)


@pytest.mark.spec("spark.md#delete")
@pytest.mark.servers
def test_a_missing_table_or_catalog_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match=r"none\.lance"):
        delete(spark, str(tmp_path / "none.lance"), "true")
    with pytest.raises(InvalidInputError, match="There is no catalog 'nowhere'"):
        delete(spark, "nowhere.db.t", "true")


# -- others at the same time -----------------------------------------------------------------------


def interrupted(marker: Path, act: Any) -> Column:
    """Return a condition that is true, and has something happen when it is first looked at."""

    def look(_: float) -> bool:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return True
        act()
        return True

    return F.udf(look, "boolean")(F.col("k"))


@pytest.mark.servers
def test_an_update_loses_nothing_of_what_others_changed_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = numbered(tmp_path, 3)

    def foreign() -> None:
        import lance  # noqa: PLC0415 - runs in a worker

        lance.dataset(place).delete("k = 2")

    with pytest.raises(ConcurrentModificationError):
        update(spark, place, {"v": "-1"}, interrupted(tmp_path / "a", foreign), retries=0)
    assert [(r["k"], r["v"]) for r in rows_of(place)] == [(0.0, 0), (1.0, 10)]

    def again() -> None:
        import lance  # noqa: PLC0415 - runs in a worker

        lance.dataset(place).delete("k = 1")

    changed = update(spark, place, {"v": "-1"}, interrupted(tmp_path / "b", again))
    assert [(r["k"], r["v"]) for r in rows_of(place)] == [(0.0, -1)]
    assert (changed.updated, changed.version) == (1, 4)


@pytest.mark.spec("spark.md#merge_into")
@pytest.mark.servers
def test_two_merges_that_insert_the_same_key_at_once_insert_it_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = numbered(tmp_path, 2)
    source = spark.createDataFrame([(7.0, 1, "x")], "k double, v bigint, s string")

    def merge() -> Changed:
        return merge_into(
            source,
            place,
            ["k"],
            when_matched_update={"v": "target.v + 1"},
            when_not_matched_insert="*",
        )

    with ThreadPoolExecutor(2) as pool:
        both = [each.result() for each in [pool.submit(merge), pool.submit(merge)]]
    assert sorted((each.inserted, each.updated) for each in both) == [(0, 1), (1, 0)]
    assert [row["v"] for row in rows_of(place) if row["k"] == 7.0] == [2]


@pytest.mark.spec("spark.md#merge_into")
@pytest.mark.servers
@pytest.mark.parametrize("indexed", [False, True])
def test_of_two_merges_into_an_empty_table_lance_itself_commits_one(
    tmp_path: Path, indexed: bool
) -> None:
    place = numbered(tmp_path, 0)
    if indexed:
        lance.dataset(place).create_scalar_index("v", "BTREE")
    dataset = lance.dataset(place)
    row = pa.table({"k": [7.0], "v": [1], "s": ["x"]}, schema=dataset.schema)

    def merge() -> None:
        new = write_fragments(row, place)
        outcome = Outcome(dict.fromkeys(Kind, 0), [], {}, [])
        operation = build_operation(dataset, outcome, (), new, guards_all=True)
        transaction = lance.Transaction(read_version=dataset.version, operation=operation)
        lance.LanceDataset.commit(place, transaction)

    merge()
    with pytest.raises(CommitConflictError):
        merge()
    assert len(rows_of(place)) == 1
    assert len(lance.dataset(place).describe_indices()) == indexed


@pytest.mark.spec("spark.md#delete")
@pytest.mark.servers
def test_a_worker_that_is_killed_leaves_the_table_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = numbered(tmp_path, 4)
    before = rows_of(place)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        update(spark, place, {"v": "-1"}, interrupted(tmp_path / "dead", die))
    assert (rows_of(place), version_of(place)) == (before, 1)
    assert update(spark, place, {"v": "-1"}).updated == 4


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["BITMAP", "BTREE"])
def test_an_index_finds_updated_rows_of_stable_ids_by_their_new_values_only(
    spark: SparkSession, tmp_path: Path, kind: Any
) -> None:
    place = numbered(tmp_path, 6, enable_stable_row_ids=True)
    for column in ("v", "s"):
        lance.dataset(place).create_scalar_index(column, kind)
    update(spark, place, {"v": "777"}, "k = 1")
    found = {
        condition: lance.dataset(place).to_table(filter=condition).num_rows
        for condition in ("v = 777", "v = 10", "s = 's1'")
    }
    assert found == {"v = 777": 1, "v = 10": 0, "s = 's1'": 1}
