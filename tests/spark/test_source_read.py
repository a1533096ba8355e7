"""Reading by options and for the SQL catalog, in the process of the test: rows, plans, refusals."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType

from lance_bridge_spark.addresses import CatalogAddress
from lance_bridge_spark.source import reading, with_catalogs
from lance_bridge_spark.source.worker_calls import LanceError, LanceValueError

from .source_helpers import ids_in, numbers, parts_of, read, source

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "spark.md#choosing-a-table",
        "spark.md#read-options",
        "spark.md#search-options",
        "spark.md#what-is-pushed-down",
    ),
]

VALUES = {
    "id": [1, 2, 3, 4, 5, 6],
    "n": pa.array([7, None, -3, 2**31 - 1, 2**31 - 1, None], pa.int32()),
    "x": [0.5, None, float("inf"), 1.5, -2.5, 0.25],
}
IDS = StructType().add("id", LongType())


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A table of 20 rows in four fragments, three versions and a tag."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(numbers(*range(10)), path, max_rows_per_file=5)
    dataset = lance.write_dataset(numbers(*range(10, 20)), path, mode="append", max_rows_per_file=5)
    dataset.tags.create("before", 1)
    dataset.delete("id = 19")
    return path


@pytest.mark.parametrize("key", ["path", "location", "table"])
def test_a_location_is_given_by_any_of_three_options_and_read_at_its_latest_version(
    place: str, key: str
) -> None:
    assert ids_in(read({key: place})) == list(range(19))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"version": "1"}, range(10)),
        ({"version": "2"}, range(20)),
        ({"tag": "before"}, range(10)),
        ({"filter": "id < 3 or word = 'w12'"}, [0, 1, 2, 12]),
        ({"filter": "id < 3 -- not more"}, range(3)),
    ],
)
def test_rows_are_chosen_by_options(place: str, options: dict[str, str], expected: Any) -> None:
    assert ids_in(read({"path": place, **options})) == list(expected)


def test_a_timestamp_chooses_the_version_of_that_moment(place: str) -> None:
    made: Any = lance.dataset(place).versions()[0]["timestamp"]
    first = made.astimezone(timezone.utc)
    assert ids_in(read({"path": place, "timestamp": first.isoformat()})) == list(range(10))
    later = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    assert read({"path": place, "timestamp": later}).num_rows == 19
    with pytest.raises(LanceError, match="LANCE_TABLE_VERSION_NOT_FOUND"):
        read({"path": place, "timestamp": "2001-01-01 00:00:00Z"})


def test_a_branch_is_read(place: str) -> None:
    branch = lance.dataset(place).create_branch("side")
    lance.write_dataset(numbers(100), branch, mode="append")
    assert 100 in ids_in(read({"path": place, "branch": "side"}))
    assert 100 not in ids_in(read({"path": place}))


@pytest.mark.parametrize("limit", [0, 1, 5, 7, 18, 19, 100])
@pytest.mark.parametrize("where", [None, "id >= 0"])
def test_a_limit_is_kept_by_all_tasks_together(place: str, limit: int, where: str | None) -> None:
    options = {"path": place, "limit": limit, "rows_per_task": 5}
    if where:
        options["filter"] = where
    assert read(options).num_rows == min(limit, 19)


@pytest.mark.parametrize("columns", ["word,id", '["word", "id"]', " word , id "])
def test_columns_are_read_in_the_order_asked_for(place: str, columns: str) -> None:
    assert read({"path": place, "columns": columns}).column_names == ["word", "id"]


def test_a_schema_prunes_columns_too(place: str) -> None:
    schema = StructType().add("word", StringType()).add("_rowid", LongType())
    found = read({"path": place}, schema)
    assert found.column_names == ["word", "_rowid"]
    assert len(set(found["_rowid"].to_pylist())) == 19
    filters: list[dict[str, str]] = [{}, {"filter": "id < 4"}]
    counts = [read({"path": place, **each}, StructType()).num_rows for each in filters]
    assert counts == [19, 4], "rows without columns are counted"


def test_row_ids_are_read_where_asked_for(place: str) -> None:
    found = read({"path": place, "with_row_id": "true"})
    assert found.column_names == ["id", "word", "_rowid"]
    by_id = lance.dataset(place).to_table(with_row_id=True)
    assert sorted(found["_rowid"].to_pylist()) == sorted(by_id["_rowid"].to_pylist())


def test_a_read_stays_at_the_version_of_its_schema(place: str) -> None:
    made = source({"path": place})
    schema = made.schema()
    lance.write_dataset(numbers(99), place, mode="append")
    reader = made.reader(schema)
    rows: list[Any] = [b for part in reader.partitions() for b in reader.read(part)]
    assert sum(batch.num_rows for batch in rows) == 19


# -- tasks -----------------------------------------------------------------------------------------


@pytest.mark.spec("spark.md#tasks")
def test_fragments_are_grouped_by_rows_or_bytes(place: str) -> None:
    # A row is an integer and a text, which counts as 32 bytes.
    sizes: list[dict[str, int]] = [
        {"rows_per_task": 5}, {"rows_per_task": 10}, {},
        {"bytes_per_task": 200}, {"bytes_per_task": 400},
    ]  # fmt: skip
    assert [len(parts_of({"path": place, **each})) for each in sizes] == [4, 2, 1, 4, 2]


def test_a_table_without_rows_has_one_task_that_reads_none(tmp_path: Path) -> None:
    path = str(tmp_path / "empty")
    lance.write_dataset(numbers().slice(0, 0), path, schema=numbers(1).schema)
    assert len(parts_of({"path": path})) == 1
    assert read({"path": path}).num_rows == 0


@pytest.mark.spec("spark.md#tasks")
def test_batches_have_the_size_asked_for(place: str) -> None:
    found = read({"path": place, "batch_size": 2})
    assert max(len(chunk) for chunk in found["id"].chunks) == 2


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (pa.int64(), 131_072),
        (pa.decimal128(38, 2), 131_072),
        (pa.list_(pa.float32(), 16), 131_072),
        (pa.list_(pa.float32(), 1024), 2048),
        (pa.list_(pa.float32(), 65_536), 1024),
        (pa.string(), 8192),
        (pa.list_(pa.string(), 2), 8192),
        (pa.list_(pa.int64()), 8192),
        (pa.struct({"a": pa.int64()}), 8192),
    ],
)
def test_batches_are_as_large_as_memory_is_known_to_allow(kind: pa.DataType, rows: int) -> None:
    assert reading.batch_rows([kind]) == rows


@pytest.mark.parametrize(
    ("more", "largest"),
    [({"columns": "id"}, 20_000), ({}, 8192), ({"columns": "id", "filter": "id >= 0"}, 8192)],
)
def test_columns_of_text_and_filters_have_batches_of_a_set_size(
    tmp_path: Path, more: dict[str, str], largest: int
) -> None:
    path = str(tmp_path / "large")
    lance.write_dataset(numbers(*range(20_000)), path)
    found = read({"path": path, **more})
    assert max(len(chunk) for chunk in found["id"].chunks) == largest


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.spec("spark.md#errors")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "id"}, "did you mean 'columns'"),
        ({"columns": "wird"}, "no column 'wird': did you mean 'word'"),
        ({"columns": "id,id"}, "'id' is listed twice"),
        ({"columns": "[1]"}, "JSON list of names"),
        ({"version": "0"}, "'version' must be a whole number from 1"),
        ({"version": "1_0"}, "'version' must be a whole number"),
        ({"version": "9"}, "LANCE_TABLE_VERSION_NOT_FOUND"),
        ({"tag": "none"}, "LANCE_TABLE_TAG_NOT_FOUND"),
        ({"branch": "none"}, "LANCE_TABLE_BRANCH_NOT_FOUND"),
        ({"version": "1", "tag": "before"}, "version and tag each choose a version"),
        ({"timestamp": "soon"}, "'timestamp' must be a time such as"),
        ({"limit": "-1"}, "'limit' must be a whole number from 0"),
        ({"with_row_id": "1"}, "'with_row_id' must be true or false"),
        ({"filter": "id <"}, "Option 'filter' 'id <' does not fit"),
        ({"filter": "nope = 1"}, "there is no column"),
        ({"table": "/other"}, "named by path and table"),
        ({"catalog": "nowhere", "path": "a.b"}, "There is no catalog 'nowhere'"),
        ({"path": "nowhere.a.b"}, "There is no catalog 'nowhere'"),
        ({"path": "alone"}, "'alone' names no table"),
        ({"path": ""}, "No table is named"),
        ({"path": "/not/there"}, "LANCE_TABLE_NOT_FOUND"),
        ({"impl": "hive", "catalog": "x"}, "cannot be used together"),
    ],
)
def test_what_cannot_be_is_refused_before_any_task(
    place: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises((LanceError, LanceValueError), match=message):
        parts_of({"path": place, **options})


def test_a_column_is_not_read_as_another_type(place: str) -> None:
    with pytest.raises(LanceValueError, match="is bigint, and cannot be read as string"):
        parts_of({"path": place}, StructType().add("id", StringType()))


# -- catalogs --------------------------------------------------------------------------------------


@pytest.mark.spec("spark.md#credentials", "spark.md#register")
def test_a_catalog_of_the_session_is_known_by_its_name() -> None:
    kind = with_catalogs({"prod": CatalogAddress("prod", {"impl": "hive", "uri": "thrift://x:1"})})
    assert kind.name() == "lance"
    made = kind(CaseInsensitiveDict({"path": "prod.db.t"}))
    address = made._options().address()
    assert address.name == "prod.db.t"
    assert "thrift" not in repr(address)


def test_properties_of_an_impl_are_options_beside_it() -> None:
    options = {"impl": "hive", "uri": "thrift://x:1", "path": "db.t", "storage.aws_region": "eu"}
    address = source(options)._options().address()
    assert address.catalog is not None
    assert address.catalog.properties == {
        "impl": "hive",
        "uri": "thrift://x:1",
        "storage.aws_region": "eu",
    }
    assert address.path == ("db", "t")


def test_storage_options_go_with_a_location() -> None:
    address = source({"path": "s3://b/t", "storage.aws_region": "eu"})._options().address()
    assert address.storage == {"aws_region": "eu"}
    assert "eu" not in repr(address)


# -- searches --------------------------------------------------------------------------------------


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    """Ten rows in three fragments: the vector of row i is (i, 0); texts in turn."""
    path = str(tmp_path / "v.lance")
    values = pa.array([[float(i), 0.0] for i in range(10)], pa.list_(pa.float32(), 2))
    texts = ["red fox" if i % 2 else "blue whale" for i in range(10)]
    table = pa.table({"id": range(10), "v": values, "text": texts})
    lance.write_dataset(table, path, max_rows_per_file=4).create_scalar_index("text", "INVERTED")
    return path


def test_the_nearest_rows_of_all_fragments_are_found(vectors: str) -> None:
    found = read({"path": vectors, "nearest.query": "[4.1, 0]", "nearest.k": 3, "rows_per_task": 4})
    assert ids_in(found) == [3, 4, 5]
    assert found.column_names[-1] == "_distance"
    assert min(found["_distance"].to_pylist()) == pytest.approx(0.01, abs=1e-4)


def test_a_filter_goes_before_the_search_or_after_it(vectors: str) -> None:
    options = {"path": vectors, "nearest.query": "[4, 0]", "nearest.k": 3, "filter": "id > 5"}
    assert ids_in(read(options)) == [6, 7, 8]
    assert ids_in(read({**options, "nearest.prefilter": "false"})) == []


def test_a_search_without_its_distance_is_pruned(vectors: str) -> None:
    options = {"path": vectors, "nearest.query": "[4, 0]", "nearest.k": 2, "columns": "id"}
    assert read(options, StructType().add("id", LongType())).num_rows == 2
    assert read(options, StructType()).num_rows == 2


def test_text_is_searched_with_a_score(vectors: str) -> None:
    found = read({"path": vectors, "full_text.query": "fox", "full_text.columns": "text"})
    assert ids_in(found) == [1, 3, 5, 7, 9]
    assert found.column_names[-1] == "_score"
    assert read({"path": vectors, "full_text.query": "fox", "full_text.k": 2}).num_rows == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nearest.k": "3"}, "Options nearest.… need 'nearest.query'"),
        ({"nearest.query": "[1]"}, "has 1 numbers, and the vectors of column 'v' have 2"),
        ({"nearest.query": "near"}, "'nearest.query' is not JSON"),
        ({"nearest.query": '["a"]'}, "must be a JSON list of numbers"),
        ({"nearest.query": "[1, 2]", "nearest.column": "w"}, "LANCE_TABLE_COLUMN_NOT_FOUND"),
        (
            {"nearest.query": "[1, 2]", "nearest.metric": "far"},
            "Distance type 'far' must be one of",
        ),
        ({"nearest.query": "[1, 2]", "full_text.query": "x"}, "cannot be used together"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    vectors: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises((LanceError, LanceValueError), match=message):
        read({"path": vectors, **options})


# -- scans of the SQL catalog ----------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> str:
    """Six rows in three fragments, and a second version with more."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(VALUES), path, max_rows_per_file=2)
    lance.write_dataset(pa.table({"id": [7], "n": [None], "x": [None]}, pa.schema(
        [("id", pa.int64()), ("n", pa.int32()), ("x", pa.float64())]
    )), path, mode="append")  # fmt: skip
    return path


