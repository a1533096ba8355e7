"""Blobs in Spark: BINARY in every statement, and never a description without bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_bridge_spark
from lance_bridge import blobs

from .stored_tables import StoredTable, stored_table

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#blobs")]

VALUES = [b"first", b"", None, b"\x00" * 300_000]
_OLD = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


def _rows(field: pa.Field, values: pa.Array) -> pa.Table:
    ids = pa.array(range(4), pa.int64())
    return pa.table([ids, values], schema=pa.schema([pa.field("id", pa.int64()), field]))


KINDS: dict[str, tuple[pa.Table, str]] = {
    "key in the metadata, 2.0": (_rows(_OLD, pa.array(VALUES, pa.large_binary())), "2.0"),
    "key in the metadata, 2.1": (_rows(_OLD, pa.array(VALUES, pa.large_binary())), "2.1"),
    "extension type": (_rows(lance.blob_field("b"), lance.blob_array(VALUES)), "2.2"),
}


@pytest.fixture(params=KINDS)
def table(spark: Any, catalog: str, request: pytest.FixtureRequest) -> StoredTable:
    """A table with blobs in the column `b`."""
    rows, version = KINDS[request.param]
    return stored_table(spark, catalog, rows, data_storage_version=version)


def _stored(table: StoredTable) -> dict[int, bytes | None]:
    """Return the bytes by id, as pylance reads them."""
    found = table.dataset().to_table(columns=["id", "b"], blob_handling="all_binary")
    return dict(zip(found["id"].to_pylist(), found["b"].to_pylist(), strict=True))


EXPECTED = dict(enumerate(VALUES))


def test_reads_have_the_bytes(table: StoredTable) -> None:
    for local in ("0", "10000"):
        table.spark.conf.set("spark.lance_bridge.local.rows", local)
        assert dict(table.rows("SELECT id, b FROM {t}")) == EXPECTED
        assert table.rows("SELECT count(b), max(length(b)) FROM {t}") == [(3, 300_000)]
        assert table.rows("SELECT id FROM {t} WHERE b IS NULL") == [(2,)]
        assert table.rows("SELECT id FROM {t} WHERE b = X'6669727374'") == [(0,)]
    table.spark.conf.unset("spark.lance_bridge.local.rows")
    frame = lance_bridge_spark.read(table.spark, table.name, with_row_id=True)
    ids = [row["_rowid"] for row in frame.orderBy("id").collect()]
    taken = lance_bridge_spark.take(table.spark, table.name, ids[::-1]).collect()
    assert [row["b"] for row in taken] == VALUES[::-1]


CHANGES: dict[str, Callable[[StoredTable], Any]] = {
    "UPDATE": lambda t: t.sql("UPDATE {t} SET id = 13 WHERE id = 3"),
    "MERGE": lambda t: t.sql(
        "MERGE INTO {t} t USING (SELECT 3L AS k) s ON t.id = s.k "
        "WHEN MATCHED THEN UPDATE SET id = 13"
    ),
    "update": lambda t: lance_bridge_spark.update(t.spark, t.name, {"id": "id + 10"}, "id = 3"),
    "merge_into": lambda t: lance_bridge_spark.merge_into(
        t.spark.sql("SELECT 3L AS id"),
        t.name,
        on=["id"],
        when_matched_update={"id": "target.id + 10"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_another_column_keeps_the_bytes(table: StoredTable, change: str) -> None:
    CHANGES[change](table)
    assert _stored(table) == {0: b"first", 1: b"", 2: None, 13: VALUES[3]}


def test_bytes_are_written_into_the_column(table: StoredTable) -> None:
    table.sql("INSERT INTO {t} VALUES (5, X'AABB'), (6, NULL), (7, X'')")
    table.sql("UPDATE {t} SET b = X'01' WHERE id = 0")
    lance_bridge_spark.update(table.spark, table.name, {"b": "X'02'"}, "id = 1")
    table.sql("DELETE FROM {t} WHERE b = X'AABB'")
    expected = {0: b"\x01", 1: b"\x02", 2: None, 3: VALUES[3], 6: None, 7: b""}
    assert _stored(table) == expected
    table.sql("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id < 4")
    assert _stored(table) == {key: value for key, value in expected.items() if key < 4}


def _view(table: StoredTable, copy: str) -> None:
    lance_bridge_spark.create_materialized_view(table.spark, copy, f"SELECT * FROM {table.name}")


COPIES: dict[str, Callable[[StoredTable, str], Any]] = {
    "CREATE TABLE AS SELECT": lambda t, copy: t.sql(f"CREATE TABLE {copy} AS SELECT * FROM {{t}}"),
    "DataFrame": lambda t, copy: lance_bridge_spark.write(
        lance_bridge_spark.read(t.spark, t.name), copy
    ),
    "materialized view": _view,
}


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_is_a_column_of_blobs_with_the_same_bytes(table: StoredTable, copy: str) -> None:
    name = f"{table.name}_copy"
    COPIES[copy](table, name)
    copied = StoredTable(table.spark, name)
    assert _stored(copied) == EXPECTED
    assert blobs.is_blob(copied.dataset().schema.field("b"))


def test_files_of_spark_have_the_bytes(table: StoredTable, tmp_path: Any) -> None:
    table.spark.table(table.name).write.parquet(str(tmp_path / "files"))
    assert dict(map(tuple, table.spark.read.parquet(str(tmp_path / "files")).collect())) == EXPECTED


def test_a_column_is_computed_from_the_bytes(table: StoredTable) -> None:
    lance_bridge_spark.backfill(table.spark, table.name, "size", "length(b)")
    assert dict(table.rows("SELECT id, size FROM {t}")) == {0: 5, 1: 0, 2: None, 3: 300_000}
    assert _stored(table) == EXPECTED
