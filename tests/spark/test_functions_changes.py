"""UPDATE, DELETE and MERGE as functions: what they change, and what failures and races become."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
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
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lance_bridge_spark.functions import Changed, Delete, Insert, Update, delete, merge_into, update
from lance_bridge_spark.functions.rows.change import Outcome, build_operation
from lance_bridge_spark.functions.rows.tasks import Kind

from .row_tables import (
    DoubledMatchError,
    Row,
    made,
    merged,
    numbered,
    ordered,
    rows_of,
    version_of,
)

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#merge_into", "spark.md#update")]


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


# -- MERGE -----------------------------------------------------------------------------------------

KEYS = st.sampled_from([None, float("nan"), 0.0, -0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": KEYS,
            "v": st.one_of(st.none(), st.integers(-3, 3)),
            "s": st.sampled_from([None, "", "a", "é'\"`"]),
        }
    ),
    max_size=8,
)


def source_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Return rows as a DataFrame."""
    values = [(row["k"], row["v"], row["s"]) for row in rows]
    return spark.createDataFrame(values, "k double, v bigint, s string")


@pytest.mark.spec("spark.md#classes-of-the-functions")
@examples(4, share_fixtures=True)
@given(target=ROWS, source=ROWS, clauses=st.integers(0, 5))
def test_a_merge_does_what_it_does_in_plain_python(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    target: list[Row],
    source: list[Row],
    clauses: int,
) -> None:
    place = made(tmp_path_factory.mktemp("merge"), target)
    given, model = CLAUSES[clauses]
    try:
        expected = merged(target, source, **model)
    except DoubledMatchError:
        with pytest.raises(InvalidInputError, match="MERGE_CARDINALITY_VIOLATION"):
            merge_into(source_of(spark, source), place, ["k"], **given)
        assert version_of(place) == 1
        assert rows_of(place) == ordered(target)
        return
    changed = merge_into(source_of(spark, source), place, ["k"], **given)
    assert rows_of(place) == ordered(expected)
    assert version_of(place) == changed.version == (1 if changed.is_empty else 2)
    assert len(expected) == len(target) + changed.inserted - changed.deleted


def keep(row: Row, _: Any = None) -> Row:
    return row


def take_all(_: Row, source: Row) -> Row:
    return source


def add(row: Row, source: Row) -> Row | None:
    """Delete where the source has a text and else add its number."""
    if source["s"] == "a":
        return None
    either_is_null = row["v"] is None or source["v"] is None
    return {**row, "v": None if either_is_null else row["v"] + source["v"]}


def empty_text(row: Row) -> Row:
    return {**row, "s": "gone"}


CLAUSES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"when_matched_update": "*", "when_not_matched_insert": "*"},
        {"matched": take_all, "inserted": keep, "unmatched": keep},
    ),
    (
        {
            "when_matched_update": {"v": "target.v + source.v"},
            "when_matched_delete": "source.s = 'a'",
            "when_not_matched_by_source": {"s": "'gone'"},
        },
        {"matched": add, "inserted": None, "unmatched": empty_text},
    ),
    (
        {"when_not_matched_insert": {"k": "source.k", "s": "'new'"}},
        {
            "matched": keep,
            "inserted": lambda row: {"k": row["k"], "v": None, "s": "new"},
            "unmatched": keep,
        },
    ),
    (
        {
            "when_matched_update": Update("*", where="source.v > target.v"),
            "when_not_matched_by_source": [Delete("target.v < 0"), Update({"v": "target.v + 1"})],
        },
        {
            "matched": lambda row, source: (
                source if None not in (row["v"], source["v"]) and source["v"] > row["v"] else row
            ),
            "inserted": None,
            "unmatched": lambda row: (
                row if row["v"] is None else (None if row["v"] < 0 else {**row, "v": row["v"] + 1})
            ),
        },
    ),
    (
        {
            "when_matched_update": {"s": "concat(source.s, '!')"},
            "when_not_matched_insert": "*",
            "when_not_matched_by_source": "delete",
        },
        {
            "matched": lambda row, source: {
                **row,
                "s": None if source["s"] is None else source["s"] + "!",
            },
            "inserted": keep,
            "unmatched": lambda _: None,
        },
    ),
    (
        {"when_matched_update": {"v": "source.v"}, "when_matched_delete": "target.v is null"},
        {
            "matched": lambda row, source: None if row["v"] is None else {**row, "v": source["v"]},
            "inserted": None,
            "unmatched": keep,
        },
    ),
]


def test_rows_of_a_source_that_match_one_row_twice_may_all_delete_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = numbered(tmp_path, 4)
    source = source_of(spark, [{"k": 1.0, "v": 1, "s": "a"}, {"k": 1.0, "v": 2, "s": "b"}])
    changed = merge_into(source, place, ["k"], when_matched_delete=True)
    assert (changed.deleted, changed.version) == (1, 2)
    assert [row["k"] for row in rows_of(place)] == [0.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("on", "clauses", "expected"),
    [
        (["k"], {}, (InvalidInputError, "at least one of its clauses")),
        (["k"], {"when_matched_update": "*", "when_matched_delete": True},
         (InvalidInputError, "never reached")),
        (["x"], {"when_matched_delete": True},
         (TableColumnNotFoundError, "no column 'x'")),
        ([], {"when_matched_delete": True}, (InvalidInputError, "`on` is empty")),
        (["k"], {"when_matched_update": {"x": "1"}}, (TableColumnNotFoundError, "no column 'x'")),
        (["k"], {"when_matched_update": {"v": "source.s"}},
         (TableSchemaValidationError, "cast it")),
        ("target.k = source.nope", {"when_matched_delete": True}, (AnalysisException, "nope")),
        (["k"], {"when_not_matched_insert": {"k": "target.k"}},
         (AnalysisException, "target")),
        (["k"], {"when_not_matched_by_source": Insert()},
         (InvalidInputError, "by_source must be")),
    ],
)  # fmt: skip
def test_a_merge_that_cannot_be_says_what_was_expected(
    spark: SparkSession,
    tmp_path: Path,
    on: Any,
    clauses: dict[str, Any],
    expected: tuple[type[Exception], str],
) -> None:
    place = numbered(tmp_path, 2)
    error, message = expected
    with pytest.raises(error, match=message):
        merge_into(source_of(spark, [{"k": 1.0, "v": 1, "s": "a"}]), place, on, **clauses)
    assert version_of(place) == 1


def test_updated_rows_keep_their_stable_ids_and_inserted_rows_get_new_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = numbered(tmp_path, 6, enable_stable_row_ids=True)
    lance.dataset(place).create_scalar_index("k", "BTREE")
    before = lance.dataset(place).to_table(columns=["k", "_rowid"]).to_pylist()
    source = source_of(spark, [{"k": float(k), "v": -1, "s": "new"} for k in (1, 4, 8, 9)])
    merge_into(
        source, place, ["k"], when_matched_update={"v": "source.v"}, when_not_matched_insert="*"
    )
    after = {row["k"]: row for row in lance.dataset(place).to_table(
        columns=["k", "v", "_rowid"]).to_pylist()}  # fmt: skip
    assert {row["k"]: row["_rowid"] for row in before} == {
        k: row["_rowid"] for k, row in after.items() if k < 6
    }
    assert len({row["_rowid"] for row in after.values()}) == len(after) == 8
    found = lance.dataset(place).to_table(filter="k = 4", columns=["v"]).to_pylist()
    assert found == [{"v": -1}]
