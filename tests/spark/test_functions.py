"""Functions on tables: they read, write, search, update, delete and merge as Spark would."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance.commit import CommitConflictError
from lance.fragment import write_fragments
from lance_namespace import errors
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableColumnNotFoundError,
    TableNotFoundError,
    TableSchemaValidationError,
)
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import udf

import lance_bridge_spark as F
from lance_bridge_spark import (
    Changed,
    Delete,
    Insert,
    Update,
    col,
    delete,
    merge_into,
    update,
)
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.functions import search as searching
from lance_bridge_spark.functions.change import Kind, Outcome, build_operation
from lance_bridge_spark.functions.read_write import Snapshot
from lance_bridge_spark.lookup import find_table

from .row_tables import DoubledMatchError, Row, made, merged, numbered, ordered, rows_of, version_of
from .sql_helpers import set_conf

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

    return udf(look, "boolean")("k")


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

    with pytest.raises(Exception, match="is not changed: a Python worker ended"):
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


# -- reading, writing and searching ----------------------------------------------------------------


@pytest.mark.spec("spark.md#classes-of-the-functions", "spark.md#col")
def test_a_built_filter_quotes_names_and_values(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    rows = [{"Odd 'name": "O'Hara", "n": 1}, {"Odd 'name": "x' OR 'a' = 'a", "n": 2}]
    lance.write_dataset(pa.Table.from_pylist(rows), place)
    wanted = (col("Odd 'name") == "x' OR 'a' = 'a") | (col("n") > 5)
    found = F.read(spark, place, columns=["n"], filter=wanted).collect()
    assert [row.n for row in found] == [2]
    assert F.count(spark, place, ~wanted) == 1
    assert F.count(spark, place, col("n").between(1, 2) & col("n").is_in([])) == 0


NUMBERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "signed": (pa.int64(), [-(2**63), 1 - 2**63, 2**63 - 1]),
    "unsigned": (pa.uint64(), [2**63, 2**63 + 1, 2**64 - 1]),
    "decimal": (
        pa.decimal128(38, 18),
        [Decimal("0.1"), *(Decimal(f"{'9' * 20}.{'9' * n}") for n in (17, 18))],
    ),
    "short": (pa.decimal128(5, 2), [Decimal("-1.5"), Decimal("99.99"), Decimal("1E+2")]),
}


@pytest.mark.spec("spark.md#col")
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_any_size_are_compared_to_the_last_digit(tmp_path: Path, name: str) -> None:
    place, (kind, values) = str(tmp_path / "t.lance"), NUMBERS[name]
    dataset = lance.write_dataset(pa.table({"n": pa.array(values, kind)}), place)
    for value in values:
        found = {
            "=": dataset.count_rows(filter=(col("n") == value).sql),
            "<": dataset.count_rows(filter=(col("n") < value).sql),
            "in": dataset.count_rows(filter=col("n").is_in([value, 0]).sql),
        }
        assert found == {"=": 1, "<": values.index(value), "in": 1}, value
    if pa.types.is_integer(kind):
        assert dataset.count_rows(filter=(col("n") < 2**70).sql) == 3
    with pytest.raises(errors.InvalidInputError, match="more than 38 digits"):
        _ = col("n") < 10**38


@pytest.mark.spec("spark.md#col")
def test_a_filter_that_python_would_cut_short_is_refused() -> None:
    with pytest.raises(errors.InvalidInputError, match="join them with"):
        _ = (col("a") > 1) and (col("b") > 1)
    with pytest.raises(errors.InvalidInputError, match="is_null"):
        _ = col("a") == None  # noqa: E711 - what a user may write
    with pytest.raises(errors.InvalidInputError, match="a backtick"):
        col("a` OR `b")
    with pytest.raises(errors.InvalidInputError, match="number inf"):
        _ = col("a") < float("inf")


@pytest.mark.spec("spark.md#read", "spark.md#restore", "spark.md#version_at", "spark.md#versions")
def test_versions_are_listed_read_found_by_time_and_restored(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = numbered(tmp_path, 4)
    lance.dataset(place).delete("k > 0")
    listed = F.versions(spark, place).collect()
    assert [row.version for row in listed] == [1, 2]
    assert F.version_at(spark, place, datetime.now(timezone.utc) + timedelta(days=1)) == 2
    with set_conf(spark, "spark.sql.session.timeZone", "America/New_York"):
        here = datetime.now(ZoneInfo("America/New_York")).replace(tzinfo=None)
        assert F.version_at(spark, place, here) == 2
    with pytest.raises(errors.TableVersionNotFoundError):
        F.version_at(spark, place, datetime(2001, 1, 1))
    assert (F.count(spark, place), F.count(spark, place, version=1)) == (1, 4)
    assert F.restore(spark, place, 1) == 3
    assert F.read(spark, place).count() == 4
    with pytest.raises(errors.InvalidInputError, match="a version or a tag"):
        F.restore(spark, place)


@pytest.mark.spec("spark.md#take")
def test_rows_are_taken_by_their_ids_in_order(spark: SparkSession, tmp_path: Path) -> None:
    place = numbered(tmp_path, 7)
    ids = {row.s: row._rowid for row in F.read(spark, place, with_row_id=True).collect()}
    found = F.take(spark, place, [ids["s6"], ids["s1"]], columns=["s"]).collect()
    assert [row.s for row in found] == ["s6", "s1"]
    with pytest.raises(errors.InvalidInputError):
        F.take(spark, place, [99])


def test_a_table_is_created_with_nullable_columns_and_only_for_valid_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "new.lance")
    for options in ({"max_row_per_file": 1}, {"vector.id": 0}, {"branch": "side"}):
        with pytest.raises(errors.InvalidInputError):
            F.write(spark.range(2), place, "error", **options)
    assert not Path(place).exists()
    F.write(spark.range(2), place, "error")
    assert lance.dataset(place).schema.field("id").nullable


@pytest.mark.spec("spark.md#write")
@pytest.mark.slow
def test_modes_that_spark_refuses_create_a_table_once(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "new.lance")
    rows = spark.createDataFrame([(1, [1.0, 2.0])], "id int, v array<float>")
    F.write(rows, place, "error", **{"vector.v": 2})
    assert lance.dataset(place).schema.field("v").type == pa.list_(pa.float32(), 2)
    with pytest.raises(errors.TableAlreadyExistsError):
        F.write(rows, place, "errorifexists")
    before = version_of(place)
    F.write(rows, place, "ignore")
    assert version_of(place) == before
    F.write(rows, place)
    assert F.count(spark, place) == 2
    with pytest.raises(errors.InvalidInputError, match="mode must be one of"):
        F.write(rows, place, "replace")


# -- searches --------------------------------------------------------------------------------------


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    """A table of 700 vectors of small whole numbers, so that many distances are equal."""
    place = str(tmp_path / "vectors.lance")
    numbers = np.random.default_rng(1).integers(0, 3, (700, 4)).astype("f4")
    table = pa.table(
        {
            "id": np.arange(700),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 4),
            "t": [f"word{i % 7} common" for i in range(700)],
        }
    )
    lance.write_dataset(table, place, max_rows_per_file=100)
    return place


@pytest.mark.spec("spark.md#nearest_batch")
@pytest.mark.parametrize("indexed", [False, True])
def test_a_batch_finds_what_one_query_at_a_time_finds(
    spark: SparkSession, vectors: str, indexed: bool
) -> None:
    if indexed:
        lance.dataset(vectors).create_index("v", "IVF_FLAT", num_partitions=2, metric="l2")
    queries = np.random.default_rng(2).integers(0, 3, (9, 4)).astype(float).tolist()
    rows = [(i, query, f"note {i}") for i, query in enumerate(queries)] + [(9, None, "none")]
    frame = spark.createDataFrame(rows, "q int, qv array<float>, note string")
    found = F.nearest_batch(frame, vectors, "v", "qv", 5, columns=["id"], filter=col("id") < 600)
    by_query: dict[int, list[tuple[float, int]]] = {}
    for row in found.collect():
        assert row.note == f"note {row.q}"
        by_query.setdefault(row.q, []).append((row._distance, row.id))
    assert sorted(by_query) == list(range(9))
    for i, query in enumerate(queries):
        alone = lance.dataset(vectors).to_table(
            columns=["id", "_distance"],
            nearest={"column": "v", "q": query, "k": 5},
            filter="id < 600",
            prefilter=True,
        )
        expected = sorted((row["_distance"], row["id"]) for row in alone.to_pylist())
        assert sorted(by_query[i]) == expected


def test_a_batch_sends_no_columns_around_before_it_knows_the_nearest_rows(vectors: str) -> None:
    table = find_table(TableAddress(location=vectors))
    target = Snapshot(None, table, table.open())
    search = searching._search(target, "v", {"k": 3}, ("id", "t"), None)
    asked = {"_lance_bridge_query": [7], "_lance_bridge_vector": [[0.0, 1.0, 2.0, 0.0]]}
    queries = pa.RecordBatch.from_pydict({**asked, "_lance_bridge_part": [0]})
    [found] = searching.run(search, iter([queries]))
    assert found.schema.names == ["_lance_bridge_query", "_rowid", "_distance"]
    doubled = pa.Table.from_batches([found, found]).combine_chunks().to_batches()
    [rows] = searching.take_rows(search, iter(doubled))
    expected = target.dataset.to_table(
        columns=["id", "t", "_distance"], nearest={"column": "v", "q": [0, 1, 2, 0], "k": 3}
    ).to_pylist()
    assert rows.select(["id", "t", "_distance"]).to_pylist() == [*expected, *expected]


@pytest.mark.spec("spark.md#full_text", "spark.md#nearest")
def test_single_searches_add_distance_and_score(spark: SparkSession, vectors: str) -> None:
    near = F.nearest(spark, vectors, "v", [0, 1, 2, 0], 3, columns=["id"]).collect()
    assert [row._distance for row in near] == sorted(row._distance for row in near)
    assert len(near) == 3
    text = F.full_text(spark, vectors, "word3", ["t"], 4, read_columns=["id"]).collect()
    assert [row.id % 7 for row in text] == [3] * 4
    assert all(row._score > 0 for row in text)


@pytest.mark.spec("spark.md#nearest_batch")
def test_queries_that_do_not_fit_are_refused(spark: SparkSession, vectors: str) -> None:
    frame = spark.createDataFrame([(1, [1.0])], "id int, qv array<float>")
    with pytest.raises(errors.InvalidInputError, match="both have id"):
        F.nearest_batch(frame, vectors, "v", "qv")
    with pytest.raises(errors.InvalidInputError, match="no column 'x'"):
        F.nearest_batch(frame, vectors, "v", "x")
    with pytest.raises(errors.InvalidInputError, match="holds no vectors"):
        F.nearest_batch(frame, vectors, "t", "qv", columns=["t"])


# -- by name ---------------------------------------------------------------------------------------


@pytest.mark.spec("spark.md#count", "spark.md#read")
def test_a_table_of_a_catalog_is_written_changed_and_counted_by_name(
    spark: SparkSession, catalog: str
) -> None:
    rows = spark.range(4).selectExpr("CAST(id AS DOUBLE) AS k", "id AS v")
    name = f"{catalog}.db.things"
    F.write(rows, name, "error")
    assert F.update(spark, name, {"v": "v * 2"}, "k > 1").updated == 2
    merged = F.merge_into(rows.where("k = 0"), name, ["k"], when_matched_delete=True)
    assert merged.deleted == 1
    assert sorted(row.v for row in F.read(spark, name).collect()) == [1, 4, 6]
    assert F.count(spark, name, "v > 3") == 2
