"""Indices that Spark builds by fragments answer as those that pylance builds at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
from lance_namespace import errors
from pyspark.sql import SparkSession

from lance_bridge_spark.jobs import create_index

from .job_tables import DIMENSION, Interrupted, append, ids, make

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#create_index")]

QUERIES = np.random.default_rng(7).random((10, DIMENSION), dtype=np.float32)


def described(place: str, name: str) -> Any:
    return next(each for each in lance.dataset(place).describe_indices() if each.name == name)


def nearest(place: str, metric: str, **how: Any) -> list[set[int]]:
    """Return the numbers of the 10 rows that are nearest to each query."""
    given = {"column": "v", "k": 10, "metric": metric, **how}
    return [set(ids(place, nearest={**given, "q": each})) for each in QUERIES]


def recall(place: str, metric: str) -> float:
    """Return which part of the truth the index finds, of all partitions, without refining."""
    truth = nearest(place, metric, use_index=False)
    found = nearest(place, metric, nprobes=4)
    shares = [len(a & b) / len(a) for a, b in zip(truth, found, strict=True)]
    return sum(shares) / len(shares)


@pytest.mark.parametrize(
    ("column", "kind", "filter_"),
    [
        ("id", "BTREE", "id between 90 and 120"),
        ("tags", "LABEL_LIST", "array_has_any(tags, ['t1'])"),
    ],
)
def test_a_scalar_index_finds_what_a_scan_finds(
    spark: SparkSession, tmp_path: Path, column: str, kind: str, filter_: str
) -> None:
    place = make(tmp_path / "t")
    expected = ids(place, filter=filter_)

    done = create_index(spark, place, column, kind, rows_per_task=100)

    assert (done.tasks, done.segments, done.rows) == (2, 1, 200)
    assert sorted(ids(place, filter=filter_)) == expected
    plan = lance.dataset(place).scanner(filter=filter_).explain_plan()
    assert "ScalarIndexQuery" in plan
    assert described(place, f"{column}_idx").num_rows_indexed == 200


@pytest.mark.parametrize("how", [{"rows_per_task": 50}, {}, {"rows_per_task": 50, "merge": False}])
def test_a_full_text_index_ranks_as_that_of_pylance(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any]
) -> None:
    place, twin = make(tmp_path / "t"), make(tmp_path / "twin")
    lance.dataset(twin).create_scalar_index("text", "INVERTED")
    create_index(spark, place, "text", "INVERTED", **how)
    query = {"full_text_query": "word3 thing17", "limit": 5}
    assert ids(place, **query) == ids(twin, **query)
    assert ids(place, **query)[0] == 17


@pytest.mark.parametrize(
    ("kind", "metric", "segments"),
    [("IVF_PQ", "l2", 1), ("IVF_PQ", "dot", 2), ("IVF_HNSW_SQ", "l2", 2), ("IVF_RQ", "cosine", 1)],
)
def test_a_vector_index_finds_about_what_that_of_pylance_finds(
    spark: SparkSession, tmp_path: Path, kind: str, metric: str, segments: int
) -> None:
    place, twin = make(tmp_path / "t", 4, 300), make(tmp_path / "twin", 4, 300)
    options: Any = {"num_sub_vectors": DIMENSION // 2} if "PQ" in kind else {}
    lance.dataset(twin).create_index("v", kind, metric=metric, num_partitions=4, **options)

    done = create_index(
        spark, place, "v", kind, metric=metric, rows_per_task=600, num_partitions=4, **options
    )

    assert (done.tasks, done.segments) == (2, segments)
    assert described(place, "v_idx").num_rows_indexed == 1200
    assert recall(place, metric) > recall(twin, metric) - 0.15
    assert recall(place, metric) > 0.3


def test_an_index_gives_way_only_where_it_is_to(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=2)
    create_index(spark, place, "id", "BTREE", name="mine", rows_per_task=50)
    append(place, 5, 1000)
    with pytest.raises(errors.TableIndexAlreadyExistsError, match="already has an index 'mine'"):
        create_index(spark, place, "id", "BTREE", name="mine")
    assert described(place, "mine").num_rows_indexed == 100
    create_index(spark, place, "id", "BTREE", name="mine", replace=True)
    assert described(place, "mine").num_rows_indexed == 105
    assert ids(place, filter="id = 1002") == [1002]


def test_rows_that_are_appended_meanwhile_are_found_without_the_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)
    other = Interrupted(spark, lambda: append(place, 5, 1000))
    create_index(other, place, "id", "BTREE", rows_per_task=50)
    assert described(place, "id_idx").num_rows_indexed == 100
    assert sorted(ids(place, filter="id > 97")) == [98, 99, *range(1000, 1005)]


def test_fragments_that_are_rewritten_meanwhile_are_a_conflict(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t")
    other = Interrupted(spark, lance.dataset(place).optimize.compact_files)
    with pytest.raises(errors.ConcurrentModificationError):
        create_index(other, place, "id", "BTREE", rows_per_task=100)
    assert lance.dataset(place).describe_indices() == []
    assert ids(place, filter="id = 7") == [7]


def test_a_request_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=1)
    for column, kind, options, said in (
        ("id", "IVF_PQ", {}, "IVF_PQ is for a column of vectors"),
        ("id", "SOMETHING", {}, "'SOMETHING' is not known"),
        ("v", "IVF_PQ", {"num_sub_vectors": 5}, "must divide the dimension 16"),
        ("v", "IVF_PQ", {"num_parts": 5}, "num_parts is no parameter"),
        ("v", "IVF_PQ", {"num_partitions": "x"}, "num_partitions"),
        ("v", "IVF_PQ", {"metric": "far"}, "'far' is not known"),
        ("id", "BTREE", {"name": "__lance"}, "cannot be an index's name"),
        ("id", "BTREE", {"rows_per_task": 0}, "rows_per_task must be 1 or more"),
    ):
        with pytest.raises(errors.InvalidInputError, match=said):
            create_index(None, place, column, kind, **options)
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        create_index(None, place, "nope", "BTREE")
    assert lance.dataset(place).version == 1
