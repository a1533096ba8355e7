"""Reading by options, in the process of the test: what each option does, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructType

from lance_bridge_spark.addresses import CatalogAddress
from lance_bridge_spark.source import planning, with_catalogs
from lance_bridge_spark.source.errors import LanceError, LanceValueError

from .source_helpers import ids_in, numbers, parts_of, read, source

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "spark.md#choosing-a-table", "spark.md#read-options", "spark.md#search-options"
    ),
]


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
        read({"path": place, "timestamp": "2001-01-01 00:00:00"})


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
    assert planning.batch_rows([kind]) == rows


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