def scanned(parts: str, scan: dict[str, Any], schema: StructType | None = None) -> pa.Table:
    return read({"path": parts, "lance_bridge.scan": scan}, schema or IDS)


def aggregated(parts: str, scan: dict[str, Any], schema: StructType) -> list[tuple[Any, ...]]:
    """Return the row of each task."""
    options = {"path": parts, "lance_bridge.scan": scan, "rows_per_task": 2}
    return [tuple(row.values()) for row in read(options, schema).to_pylist()]


def test_a_scan_is_of_its_version_fragments_and_filter(parts: str) -> None:
    assert ids_in(scanned(parts, {"version": 1})) == [1, 2, 3, 4, 5, 6]
    assert ids_in(scanned(parts, {"version": 1, "fragments": [0, 2]})) == [1, 2, 5, 6]
    assert ids_in(scanned(parts, {"version": 1, "fragments": [0], "filter": "id > 1"})) == [2]
    assert ids_in(scanned(parts, {"version": 1, "fragments": []})) == []
    assert ids_in(scanned(parts, {"version": 2, "limit": 1})) != []


def test_a_limit_of_a_scan_is_for_each_task(parts: str) -> None:
    options = {"path": parts, "lance_bridge.scan": {"version": 1, "limit": 1}, "rows_per_task": 2}
    assert read(options, IDS).num_rows == 3


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 10])
def test_an_offset_and_its_limit_are_for_all_tasks_together(parts: str, limit: int | None) -> None:
    lance.dataset(parts).delete("id = 3")
    stored = [1, 2, 4, 5, 6, 7]
    for offset in range(8):
        scan = {"version": 3, "offset": offset, "limit": limit}
        options = {"path": parts, "lance_bridge.scan": scan, "rows_per_task": 2}
        expected = stored[offset:] if limit is None else stored[offset : offset + limit]
        assert read(options, IDS)["id"].to_pylist() == expected
        assert len(parts_of(options, IDS)) <= max(len(expected), 1)


