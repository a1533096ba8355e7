"""MERGE as a function: every clause, what Spark compares as equal, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace.errors import (
    InvalidInputError,
    TableColumnNotFoundError,
    TableSchemaValidationError,
)
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lance_bridge_spark.functions import Delete, Insert, Update, merge_into

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

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.spec("spark.md#merge_into")]

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
