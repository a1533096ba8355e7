"""What the SQL catalog asks of the source: scans by fragments, partial aggregates, metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType

from lance_bridge_spark.source import aggregates
from lance_bridge_spark.source.errors import LanceError, LanceValueError

from .source_helpers import ids_in, numbers, parts_of, read

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#what-is-pushed-down")]

VALUES = {
    "id": [1, 2, 3, 4, 5, 6],
    "n": pa.array([7, None, -3, 2**31 - 1, 2**31 - 1, None], pa.int32()),
    "x": [0.5, None, float("inf"), 1.5, -2.5, 0.25],
}
IDS = StructType().add("id", LongType())


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Six rows in three fragments, and a second version with more."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(VALUES), path, max_rows_per_file=2)
    lance.write_dataset(pa.table({"id": [7], "n": [None], "x": [None]}, pa.schema(
        [("id", pa.int64()), ("n", pa.int32()), ("x", pa.float64())]
    )), path, mode="append")  # fmt: skip
    return path


def scanned(place: str, scan: dict[str, Any], schema: StructType | None = None) -> pa.Table:
    return read({"path": place, "lance_bridge.scan": scan}, schema or IDS)


def aggregated(place: str, scan: dict[str, Any], schema: StructType) -> list[tuple[Any, ...]]:
    """Return the row of each task."""
    options = {"path": place, "lance_bridge.scan": scan, "rows_per_task": 2}
    return [tuple(row.values()) for row in read(options, schema).to_pylist()]


def test_a_scan_is_of_its_version_fragments_and_filter(place: str) -> None:
    assert ids_in(scanned(place, {"version": 1})) == [1, 2, 3, 4, 5, 6]
    assert ids_in(scanned(place, {"version": 1, "fragments": [0, 2]})) == [1, 2, 5, 6]
    assert ids_in(scanned(place, {"version": 1, "fragments": [0], "filter": "id > 1"})) == [2]
    assert ids_in(scanned(place, {"version": 1, "fragments": []})) == []
    assert ids_in(scanned(place, {"version": 2, "limit": 1})) != []


def test_a_limit_of_a_scan_is_for_each_task(place: str) -> None:
    options = {"path": place, "lance_bridge.scan": {"version": 1, "limit": 1}, "rows_per_task": 2}
    assert read(options, IDS).num_rows == 3


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 10])
def test_an_offset_and_its_limit_are_for_all_tasks_together(place: str, limit: int | None) -> None:
    lance.dataset(place).delete("id = 3")
    stored = [1, 2, 4, 5, 6, 7]
    for offset in range(8):
        scan = {"version": 3, "offset": offset, "limit": limit}
        options = {"path": place, "lance_bridge.scan": scan, "rows_per_task": 2}
        expected = stored[offset:] if limit is None else stored[offset : offset + limit]
        assert read(options, IDS)["id"].to_pylist() == expected
        assert len(parts_of(options, IDS)) <= max(len(expected), 1)


def test_each_task_gives_the_first_rows_of_an_order(place: str) -> None:
    keys = [{"column": "n", "descending": True}, {"column": "x", "nulls_first": True}]
    schema = StructType().add("id", LongType()).add("_rowaddr", LongType())

    def first(limit: int, **more: Any) -> list[tuple[Any, ...]]:
        scan = {"version": 1, "order": keys, "limit": limit, **more}
        options = {"path": place, "lance_bridge.scan": scan, "rows_per_task": 4}
        return [tuple(row.values()) for row in read(options, schema).to_pylist()]

    assert first(2) == [(4, (1 << 32) + 1), (1, 0), (5, 2 << 32), (6, (2 << 32) + 1)]
    assert first(1, filter="x < 1.0") == [(1, 0), (5, 2 << 32)]
    assert first(3, fragments=[0]) == [(1, 0), (2, 1)]


def test_only_the_first_rows_of_an_order_are_read_with_all_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "words")
    lance.write_dataset(numbers(*range(100)), path)
    schema = StructType().add("id", LongType()).add("word", StringType())
    scan = {"version": 1, "order": [{"column": "id", "descending": True}], "limit": 2}
    plans, scanner = list[str](), lance.LanceDataset.scanner

    def noted(*args: Any, **kwargs: Any) -> lance.LanceScanner:
        made = scanner(*args, **kwargs)
        plans.append(made.explain_plan(True))
        return made

    monkeypatch.setattr(lance.LanceDataset, "scanner", noted)
    assert ids_in(scanned(path, scan, schema)) == [98, 99]
    [plan] = plans
    assert plan.index("projection=[word]") < plan.index("TopK(fetch=2)")
    assert plan.index("TopK(fetch=2)") < plan.index("projection=[id]")


def test_the_condition_of_an_option_is_added_to_that_of_the_scan(place: str) -> None:
    options = {"path": place, "lance_bridge.scan": {"version": 1, "filter": "id > 2 or id = 1"}}
    assert ids_in(read({**options, "filter": "id < 4 -- few"}, IDS)) == [1, 3]


@pytest.mark.spec("spark.md#metadata-columns")
def test_where_rows_are_is_read_with_them(place: str) -> None:
    schema = StructType().add("id", LongType()).add("_rowaddr", LongType())
    schema.add("_rowid", LongType())
    found = scanned(place, {"version": 1, "fragments": [1]}, schema).to_pylist()
    assert [row["_rowaddr"] for row in found] == [1 << 32, (1 << 32) + 1]
    assert all(row["_rowid"] is not None for row in found)


def test_a_missing_fragment_is_refused(place: str) -> None:
    with pytest.raises(LanceValueError, match="Version 1 has no fragment 9"):
        scanned(place, {"version": 1, "fragments": [0, 9]})


@pytest.mark.spec("spark.md#tasks")
def test_parallelism_cuts_a_scan_into_tasks(place: str) -> None:
    scan = {"version": 1, "parallelism": 4}
    options = {"path": place, "lance_bridge.scan": scan, "bytes_per_task": 16}
    assert len(parts_of(options, IDS)) == 3


ALL = [
    {"function": "count", "column": None},
    {"function": "count", "column": "n"},
    {"function": "sum", "column": "n"},
    {"function": "min", "column": "n"},
    {"function": "max", "column": "n"},
    {"function": "sum", "column": "x"},
]
ALL_TYPES = (
    StructType()
    .add("agg_0", LongType())
    .add("agg_1", LongType())
    .add("agg_2", LongType())
    .add("agg_3", IntegerType())
    .add("agg_4", IntegerType())
    .add("agg_5", DoubleType())
)


def test_each_task_aggregates_its_fragments(place: str) -> None:
    big = 2**31 - 1
    assert aggregated(place, {"version": 1, "aggregate": ALL}, ALL_TYPES) == [
        (2, 1, 7, 7, 7, 0.5),
        (2, 2, big - 3, -3, big, float("inf")),
        (2, 1, big, big, big, -2.25),
    ]


def test_aggregates_of_no_rows_are_null_and_counts_0(place: str) -> None:
    none = (0, 0, None, None, None, None)
    scan = {"version": 1, "aggregate": ALL, "filter": "id > 100", "fragments": [0]}
    assert aggregated(place, scan, ALL_TYPES) == [none]
    assert aggregated(place, {"version": 1, "aggregate": ALL, "fragments": []}, ALL_TYPES) == [none]


def test_rows_are_counted_from_metadata_or_by_a_condition(place: str) -> None:
    schema = StructType().add("agg_0", LongType())
    lance.dataset(place).delete("id = 1")
    counts = aggregated(place, {"version": 3, "aggregate": ALL[:1]}, schema)
    assert sum(row[0] for row in counts) == 6
    counts = aggregated(place, {"version": 3, "aggregate": ALL[:1], "filter": "n = 7"}, schema)
    assert sum(row[0] for row in counts) == 0


def test_a_sum_that_does_not_fit_fails(tmp_path: Path) -> None:
    path = str(tmp_path / "big")
    lance.write_dataset(pa.table({"n": [2**63 - 1, 1]}), path)
    scan = {"version": 1, "aggregate": [{"function": "sum", "column": "n"}]}
    with pytest.raises(LanceValueError, match="overflow"):
        aggregated(path, scan, StructType().add("agg_0", LongType()))


def grouped() -> StructType:
    """Return the schema of a count by a column of integers."""
    return StructType().add("group_0", IntegerType()).add("agg_0", LongType())


def test_each_task_aggregates_by_group(place: str) -> None:
    schema = grouped().add("agg_1", DoubleType()).add("agg_2", LongType())
    aggregate = [ALL[0], ALL[5], {"function": "count", "column": "x"}]
    scan = {"version": 1, "groups": ["n"], "aggregate": aggregate}
    big = 2**31 - 1
    assert sorted(aggregated(place, scan, schema), key=str) == [
        (-3, 1, float("inf"), 1),
        (big, 1, -2.5, 1),
        (big, 1, 1.5, 1),
        (7, 1, 0.5, 1),
        (None, 1, 0.25, 1),
        (None, 1, None, 0),
    ]
    few = {**scan, "filter": "n = 7 OR n IS NULL AND x IS NULL"}
    assert sorted(aggregated(place, few, schema), key=str) == [(7, 1, 0.5, 1), (None, 1, None, 0)]
    assert aggregated(place, {**scan, "filter": "n = 8"}, schema) == []
    assert aggregated(place, {**scan, "fragments": []}, schema) == []


def test_groups_without_an_aggregate_are_their_values(place: str) -> None:
    scan = {"version": 1, "groups": ["n"], "aggregate": []}
    found = aggregated(place, scan, StructType().add("group_0", IntegerType()))
    assert {value for (value,) in found} == {None, -3, 7, 2**31 - 1}


def test_a_group_comes_once_for_so_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "many")
    lance.write_dataset(pa.table({"n": pa.array([1, 2] * 50, pa.int32())}), path)
    monkeypatch.setattr(aggregates, "_ROWS", 30)
    options = {
        "path": path,
        "batch_size": 10,
        "lance_bridge.scan": {"version": 1, "groups": ["n"], "aggregate": [ALL[0]]},
    }
    found = [tuple(row.values()) for row in read(options, grouped()).to_pylist()]
    assert len(found) == 8
    assert sum(count for _, count in found) == 100


def test_a_sum_by_group_that_may_overflow_is_refused(place: str) -> None:
    scan = {"version": 1, "groups": ["n"], "aggregate": [{"function": "sum", "column": "id"}]}
    with pytest.raises(LanceValueError, match="overflow"):
        aggregated(place, scan, grouped())


@pytest.mark.parametrize(
    "options",
    [
        {"lance_bridge.scan": "{"},
        {"lance_bridge.table": "x"},
        {"lance_bridge.scan": {"aggregate": [{"function": "median", "column": "id"}]}},
    ],
)
def test_what_the_sql_catalog_would_not_ask_is_refused(place: str, options: dict[str, Any]) -> None:
    with pytest.raises((LanceError, LanceValueError)):
        read({"path": place, **options}, StructType().add("agg_0", LongType()))


def test_texts_are_not_among_rows_that_were_not_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance.write_dataset(numbers(1, 2), path)
    found = scanned(path, {"version": 1}, StructType().add("word", StringType()))
    assert found.to_pylist() == [{"word": "w1"}, {"word": "w2"}]


@pytest.mark.spec("spark.md#tasks")
def test_rows_that_indices_know_to_be_few_are_read_by_one_task(tmp_path: Path) -> None:
    path = str(tmp_path / "indexed")
    table = pa.table({"id": range(60), "n": [number % 2 for number in range(60)]})
    dataset = lance.write_dataset(table, path, max_rows_per_file=10)

    def tasks(predicate: str) -> int:
        options = {"path": path, "filter": predicate, "rows_per_task": 10}
        assert ids_in(read(options, IDS)) == dataset.to_table(filter=predicate)["id"].to_pylist()
        return len(parts_of(options, IDS))

    assert tasks("id = 3") == 6
    dataset.create_scalar_index("id", "BTREE")
    assert tasks("id = 3") == 1
    assert tasks("id > 10 AND id < 40") == 1
    assert tasks("id = 3 AND n = 1") == 6, "n has no index"
    lance.write_dataset(table.slice(0, 1), path, mode="append")
    assert tasks("id = 3") == 7, "the new row is in no index"