def test_each_task_gives_the_first_rows_of_an_order(parts: str) -> None:
    keys = [{"column": "n", "descending": True}, {"column": "x", "nulls_first": True}]
    schema = StructType().add("id", LongType()).add("_rowaddr", LongType())

    def first(limit: int, **more: Any) -> list[tuple[Any, ...]]:
        scan = {"version": 1, "order": keys, "limit": limit, **more}
        options = {"path": parts, "lance_bridge.scan": scan, "rows_per_task": 4}
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


def test_the_condition_of_an_option_is_added_to_that_of_the_scan(parts: str) -> None:
    options = {"path": parts, "lance_bridge.scan": {"version": 1, "filter": "id > 2 or id = 1"}}
    assert ids_in(read({**options, "filter": "id < 4 -- few"}, IDS)) == [1, 3]


@pytest.mark.spec("spark.md#metadata-columns")
def test_where_rows_are_is_read_with_them(parts: str) -> None:
    schema = StructType().add("id", LongType()).add("_rowaddr", LongType())
    schema.add("_rowid", LongType())
    found = scanned(parts, {"version": 1, "fragments": [1]}, schema).to_pylist()
    assert [row["_rowaddr"] for row in found] == [1 << 32, (1 << 32) + 1]
    assert all(row["_rowid"] is not None for row in found)


