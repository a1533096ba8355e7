"""Rows in buffers that Lance's Rust code cannot read where they are: copied, and those only."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lance_bridge.dataset.arrow_compat import align, align_batch
from lance_bridge.dataset.rows import Rows

from .arrow_data import FORMS, LEAVES, make_array, place_at, to_stream
from .memory_catalog import MemoryNamespace, MemoryServer
from .writing import create, insert, make, merge, rows

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#rows-of-a-request")]

PRICES = pa.table(
    {
        "id": [1, 2, 3],
        "price": pa.array([Decimal("1.23"), None, Decimal("-4.56")], pa.decimal128(38, 2)),
    }
)
DECIMAL = pa.decimal128(38, 2)
NESTED = [
    pa.list_(DECIMAL),
    pa.large_list(pa.struct([("d", pa.decimal256(60, 2)), ("s", pa.string())])),
    pa.list_(DECIMAL, 2),
    pa.struct([("d", DECIMAL), ("i", pa.struct([("l", pa.list_(pa.int64()))]))]),
    pa.map_(DECIMAL, pa.list_(pa.float64()), keys_sorted=True),
    pa.dictionary(pa.int16(), DECIMAL, ordered=True),
    pa.list_(pa.dictionary(pa.int8(), pa.string())),
    pa.opaque(pa.list_(DECIMAL), "a", "b"),
    pa.struct([]),
]


@pytest.mark.parametrize("write", [create, insert, merge])
@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("remainder", [0, 8])
def test_decimals_arrive_wherever_they_are_in_memory(
    namespace: MemoryNamespace, server: MemoryServer, form: str, write: Any, remainder: int
) -> None:
    if write is not create:
        make(namespace, PRICES.schema.empty_table())
    write(namespace, FORMS[form](place_at(to_stream(PRICES), remainder)))
    assert rows(server) == PRICES.to_pylist()


@pytest.mark.parametrize("remainder", [1, 2, 4, 8])
def test_arrays_are_aligned_at_any_address_and_in_any_slice(remainder: int) -> None:
    for kind in (*LEAVES, *NESTED):
        array = misaligned(make_array(kind, 20, 0.3, random.Random(remainder)), remainder)
        for start, length in ((0, 20), (3, 9), (8, 12), (19, 1), (5, 0)):
            part = array.slice(start, length)
            aligned = align(part)
            aligned.validate(full=True)
            assert aligned.type.equals(part.type, check_metadata=True)
            assert aligned.to_pylist() == part.to_pylist()
            assert align(aligned) is aligned


def test_what_is_aligned_is_not_copied() -> None:
    batch = pa.record_batch({"d": PRICES["price"].chunk(0), "l": [[1], None, [2, 3]]})
    assert align_batch(batch) is batch
    assert align_batch(batch.slice(1)).column(0).buffers()[1].address == (
        batch.column(0).buffers()[1].address
    )


def test_only_what_is_not_aligned_is_copied() -> None:
    parts = [PRICES["id"].chunk(0), PRICES["price"].chunk(0)]
    both = pa.StructArray.from_arrays(parts, ["id", "price"])
    table = pa.table({"id": parts[0], "price": parts[1], "both": both})
    copied = set()
    for remainder in (0, 8):
        stream = place_at(to_stream(table), remainder)
        first = pa.py_buffer(stream).address
        inside = range(first, first + len(stream))
        [batch] = Rows.from_data(stream).reader()
        number, price = (batch.column(i).buffers()[1].address for i in range(2))
        nested = [batch.column("both").field(i).buffers()[1].address for i in range(2)]
        assert number in inside
        assert nested[0] in inside
        copied |= {i for i, each in enumerate((price, nested[1])) if each not in inside}
    assert copied == {0, 1}  # at one of the two places: 16 bytes are the period


def test_of_a_slice_no_more_is_copied_than_it_holds() -> None:
    numbers = pa.array([Decimal(i) for i in range(10_000)], DECIMAL)
    lists = pa.ListArray.from_arrays(pa.array(range(0, 10_001, 2), pa.int32()), numbers)
    for whole in (misaligned(numbers, 8), misaligned(lists, 8)):
        before = pa.total_allocated_bytes()
        parts = [align(whole.slice(start, 10)) for start in range(0, len(whole), 10)]
        assert pa.total_allocated_bytes() - before < 2 * whole.nbytes + 200 * len(parts)


def test_empty_lists_get_the_offsets_that_may_be_left_out(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    def empty(kind: pa.DataType, *more: Any, children: list[pa.Array] | None = None) -> pa.Array:
        return pa.Array.from_buffers(kind, 0, [None, None, *more], children=children)

    texts = empty(pa.string(), pa.py_buffer(b""))
    inner = empty(pa.list_(pa.int64()), children=[pa.array([], pa.int64())])
    inside = {"texts": texts, "lists": inner, "pairs": empty_map()}
    offsets = pa.array([0, 0, 0], pa.int32())
    columns = {k: pa.ListArray.from_arrays(offsets, v) for k, v in inside.items()}
    create(namespace, pa.table(columns))
    assert rows(server) == [{"texts": [], "lists": [], "pairs": []}] * 2


def empty_map() -> pa.Array:
    kind = pa.map_(pa.string(), pa.int64())
    entries = pa.array([], pa.struct([pa.field("key", pa.string(), False), ("value", pa.int64())]))
    return pa.Array.from_buffers(kind, 0, [None, None], children=[entries])


def misaligned(array: pa.Array, remainder: int) -> pa.Array:
    """Return an array as read from bytes at an address that is no multiple of 64."""
    stream = place_at(to_stream(pa.table({"c": array})), remainder)
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch().column(0)
