"""Backfill on Spark: one column changes, in one commit, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance_namespace import errors
from pyspark.sql import SparkSession

from lance_bridge_spark.jobs import backfill

from .job_tables import DIMENSION, Interrupted, append, make, numbered, rows_of

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#backfill")]


def values(place: str, column: str) -> list[Any]:
    found: list[Any] = rows_of(place).column(column).to_pylist()
    return found


def test_sql_of_spark_makes_a_new_column(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t")
    lance.dataset(place).delete("id % 7 = 3")
    kept = [i for i in range(200) if i % 7 != 3]

    done = backfill(spark, place, "twice", "id * 2")

    assert values(place, "twice") == [2 * i for i in kept]
    assert rows_of(place).drop_columns("twice") == numbered_rows(kept)
    assert (done.version, done.fragments) == (6, 4)
    transaction = lance.dataset(place).read_transaction(6)
    assert transaction is not None
    assert transaction.uuid == done.transaction_id


def numbered_rows(kept: list[int]) -> pa.Table:
    whole = pa.concat_tables([numbered(50, start) for start in range(0, 200, 50)])
    return whole.filter(pc.is_in(whole.column("id"), pa.array(kept))).combine_chunks()


def test_sql_of_spark_changes_the_chosen_rows_and_no_other_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t")
    for column in ("id", "text"):
        lance.dataset(place).create_scalar_index(column, "BTREE")

    done = backfill(spark, place, "text", "concat_ws('-', 'n', id)", where="id < 70")

    assert values(place, "text")[:70] == [f"n-{i}" for i in range(70)]
    assert values(place, "text")[70:] == numbered(200).column("text").to_pylist()[70:]
    covered = {i.name: i.num_rows_indexed for i in lance.dataset(place).describe_indices()}
    assert covered == {"id_idx": 200, "text_idx": 100}
    assert done.fragments == 2
    assert lance.dataset(place).count_rows("text = 'n-42'") == 1


def test_a_new_column_is_null_where_no_row_is_chosen(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=3)
    backfill(spark, place, "a", "id + 1", where="id >= 30 and id < 60")
    backfill(
        spark,
        place,
        "b",
        lambda rows: pc.add(rows.column("id"), 1),
        where="id >= 30 and id < 60",
        data_type=pa.int64(),
    )
    expected = [i + 1 if 30 <= i < 60 else None for i in range(150)]
    assert values(place, "a") == expected
    assert values(place, "b") == expected


def test_vectors_keep_their_type(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=2)
    before = values(place, "v")
    backfill(spark, place, "v", "transform(v, x -> x * 2)")
    assert lance.dataset(place).schema.field("v").type == pa.list_(pa.float32(), DIMENSION)
    assert values(place, "v") == [[2 * x for x in each] for each in before]


def test_a_function_gets_the_columns_it_wants_and_may_answer_with_pandas(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)

    def lengths(rows: pa.RecordBatch) -> Any:
        assert rows.schema.names == ["text"]
        return rows.to_pandas()["text"].str.len()

    backfill(spark, place, "length", lengths, columns=["text"], data_type=pa.int32())
    assert values(place, "length") == [len(text) for text in values(place, "text")]
    assert lance.dataset(place).schema.field("length").type == pa.int32()


@pytest.mark.parametrize(
    ("expression", "error", "said"),
    [
        ("nope + 1", errors.TableColumnNotFoundError, "nope"),
        ("1 / (id - 5)", errors.InvalidInputError, "Division by zero"),
        ("id)", errors.InvalidInputError, "Syntax error"),
        ("sum(id)", errors.InvalidInputError, "aggregate"),
        ("sum(id) OVER (ORDER BY id)", errors.InvalidInputError, "window"),
        ("text", errors.InvalidInputError, "'id' cannot be stored"),
    ],
)
def test_an_expression_that_does_not_fit_changes_nothing(
    spark: SparkSession, tmp_path: Path, expression: str, error: type[Exception], said: str
) -> None:
    place = make(tmp_path / "t", fragments=2)
    with pytest.raises(error, match=said):
        backfill(spark, place, "id", expression)
    assert lance.dataset(place).version == 2


def broken(rows: pa.RecordBatch) -> Any:
    raise OSError(f"no model for {rows.num_rows} rows")


def short(rows: pa.RecordBatch) -> Any:
    return rows.column("id").slice(1)


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        (broken, errors.ServiceUnavailableError, "no model for 50 rows"),
        (short, errors.InvalidInputError, "49 values of 50 rows"),
    ],
)
def test_a_function_that_fails_changes_nothing(
    spark: SparkSession,
    tmp_path: Path,
    function: Callable[[pa.RecordBatch], Any],
    error: type[Exception],
    said: str,
) -> None:
    place = make(tmp_path / "t", fragments=2)
    with pytest.raises(error, match=said):
        backfill(spark, place, "id", function)
    assert lance.dataset(place).version == 2


def test_rows_that_are_appended_meanwhile_get_values_of_a_new_column_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)
    other: Any = Interrupted(spark, lambda: append(place, 5, 1000))
    backfill(other, place, "twice", "id * 2")
    assert values(place, "id") == [*range(100), *range(1000, 1005)]
    assert values(place, "twice") == [2 * i for i in values(place, "id")]


def test_rows_that_are_appended_meanwhile_keep_a_column_that_was_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)
    other: Any = Interrupted(spark, lambda: append(place, 5, 1000))
    backfill(other, place, "text", "'new'")
    assert values(place, "text") == ["new"] * 100 + numbered(5, 1000).column("text").to_pylist()


def test_rows_that_are_updated_meanwhile_are_a_conflict_that_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)
    other: Any = Interrupted(
        spark, lambda: lance.dataset(place).update({"text": "'theirs'"}, where="id = 7")
    )
    with pytest.raises(errors.ConcurrentModificationError):
        backfill(other, place, "text", "'mine'")
    assert values(place, "text")[7] == "theirs"
    assert "mine" not in values(place, "text")


def test_a_request_that_does_not_fit_is_refused_before_any_task(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=1)
    bad: list[tuple[str, dict[str, Any], str]] = [
        ("new", {}, "a function needs its data_type"),
        ("ID", {"data_type": pa.int64()}, "by letter case only"),
        ("a.b", {"data_type": pa.int64()}, "cannot be a new column's name"),
        ("id", {"data_type": pa.int32()}, "is int64 already, not int32"),
        ("id", {"columns": ["nope"]}, "no column 'nope'"),
        ("id", {"where": "id +"}, "where 'id"),
        ("id", {"batch_size": 0}, "batch_size must be 1 or more"),
    ]
    for column, given, said in bad:
        with pytest.raises(errors.InvalidInputError, match=said):
            backfill(None, place, column, short, **given)
    assert lance.dataset(place).version == 1


def test_an_index_on_a_field_inside_does_not_answer_with_old_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2], "s": [{"x": 1}, {"x": 2}]}), place)
    lance.dataset(place).create_scalar_index("s.x", "BTREE")
    backfill(spark, place, "s", "named_struct('x', id + 100)")
    assert [lance.dataset(place).count_rows(f"s.x = {x}") for x in (1, 101)] == [0, 1]


def test_a_subquery_that_moves_rows_is_refused_and_fills_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": list(range(100, 0, -1))}), place)
    spark.range(50).createOrReplaceTempView("few")
    with pytest.raises(errors.InvalidInputError, match="computed row by row"):
        backfill(spark, place, "n", "id IN (SELECT /*+ MERGE(few) */ id FROM few)")
    assert lance.dataset(place).schema.names == ["id"]
