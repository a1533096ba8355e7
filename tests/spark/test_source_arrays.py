"""Arrays between Spark and Lance, without a session: what is copied, and what nulls become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge_spark.source import arrays

pytestmark = pytest.mark.quick

VECTOR = pa.list_(pa.float32(), 2)
LISTS = pa.list_(pa.float32())


def batch(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, kind)})


def stored(values: list[Any], given: pa.DataType, kind: pa.DataType) -> list[Any]:
    """Return values as a table keeps them that has a column of ``kind``."""
    schema = pa.schema([pa.field("v", kind)])
    [made] = arrays.ToLance(iter([batch(values, given)]), schema, {"v": "v"})
    made.validate(full=True)
    assert made.schema == schema
    found: list[Any] = made.column(0).to_pylist()
    return found


def test_vectors_go_both_ways_without_a_copy() -> None:
    values = pa.array([1.0, 2.0, 3.0, 4.0], pa.float32())
    fixed = pa.FixedSizeListArray.from_arrays(values, type=VECTOR)
    lists = arrays.to_spark(pa.record_batch({"v": fixed}), pa.schema([("v", LISTS)])).column(0)
    assert lists.values.buffers()[1].address == values.buffers()[1].address
    schema = pa.schema([("v", VECTOR)])
    [made] = arrays.ToLance(iter([pa.record_batch({"v": lists})]), schema, {"v": "v"})
    assert made.column(0).values.buffers()[1].address == values.buffers()[1].address


def test_a_slice_of_vectors_is_read_from_where_it_begins() -> None:
    fixed = pa.array([[1, 2], [3, 4], [5, 6]], VECTOR).slice(1)
    found = arrays.to_spark(pa.record_batch({"v": fixed}), pa.schema([("v", LISTS)]))
    assert found.column(0).to_pylist() == [[3, 4], [5, 6]]


def test_a_slice_of_lists_is_stored_from_where_it_begins() -> None:
    lists = pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]], LISTS).slice(1)
    schema = pa.schema([("v", VECTOR)])
    [made] = arrays.ToLance(iter([pa.record_batch({"v": lists})]), schema, {"v": "v"})
    assert made.column(0).to_pylist() == [None, [3.0, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize("values", [[None], [None, None], [[1.0, 2.0]], [None, [1.0, 2.0]]])
def test_nulls_among_vectors_stay(values: list[Any]) -> None:
    assert stored(values, LISTS, VECTOR) == values


def test_vectors_inside_of_structs_and_lists_are_stored() -> None:
    inside = [{"a": [1.0, 2.0]}, None, {"a": None}]
    given, kind = pa.struct([("a", LISTS)]), pa.struct([("a", VECTOR)])
    assert stored(inside, given, kind) == inside
    several = [[[1.0, 2.0], [3.0, 4.0]], [], None, [None]]
    assert stored(several, pa.list_(LISTS), pa.list_(VECTOR)) == several


def test_parts_of_a_struct_are_stored_by_name() -> None:
    given = pa.struct([("b", pa.string()), ("a", pa.int32())])
    kind = pa.struct([("a", pa.int64()), ("b", pa.large_string())])
    assert stored([{"b": "x", "a": 1}], given, kind) == [{"a": 1, "b": "x"}]


def test_a_value_that_the_column_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Column 'v' cannot be stored"):
        stored([256], pa.int16(), pa.uint8())


def test_null_in_a_column_that_must_not_be_null_is_refused() -> None:
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    rows = arrays.ToLance(iter([batch([1, None], pa.int64())]), schema, {"v": "v"})
    with pytest.raises(InvalidInputError, match="Column 'v' must not be null"):
        next(rows)


def test_decimals_are_copied_to_where_lance_can_read_them() -> None:
    kind = pa.decimal128(10, 2)
    buffer = pa.py_buffer(b"\x00" * 8 + b"\x01" + b"\x00" * 15 + b"\x00" * 8)
    unaligned = pa.Array.from_buffers(kind, 1, [None, buffer.slice(8, 16)])
    if unaligned.buffers()[1].address % 16 == 0:
        unaligned = pa.Array.from_buffers(kind, 1, [None, buffer.slice(0, 16)])
    assert unaligned.buffers()[1].address % 16
    schema = pa.schema([("v", kind)])
    [made] = arrays.ToLance(iter([pa.record_batch({"v": unaligned})]), schema, {"v": "v"})
    assert made.column(0).buffers()[1].address % 16 == 0


def test_lists_that_are_all_empty_get_the_offsets_that_lance_reads() -> None:
    # As Spark 4.1 hands them over: a list's texts without any have no offsets at all.
    texts = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    offsets = pa.py_buffer(b"\x00" * 12)
    kind = pa.list_(pa.string())
    lists = pa.Array.from_buffers(kind, 2, [None, offsets], children=[texts])
    schema = pa.schema([("v", kind)])
    [made] = arrays.ToLance(iter([pa.record_batch({"v": lists})]), schema, {"v": "v"})
    assert made.column(0).to_pylist() == [[], []]
    assert made.column(0).values.buffers()[1].size >= 4


def test_batches_without_rows_are_left_out() -> None:
    schema = pa.schema([("v", pa.string())])
    given = [batch([], pa.string()), batch(["x"], pa.string()), batch([], pa.string())]
    assert [b.num_rows for b in arrays.ToLance(iter(given), schema, {"v": "v"})] == [1]