def test_a_missing_fragment_is_refused(parts: str) -> None:
    with pytest.raises(LanceValueError, match="Version 1 has no fragment 9"):
        scanned(parts, {"version": 1, "fragments": [0, 9]})


@pytest.mark.spec("spark.md#tasks")
def test_parallelism_cuts_a_scan_into_tasks(parts: str) -> None:
    scan = {"version": 1, "parallelism": 4}
    options = {"path": parts, "lance_bridge.scan": scan, "bytes_per_task": 16}
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


def test_each_task_aggregates_its_fragments(parts: str) -> None:
    big = 2**31 - 1
    assert aggregated(parts, {"version": 1, "aggregate": ALL}, ALL_TYPES) == [
        (2, 1, 7, 7, 7, 0.5),
        (2, 2, big - 3, -3, big, float("inf")),
        (2, 1, big, big, big, -2.25),
    ]


def test_aggregates_of_no_rows_are_null_and_counts_0(parts: str) -> None:
    none = (0, 0, None, None, None, None)
    scan = {"version": 1, "aggregate": ALL, "filter": "id > 100", "fragments": [0]}
    assert aggregated(parts, scan, ALL_TYPES) == [none]
    assert aggregated(parts, {"version": 1, "aggregate": ALL, "fragments": []}, ALL_TYPES) == [none]


