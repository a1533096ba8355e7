"""Batches of large rows: their limits by sizes of all kinds, and what scans with them return."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pytest

from lance_bridge.dataset import (
    BATCH_BYTES,
    BATCH_ROWS,
    READ_AHEAD,
    batch_rows,
    columns_read,
    large_row_bytes,
    plan_compaction,
    scan_limits,
    split_scan,
)
from lance_bridge.dataset.maintenance import compact

from .memory_catalog import TABLE, MemoryNamespace, raiser
from .table_data import add, backfill, dataset, make

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#memory")]

CELL = 200_000
"""The bytes of a large value."""
_RANDOM = np.random.default_rng(3)


def cell(size: int = CELL) -> bytes:
    """Return bytes that do not compress."""
    return _RANDOM.bytes(size)


def text(size: int = CELL) -> str:
    return cell(size // 2).hex()


def write(place: Path, *parts: dict[str, Any], **options: Any) -> lance.LanceDataset:
    """Write a table with a fragment for each part, which has columns by name."""
    for part in parts:
        rows = {"id": pa.array(range(len(next(iter(part.values())))), pa.int64()), **part}
        made = lance.write_dataset(pa.table(rows), str(place), mode="append", **options)
    return made


def largest_batch(found: lance.LanceDataset, **arguments: Any) -> Any:
    return max(batch.nbytes for batch in found.scanner(**arguments).to_batches())


# -- small rows ------------------------------------------------------------------------------------


def test_small_rows_are_read_as_lance_reads_them(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"s": [f"word {i}" for i in range(10_000)]})
    assert scan_limits(found) == {}
    assert scan_limits(found, most_rows=BATCH_ROWS) == {"batch_size": BATCH_ROWS}
    assert split_scan(found) == [(None, {"batch_size": BATCH_ROWS})]
    assert large_row_bytes(found) is None


def test_a_table_without_rows_is_read_as_lance_reads_it(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("b", pa.binary())])
    found = lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    assert scan_limits(found) == {}
    assert batch_rows(found) == BATCH_ROWS


def test_vectors_of_any_length_have_batches_of_a_size(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(200_000, np.float32)), 100_000)
    found = write(tmp_path / "t", {"v": vectors})
    assert batch_rows(found) == BATCH_BYTES // 400_008
    assert "io_buffer_size" in scan_limits(found)


# -- large rows ------------------------------------------------------------------------------------


def wide_list(_: int) -> Any:
    return _RANDOM.random(CELL // 8)


LARGE: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "binary": (pa.binary(), lambda _: cell()),
    "large binary": (pa.large_binary(), lambda _: cell()),
    "string": (pa.string(), lambda _: text()),
    "list": (pa.list_(pa.float64()), wide_list),
    "list of strings": (pa.list_(pa.string()), lambda _: [text(CELL // 4)] * 4),
    "struct": (
        pa.struct([("n", pa.int32()), ("b", pa.struct([("c", pa.binary())]))]),
        lambda i: {"n": i, "b": {"c": cell()}},
    ),
    "map": (pa.map_(pa.string(), pa.binary()), lambda i: [(f"key {i}", cell())]),
}

KINDS = [(kind, "2.2") for kind in LARGE]
KINDS += [(kind, version) for kind in LARGE if kind != "map" for version in ("2.0", "2.1")]
"""Lance has maps from version 2.2 of its files on."""


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_batches_of_large_values_have_few_bytes(tmp_path: Path, kind: str, version: str) -> None:
    dtype, value = LARGE[kind]
    values = pa.array([value(i) for i in range(120)], dtype)
    found = write(tmp_path / "t", {"c": values}, data_storage_version=version)
    limits = scan_limits(found)
    assert limits["batch_size"] == pytest.approx(BATCH_BYTES / CELL, rel=0.1)
    assert limits["io_buffer_size"] == READ_AHEAD
    assert ("batch_size_bytes" in limits) == (version != "2.0")
    assert largest_batch(found, **limits) < 1.5 * BATCH_BYTES
    assert found.scanner(**limits).to_table().equals(found.to_table())
    stored = large_row_bytes(found)
    assert stored is not None
    assert CELL / 5 < stored < 1.1 * CELL  # digits are stored compressed


def test_values_that_are_stored_compressed_count_as_they_are_read(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"b": [bytes(CELL)] * 200})
    assert batch_rows(found) == pytest.approx(BATCH_BYTES / CELL, rel=0.1)


def test_nulls_and_deleted_rows_have_no_bytes(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"b": [None if i % 4 else cell() for i in range(200)]})
    found.delete("id < 100")
    rows = batch_rows(found)
    assert rows == pytest.approx(4 * BATCH_BYTES / CELL, rel=0.1)
    assert largest_batch(found, batch_size=rows) < 1.5 * BATCH_BYTES


def test_a_value_larger_than_a_batch_is_a_batch(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"b": [cell(2 * BATCH_BYTES)] * 2})
    limits = scan_limits(found)
    assert limits["batch_size"] == 1
    assert [batch.num_rows for batch in found.scanner(**limits).to_batches()] == [1, 1]


def test_less_memory_makes_smaller_batches(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"b": [cell()] * 20})
    memory = 16 * 2**20
    limits = scan_limits(found, memory=memory)
    assert limits["batch_size"] == memory // 16 // CELL
    assert limits["io_buffer_size"] == memory // 8


# -- columns ---------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path) -> lance.LanceDataset:
    """A table with a large column among small ones."""
    names = [f"picture {i}" for i in range(200)]
    return write(tmp_path / "t", {"name": names, "b": [cell() for _ in names]})


def test_a_column_that_is_not_read_does_not_count(pictures: lance.LanceDataset) -> None:
    assert scan_limits(pictures, ["id"]) == {}
    assert scan_limits(pictures, ["id", "name"]) == {}
    assert large_row_bytes(pictures, ["name"]) is None
    assert scan_limits(pictures, ["id", "b"])["batch_size"] < 100


def test_columns_of_filters_and_of_expressions_are_read(pictures: lance.LanceDataset) -> None:
    names = pictures.schema.names
    assert columns_read(names, None) == ["b", "id", "name"]
    assert columns_read(names, ["id"], "length(b) > 3") == ["b", "id"]
    assert columns_read(names, {"n": "length(b)", "_rowid": "_rowid"}) == ["b"]
    assert scan_limits(pictures, columns_read(names, ["id"], "length(b) > 3"))


def test_a_path_is_in_its_column(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"st": [{"a.b": cell(), "n": i} for i in range(100)]})
    assert scan_limits(found, ["st.`a.b`"])["batch_size"] < 100
    assert scan_limits(found, ["st.n"])["batch_size"] < 100


def test_blobs_count_as_nothing(tmp_path: Path) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("s", pa.string()), blob])
    rows = [{"id": i, "s": f"name {i}", "b": cell()} for i in range(100)]
    table = pa.Table.from_pylist(rows, schema)
    found = lance.write_dataset(table, str(tmp_path / "t"), data_storage_version="2.1")
    assert scan_limits(found) == {}


def test_columns_in_several_files_have_batches_of_the_same_rows(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"b": [cell() for _ in range(200)]})
    found.add_columns({"double": "id * 2"})
    limits = scan_limits(found)
    assert limits["batch_size"] < 100
    assert "batch_size_bytes" not in limits
    assert "batch_size_bytes" in scan_limits(found, ["id", "b"])
    assert largest_batch(found, **limits) < 1.5 * BATCH_BYTES
    assert found.scanner(**limits).to_table()["double"].to_pylist() == list(range(0, 400, 2))


# -- fragments -------------------------------------------------------------------------------------


def test_fragments_with_rows_of_other_sizes_are_read_by_themselves(tmp_path: Path) -> None:
    small, large = [b"x"] * 3000, [cell() for _ in range(200)]
    found = write(tmp_path / "t", {"b": small}, {"b": small}, {"b": large}, {"b": small})
    runs = [
        ([each.fragment_id for each in fragments or ()], limits["batch_size"])
        for fragments, limits in split_scan(found, ["b"])
    ]
    assert [ids for ids, _ in runs] == [[0, 1], [2], [3]]
    assert [rows for _, rows in runs][::2] == [BATCH_ROWS, BATCH_ROWS]
    assert runs[1][1] == pytest.approx(BATCH_BYTES / CELL, rel=0.1)
    assert scan_limits(found)["batch_size"] == runs[1][1]


def test_only_the_fragments_that_are_read_count(tmp_path: Path) -> None:
    found = write(tmp_path / "t", {"b": [b"x"] * 100}, {"b": [cell() for _ in range(100)]})
    first, second = found.get_fragments()
    assert scan_limits(found, fragments=[first]) == {}
    assert scan_limits(found, fragments=[second])["batch_size"] < 100


def test_fragments_of_a_version_are_examined_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = [cell() for _ in range(3)], [cell(100) for _ in range(500)]
    found = write(tmp_path / "t", {"b": large}, {"b": small})
    first = scan_limits(found), batch_rows(found), split_scan(found)[0][1]
    examined: list[int] = []
    metadata: Any = lance.LanceFragment.metadata

    def read(fragment: lance.LanceFragment) -> Any:
        examined.append(fragment.fragment_id)
        return metadata.fget(fragment)

    monkeypatch.setattr(lance.LanceFragment, "metadata", property(read))
    again = lance.dataset(found.uri)
    assert batch_rows(again) == first[1]
    assert examined == []
    assert (scan_limits(again), split_scan(again)[0][1]) == (first[0], first[2])
    added = lance.write_dataset(pa.table({"id": [9], "b": [cell(10 * CELL)]}), found, mode="append")
    assert batch_rows(added) < first[1]
    assert set(examined) == {0, 1, 2}


def test_a_table_that_is_created_again_is_examined_again(tmp_path: Path) -> None:
    place = tmp_path / "t"
    assert batch_rows(write(place, {"b": [cell(100)] * 500})) == BATCH_ROWS
    shutil.rmtree(place)
    created = write(place, {"b": [cell()] * 3})
    assert created.version == 1
    assert batch_rows(created) < 100


def test_a_search_that_finds_few_rows_keeps_the_batches_of_its_vectors(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(400, np.float32)), 2)
    found = write(tmp_path / "t", {"v": vectors, "b": [cell() for _ in range(200)]})
    assert scan_limits(found, found=10) == {}
    assert scan_limits(found, found=10, most_rows=BATCH_ROWS) == {"batch_size": BATCH_ROWS}
    assert scan_limits(found, found=150)["batch_size"] < 100


# -- operations ------------------------------------------------------------------------------------


def pictures_of(count: int) -> pa.Table:
    values = [cell() for _ in range(count)]
    return pa.table({"id": pa.array(range(count), pa.int64()), "b": values})


def test_a_query_streams_large_rows_in_small_batches(namespace: MemoryNamespace) -> None:
    rows = pictures_of(200)
    make(namespace, rows)
    request = api.QueryTableRequest.model_validate({"id": TABLE, "k": 0, "vector": {}})
    batches = list(namespace.query_table_reader(request))
    assert max(batch.nbytes for batch in batches) < 1.5 * BATCH_BYTES
    assert pa.Table.from_batches(batches).equals(rows)


def test_a_compaction_reads_large_rows_in_small_batches(namespace: MemoryNamespace) -> None:
    rows = pictures_of(200)
    make(namespace, rows.slice(0, 100))
    lance.write_dataset(rows.slice(100), dataset(namespace).uri, mode="append")
    _, options = plan_compaction(dataset(namespace), {"target_rows_per_fragment": 1000})
    assert options["batch_size"] == pytest.approx(BATCH_BYTES / CELL, rel=0.1)
    assert options["io_buffer_size"] == READ_AHEAD
    with_own, own = plan_compaction(dataset(namespace), {"batch_size": 7})
    assert (own["batch_size"], with_own.num_tasks()) == (7, 1)
    assert compact(namespace.tables.load_by_id(TABLE)).fragments_added == 1
    assert dataset(namespace).to_table().equals(rows)


def test_a_dry_run_of_a_compaction_reads_no_rows(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([[cell(), cell()]], pa.schema([blob]))
    make(namespace, rows)
    lance.write_dataset(rows, dataset(namespace).uri, mode="append")
    table = namespace.tables.load_by_id(TABLE)
    expected = compact(table, dry_run=True)
    assert (expected.fragments_removed, expected.fragments_added) == (2, None)
    monkeypatch.setattr(lance.LanceDataset, "scanner", raiser(AssertionError("rows are read")))
    assert compact(table, dry_run=True) == expected


def test_a_compaction_of_small_rows_has_no_limits(namespace: MemoryNamespace) -> None:
    make(namespace)
    lance.write_dataset(dataset(namespace).to_table(), dataset(namespace).uri, mode="append")
    assert plan_compaction(dataset(namespace), {"target_rows_per_fragment": 1000})[1] == {
        "target_rows_per_fragment": 1000
    }


def test_a_backfill_reads_large_rows_in_small_batches(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(namespace, pictures_of(200))
    given = []
    scanner = lance.LanceFragment.scanner

    def recorded(self: Any, **arguments: Any) -> Any:
        given.append(arguments)
        return scanner(self, **arguments)

    add(namespace, {"name": "full", "computed": "b IS NOT NULL"})
    monkeypatch.setattr(lance.LanceFragment, "scanner", recorded)
    backfill(namespace, "full")
    assert [each["batch_size"] for each in given] == [pytest.approx(BATCH_BYTES / CELL, rel=0.1)]
    assert set(dataset(namespace).to_table(columns=["full"])["full"].to_pylist()) == {True}
