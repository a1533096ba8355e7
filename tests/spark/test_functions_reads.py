"""Reading, writing and searching as functions, on locations and on a table of a catalog."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace import errors
from pyspark.sql import SparkSession

from lance_bridge_spark import functions as F
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.functions import batch_search, col
from lance_bridge_spark.functions.rows.snapshot import Snapshot
from lance_bridge_spark.lookup import find_table

from .row_tables import numbered, version_of

pytestmark = pytest.mark.servers


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
    search = batch_search._search(target, "v", {"k": 3}, ("id", "t"), None)
    asked = {"_lance_bridge_query": [7], "_lance_bridge_vector": [[0.0, 1.0, 2.0, 0.0]]}
    queries = pa.RecordBatch.from_pydict({**asked, "_lance_bridge_part": [0]})
    [found] = batch_search.run(search, iter([queries]))
    assert found.schema.names == ["_lance_bridge_query", "_rowid", "_distance"]
    doubled = pa.Table.from_batches([found, found]).combine_chunks().to_batches()
    [rows] = batch_search.take_rows(search, iter(doubled))
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