def test_rows_are_counted_from_metadata_or_by_a_condition(parts: str) -> None:
    schema = StructType().add("agg_0", LongType())
    lance.dataset(parts).delete("id = 1")
    counts = aggregated(parts, {"version": 3, "aggregate": ALL[:1]}, schema)
    assert sum(row[0] for row in counts) == 6
    counts = aggregated(parts, {"version": 3, "aggregate": ALL[:1], "filter": "n = 7"}, schema)
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


def test_each_task_aggregates_by_group(parts: str) -> None:
    schema = grouped().add("agg_1", DoubleType()).add("agg_2", LongType())
    aggregate = [ALL[0], ALL[5], {"function": "count", "column": "x"}]
    scan = {"version": 1, "groups": ["n"], "aggregate": aggregate}
    big = 2**31 - 1
    assert sorted(aggregated(parts, scan, schema), key=str) == [
        (-3, 1, float("inf"), 1),
        (big, 1, -2.5, 1),
        (big, 1, 1.5, 1),
        (7, 1, 0.5, 1),
        (None, 1, 0.25, 1),
        (None, 1, None, 0),
    ]
    few = {**scan, "filter": "n = 7 OR n IS NULL AND x IS NULL"}
    assert sorted(aggregated(parts, few, schema), key=str) == [(7, 1, 0.5, 1), (None, 1, None, 0)]
    assert aggregated(parts, {**scan, "filter": "n = 8"}, schema) == []
    assert aggregated(parts, {**scan, "fragments": []}, schema) == []


def test_groups_without_an_aggregate_are_their_values(parts: str) -> None:
    scan = {"version": 1, "groups": ["n"], "aggregate": []}
    found = aggregated(parts, scan, StructType().add("group_0", IntegerType()))
    assert {value for (value,) in found} == {None, -3, 7, 2**31 - 1}


def test_a_group_comes_once_for_so_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "many")
    lance.write_dataset(pa.table({"n": pa.array([1, 2] * 50, pa.int32())}), path)
    monkeypatch.setattr(reading, "_ROWS", 30)
    options = {
        "path": path,
        "batch_size": 10,
        "lance_bridge.scan": {"version": 1, "groups": ["n"], "aggregate": [ALL[0]]},
    }
    found = [tuple(row.values()) for row in read(options, grouped()).to_pylist()]
    assert len(found) == 8
    assert sum(count for _, count in found) == 100


def test_a_sum_by_group_that_may_overflow_is_refused(parts: str) -> None:
    scan = {"version": 1, "groups": ["n"], "aggregate": [{"function": "sum", "column": "id"}]}
    with pytest.raises(LanceValueError, match="overflow"):
        aggregated(parts, scan, grouped())


@pytest.mark.parametrize(
    "options",
    [
        {"lance_bridge.scan": "{"},
        {"lance_bridge.table": "x"},
        {"lance_bridge.scan": {"aggregate": [{"function": "median", "column": "id"}]}},
    ],
)
def test_what_the_sql_catalog_would_not_ask_is_refused(parts: str, options: dict[str, Any]) -> None:
    with pytest.raises((LanceError, LanceValueError)):
        read({"path": parts, **options}, StructType().add("agg_0", LongType()))


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


# -- rows that indices count -----------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path: Path) -> lance.LanceDataset:
    """A table whose indices and values have names like parts of Lance's plans."""
    rows = pa.table({
        "id": range(100),
        "word": ["]@zz(BTree)", "refine_filter=--"] * 50,
        "other": range(100),
    })  # fmt: skip
    dataset = lance.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=20)
    dataset.create_scalar_index("id", "BTREE", name="by s (v2)")
    dataset.create_scalar_index("word", "BITMAP", name="]@x(BTree)\nrefine_filter=--")
    return dataset


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("id = 5", 1),
        ("id < 30 OR id IS NULL", 30),
        ("word = ']@zz(BTree)'", 50),
        ("id < 10 AND word = 'refine_filter=--'", 5),
        ("id < 10 AND other < 5", None),
        ("other = 5 AND word = 'refine_filter=--'", None),
        ("id + 1 = 5", None),
        ("other = 5", None),
    ],
)
def test_rows_are_counted_by_indices_whatever_their_names_and_the_values_are(
    indexed: lance.LanceDataset, predicate: str, expected: int | None
) -> None:
    assert reading.rows_by_index(indexed, predicate) == expected


def test_rows_are_not_counted_by_an_index_that_lacks_some(indexed: lance.LanceDataset) -> None:
    more = pa.table({"id": [5], "word": ["new"], "other": [5]})
    dataset = lance.write_dataset(more, indexed.uri, mode="append")
    assert reading.rows_by_index(dataset, "id = 5") is None
    dataset.optimize.optimize_indices()
    assert reading.rows_by_index(dataset, "id = 5") == 2
