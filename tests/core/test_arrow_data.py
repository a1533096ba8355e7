"""Arrow data of any type: equal after every change or refused, and in the forms that are shown."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import arrow_types
import lance_namespace as api
import pyarrow as pa
import pytest
from arrow_types import SHAPES, plain, wide
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace.errors import (
    InvalidInputError,
    TableSchemaValidationError,
    UnsupportedOperationError,
)

from lance_bridge.arrow_types import PLAIN_TYPES, plain_type
from lance_bridge.arrow_values import to_values
from lance_bridge.dataset.arrow_compat import align, align_batch
from lance_bridge.dataset.rows import Rows
from lance_bridge.values import JsonText, to_json_value, to_text

from .arrow_data import FORMS, LEAVES, make_array, make_table, place_at, to_stream, types
from .memory_catalog import TABLE, MemoryNamespace, MemoryServer, start_server
from .table_data import create, dataset, insert, make, merge, rows

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "operations.md#rows-of-a-request",
        "operations.md#insertintotable",
        "operations.md#mergeinsertintotable",
        "cli.md#output",
        "common.md#published-columns",
    ),
]

OPERATIONS: dict[str, Callable[[MemoryNamespace, Any], None]] = {
    "create": create,
    "insert": insert,
    "overwrite": partial(insert, mode="Overwrite"),
    "merge": partial(merge, on="n"),
}
NOT_REPLACED = "blob_by_metadata_in_a_list"
"""A column of which Lance takes no other rows in place of all."""
Change = Callable[[MemoryNamespace, pa.Table], Any]


@dataclass(frozen=True)
class Case:
    """One write of random data."""

    kind: pa.DataType
    lengths: tuple[int, ...]
    nulls: float
    seed: int
    remainder: int
    options: tuple[tuple[str, Any], ...]
    form: str
    operation: str


CASES = st.builds(
    Case,
    kind=types(),
    lengths=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    nulls=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**32),
    remainder=st.sampled_from([0, 1, 2, 4, 8, 24, 40]),
    options=st.fixed_dictionaries(
        {
            "compression": st.sampled_from([None, "lz4", "zstd"]),
            "use_legacy_format": st.booleans(),
            "emit_dictionary_deltas": st.booleans(),
        }
    ).map(lambda options: tuple(options.items())),
    form=st.sampled_from(sorted(FORMS)),
    operation=st.sampled_from(list(OPERATIONS)),
)


@pytest.mark.parametrize(
    "settled",
    [
        pytest.param(examples(50), id="some"),
        pytest.param(
            settings(max_examples=5000, suppress_health_check=list(HealthCheck)),
            marks=pytest.mark.slow,
            id="many",
        ),
    ],
)
def test_data_arrives_with_equal_values_or_is_refused(settled: Callable[[Any], Any]) -> None:
    settled(given(CASES)(check_write))()


def check_write(case: Case) -> None:
    """Write to a new table, and compare what it holds then."""
    wanted = make_table(case.kind, case.lengths, case.nulls, case.seed)
    stream = to_stream(wanted, **dict(case.options))
    data = FORMS[case.form](place_at(stream, case.remainder))
    server = start_server("any")
    with TemporaryDirectory() as root:
        namespace = MemoryNamespace(uri="any", root=root)
        try:
            if case.operation != "create":
                create(namespace, pa.RecordBatchReader.from_batches(wanted.schema, []))
            OPERATIONS[case.operation](namespace, data)
        except InvalidInputError as error:
            check_refusal(str(error), case, wanted)
            if case.operation == "create":
                assert not server.tables
                assert not [path for path in Path(root).rglob("*") if path.is_file()]
            return
        written = dataset(server).to_table()
    assert repr(read_rows(written)) == repr(read_rows(wanted))  # -0.0 is equal to 0.0


def check_refusal(message: str, case: Case, wanted: pa.Table) -> None:
    if "without a batch" in message:
        assert not wanted.to_batches()
    elif "must not be null" in message:
        assert case.nulls
        assert "'c'" in message
    elif "non-null in the schema" in message or "unmasked nulls" in message:
        # Below a list that is null Lance finds nulls, too, and names the field that has them.
        assert case.nulls
        assert "not null" in str(case.kind)
        assert "f0" in message
    else:
        assert f"column 'c' of type {case.kind}:" in message


def read_rows(table: pa.Table) -> list[tuple[int, Any]]:
    """Return all rows by their number, for a merge does not keep their order."""
    pairs = zip(table.column("n").to_pylist(), table.column("c").to_pylist(), strict=True)
    return sorted(pairs, key=lambda pair: pair[0])


# -- layouts that pyarrow does not write -----------------------------------------------------------


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float32(), pa.decimal128(38, 2), pa.decimal256(60, 2)], ids=str
)
def test_big_endian_streams_are_read(
    namespace: MemoryNamespace, kind: pa.DataType, form: str
) -> None:
    values = [Decimal("1.00"), Decimal("-7.00"), None]
    little = pa.array(values if pa.types.is_decimal(kind) else [1, -7, None], kind)
    valid, numbers = little.buffers()
    size = kind.bit_width // 8
    swapped = [numbers[i * size : (i + 1) * size].to_pybytes()[::-1] for i in range(len(values))]
    big = pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(b"".join(swapped))])
    data = declare_big_endian(to_stream(pa.table({"c": big})))
    create(namespace, FORMS[form](place_at(data, 8)))
    written = dataset(namespace).to_table()
    assert written == pa.table({"c": little})


def declare_big_endian(stream: bytes) -> bytes:
    """Return a stream of one column whose schema says that its numbers are big-endian.

    The schema is a Flatbuffers table, whose first field is the endianness, 1 for big. pyarrow
    leaves it out for little. Here it is set to be where another 1 is: the number of columns.
    """
    data = bytearray(stream)

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", data, at)[0])

    def fields_of(table: int) -> int:
        return table - int(struct.unpack_from("<i", data, table)[0]) + 4

    def field_of(table: int, number: int) -> int:
        offset = struct.unpack_from("<H", data, fields_of(table) + 2 * number)[0]
        return table + int(offset)

    schema = follow(field_of(follow(8), 2))
    columns = follow(field_of(schema, 1))
    assert struct.unpack_from("<I", data, columns)[0] == 1
    struct.pack_into("<H", data, fields_of(schema), columns - schema)
    return bytes(data)


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("values", [["a", "b", "c"], [Decimal(1), Decimal(2), Decimal(3)]])
@pytest.mark.parametrize("is_delta", [False, True])
def test_dictionaries_that_grow_or_change_are_read(
    namespace: MemoryNamespace, values: list[Any], is_delta: bool, form: str
) -> None:
    is_text = isinstance(values[0], str)
    kind = pa.string() if is_text else pa.decimal128(38, 2)
    words = [pa.array(values[:2], kind), pa.array(values if is_delta else values[::-1], kind)]
    chunks = [pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), w) for w in words]
    table = pa.table({"c": pa.chunked_array(chunks), "n": pa.chunked_array([[0, 1, 2], [3, 4, 5]])})
    stream = to_stream(table, emit_dictionary_deltas=True)
    with pa.ipc.open_stream(stream) as reader:
        reader.read_all()
        assert reader.stats.num_dictionary_deltas == is_delta
    data = FORMS[form](place_at(stream, 8))
    if not is_text:
        with pytest.raises(InvalidInputError, match=r"column 'c' of type dictionary<values=dec"):
            create(namespace, data)
        assert not namespace.server.tables
        return
    create(namespace, data)
    written = dataset(namespace).to_table()
    assert read_rows(written) == read_rows(table)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_an_unregistered_extension_type_arrives_with_its_name(
    namespace: MemoryNamespace, form: str
) -> None:
    metadata = {"ARROW:extension:name": "example.money", "ARROW:extension:metadata": "EUR"}
    field = pa.field("c", pa.decimal128(38, 2), metadata=metadata)
    table = pa.table({"c": [Decimal("1.23"), None]}, schema=pa.schema([field]))
    data = FORMS[form](place_at(to_stream(table), 8))
    create(namespace, data)
    written = dataset(namespace).to_table()
    assert written == table
    assert written.schema.field("c").metadata == field.metadata


# -- what Lance would lose -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string(), 2),
        pa.list_(pa.struct([("a", pa.int8())]), 2),
        pa.list_(pa.dictionary(pa.int8(), pa.string()), 2),
        pa.list_(pa.list_(pa.uuid(), 2)),
        pa.struct([]),
        pa.map_(pa.string(), pa.list_(pa.struct([]))),
        pa.month_day_nano_interval(),
        pa.decimal32(5, 2),
        pa.decimal64(10, 2),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.sparse_union([pa.field("a", pa.int32())]),
        pa.list_(pa.struct([("x", pa.decimal32(5, 2))])),
    ],
    ids=str,
)
def test_a_type_that_lance_cannot_store_or_would_lose_is_refused_by_name(
    namespace: MemoryNamespace, kind: pa.DataType
) -> None:
    schema = pa.schema([("n", pa.int8()), ("c", kind)])
    empty = pa.RecordBatchReader.from_batches(schema, [])
    with pytest.raises(InvalidInputError) as caught:
        create(namespace, empty)
    assert f"Lance cannot store column 'c' of type {kind}: " in str(caught.value)
    assert "/home/" not in str(caught.value)
    assert not namespace.server.effects


# -- rows in buffers that Lance's Rust code cannot read where they are: copied, and those only -----

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
    namespace: MemoryNamespace, form: str, write: Any, remainder: int
) -> None:
    if write is not create:
        make(namespace, PRICES.schema.empty_table())
    write(namespace, FORMS[form](place_at(to_stream(PRICES), remainder)))
    assert rows(namespace) == PRICES.to_pylist()


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


def test_empty_lists_get_the_offsets_that_may_be_left_out(namespace: MemoryNamespace) -> None:
    def empty(kind: pa.DataType, *more: Any, children: list[pa.Array] | None = None) -> pa.Array:
        return pa.Array.from_buffers(kind, 0, [None, None, *more], children=children)

    texts = empty(pa.string(), pa.py_buffer(b""))
    inner = empty(pa.list_(pa.int64()), children=[pa.array([], pa.int64())])
    inside = {"texts": texts, "lists": inner, "pairs": empty_map()}
    offsets = pa.array([0, 0, 0], pa.int32())
    columns = {k: pa.ListArray.from_arrays(offsets, v) for k, v in inside.items()}
    create(namespace, pa.table(columns))
    assert rows(namespace) == [{"texts": [], "lists": [], "pairs": []}] * 2


def empty_map() -> pa.Array:
    kind = pa.map_(pa.string(), pa.int64())
    entries = pa.array([], pa.struct([pa.field("key", pa.string(), False), ("value", pa.int64())]))
    return pa.Array.from_buffers(kind, 0, [None, None], children=[entries])


def misaligned(array: pa.Array, remainder: int) -> pa.Array:
    """Return an array as read from bytes at an address that is no multiple of 64."""
    stream = place_at(to_stream(pa.table({"c": array})), remainder)
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch().column(0)


# -- changes of a table ----------------------------------------------------------------------------


def _insert(namespace: MemoryNamespace, rows: pa.Table, mode: str = "append") -> Any:
    return namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE, mode=mode), rows)


def _merge(namespace: MemoryNamespace, rows: pa.Table, **more: Any) -> Any:
    request = api.MergeInsertIntoTableRequest(
        id=TABLE, on=["id"], when_matched_update_all=True, **more
    )
    return namespace.merge_insert_into_table(request, rows)


def _delete(namespace: MemoryNamespace, predicate: str) -> Any:
    return namespace.delete_from_table(api.DeleteFromTableRequest(id=TABLE, predicate=predicate))


def _update(namespace: MemoryNamespace, *updates: list[str]) -> Any:
    return namespace.update_table(api.UpdateTableRequest(id=TABLE, updates=list(updates)))


def _overwrite(namespace: MemoryNamespace, rows: pa.Table) -> None:
    if NOT_REPLACED in rows.schema.names:
        with pytest.raises(TableSchemaValidationError, match=r"`blob_by_metadata_in_a_list`"):
            _insert(namespace, rows, "overwrite")
        rows = rows.drop_columns([NOT_REPLACED])
        request = api.AlterTableDropColumnsRequest(id=TABLE, columns=[NOT_REPLACED])
        namespace.alter_table_drop_columns(request)
    _insert(namespace, rows, "overwrite")


def _insert_twice(namespace: MemoryNamespace, rows: pa.Table) -> None:
    _insert(namespace, rows)
    _delete(namespace, "true")
    _insert(namespace, rows)


def _merge_nothing(namespace: MemoryNamespace, rows: pa.Table) -> None:
    _delete(namespace, "true")
    _merge(namespace, rows)
    _insert(namespace, rows)


def _update_several(namespace: MemoryNamespace, _: pa.Table) -> None:
    _update(namespace, ["n", "1"], ["id", "id"])
    with pytest.raises(UnsupportedOperationError, match="Update them one by one"):
        _update(namespace, ["n", "id + 1"], ["id", "id"])


CHANGES: dict[str, Change] = {
    "insert": _insert_twice,
    "overwrite": _overwrite,
    "update": lambda ns, _: _update(ns, ["n", "n"]),
    "update of several": _update_several,
    "delete": lambda ns, _: _delete(ns, "id < 0"),
    "merge": lambda ns, rows: _merge(ns, rows, when_not_matched_insert_all=True),
    "merge into nothing": _merge_nothing,
    "merge of some columns": lambda ns, rows: _merge(ns, rows.select(["id", "n"])),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_keeps_the_values_of_every_type(
    namespace: MemoryNamespace, server: MemoryServer, change: str, shape: str
) -> None:
    rows = wide([shape])
    make(namespace, rows)
    assert different_columns(rows, server) == {}
    CHANGES[change](namespace, rows)
    assert different_columns(rows, server) == {}


def different_columns(expected: pa.Table, server: MemoryServer) -> dict[str, str]:
    """Return the columns of the table whose values differ from the expected ones."""
    found = dataset(server).to_table(blob_handling="all_binary").sort_by("id")
    pairs = {name: (plain(expected[name]), plain(found[name])) for name in found.schema.names}
    assert set(expected.schema.names) - set(pairs) <= {NOT_REPLACED}
    return {name: f"{one} != {other}"[:500] for name, (one, other) in pairs.items() if one != other}


LAST, FIRST = 2**63 - 1, -(2**63)
ID = "0f0e0d0c-0b0a-0908-0706-050403020100"
WITH_PARAMETERS = (
    pa.types.is_timestamp, pa.types.is_time, pa.types.is_duration, pa.types.is_decimal,
    pa.types.is_fixed_size_binary, pa.types.is_dictionary, pa.types.is_nested,
)  # fmt: skip


def extension(kind: Any, values: list[Any]) -> pa.Array:
    """Return an array of an extension type, of the values of its storage."""
    return kind.wrap_array(pa.array(values, kind.storage_type))


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.timestamp("s"), LAST, "+292277026596-12-04T15:30:07"),
        (pa.timestamp("ms"), FIRST, "-292275055-05-16T16:47:04.192000"),
        (pa.timestamp("us"), LAST, "+294247-01-10T04:00:54.775807"),
        (pa.timestamp("ns"), LAST, "2262-04-11T23:47:16.854775807"),
        (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001"),
        (pa.timestamp("ns"), 1000, "1970-01-01T00:00:00.000001"),
        (pa.timestamp("us"), 0, "1970-01-01T00:00:00"),
        (pa.timestamp("us", "UTC"), LAST, "+294247-01-10T04:00:54.775807+00:00"),
        (pa.timestamp("s", "Europe/Berlin"), 300_000_000_000, "+11476-08-15T07:20:00+02:00"),
        (pa.timestamp("s", "Europe/Berlin"), 300_010_000_000, "+11476-12-09T00:06:40+01:00"),
        (pa.timestamp("s", "America/New_York"), -62_135_596_800, "0000-12-31T19:03:58-04:56:02"),
        (pa.timestamp("s", "-03:30"), 0, "1969-12-31T20:30:00-03:30"),
        (pa.timestamp("s", "Nowhere/Land"), 0, "1970-01-01T00:00:00+00:00"),
        (pa.date32(), 2**31 - 1, "+5881580-07-11"),
        (pa.date32(), -(2**31), "-5877641-06-23"),
        (pa.date32(), -719_163, "0000-12-31"),
        (pa.date64(), 86_400_000, "1970-01-02"),
        (pa.date64(), 86_400_001, "1970-01-02T00:00:00.001000"),
        (pa.time32("s"), 86_399, "23:59:59"),
        (pa.time32("ms"), -1, "-1 ms"),
        (pa.time64("ns"), 86_399_999_999_999, "23:59:59.999999999"),
        (pa.time64("us"), 86_400_000_000, "86400000000 us"),
        (pa.duration("ns"), LAST, "9223372036.854775807"),
        (pa.duration("s"), LAST, "9223372036854775807"),
    ],
)  # fmt: skip
def test_times_are_exact(kind: pa.DataType, number: int, text: str) -> None:
    storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    array = pa.array([None, number], storage).view(kind)
    assert to_values(array) == [None, text]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "America/New_York"])
@examples(100)
@given(st.integers(-62_100_000_000_000_000, 253_400_000_000_000_000))
def test_times_that_python_has_are_as_python_writes_them(zone: str | None, number: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=number)
    local = moment.astimezone(ZoneInfo(zone)) if zone else moment.replace(tzinfo=None)
    assert to_values(pa.array([number], pa.timestamp("us", zone))) == [local.isoformat()]


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (extension(pa.uuid(), [UUID(ID).bytes, None]), [ID, None]),
        (extension(pa.bool8(), [0, 1, 5, None]), [False, True, True, None]),
        (extension(pa.opaque(pa.int32(), "a", "b"), [1, None]), [1, None]),
        (extension(pa.fixed_shape_tensor(pa.int8(), [2, 1]), [[1, 2], None]), [[1, 2], None]),
        (pa.array([1, None], pa.duration("ms")), [0.001, None]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)), [Decimal("1.50"), None]),
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([7, None])), [7, 7, None]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_every_type_has_values(array: pa.Array, values: list[Any]) -> None:
    assert to_values(array) == values


@pytest.mark.parametrize(
    ("name", "stored", "value"),
    [
        ("arrow.uuid", pa.array([UUID(ID).bytes], pa.binary(16)), ID),
        ("lance.bfloat16", pa.array([b"\xc0\x3f"], pa.binary(2)), 1.5),
        ("arrow.json", pa.array(["[1]"]), "[1]"),
        ("arrow.uuid", pa.array([b"short"]), b"short"),
        ("arrow.json", pa.array([1]), 1),
        ("of.others", pa.array([1]), 1),
    ],
)
def test_extension_types_that_are_not_registered_are_named_by_metadata(
    name: str, stored: pa.Array, value: Any
) -> None:
    field = pa.field("c", stored.type, metadata={"ARROW:extension:name": name})
    assert to_values(stored, field) == [value]
    inside = pa.StructArray.from_arrays([stored], fields=[field])
    assert to_values(inside) == [{"c": value}]


def test_values_inside_others_are_converted() -> None:
    ids = extension(pa.uuid(), [UUID(ID).bytes, None])
    array = pa.ListArray.from_arrays(
        pa.array([0, 1, 1, 2]),
        pa.StructArray.from_arrays([ids], ["id"], mask=pa.array([False, True])),
        mask=pa.array([False, True, False]),
    )
    assert to_values(array) == [[{"id": ID}], None, [None]]
    assert to_values(array.slice(1)) == [None, [None]]
    moments = pa.array([1, None, 3, 4], pa.timestamp("ns"))
    pairs = pa.FixedSizeListArray.from_arrays(moments, 2, mask=pa.array([True, False]))
    last = [f"1970-01-01T00:00:00.00000000{each}" for each in (3, 4)]
    assert to_values(pairs) == [None, last]
    keyed = pa.MapArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b"]), ids)
    assert to_values(keyed.slice(1)) == [[["b", None]]]
    assert to_values(pa.chunked_array([ids, ids])) == [ID, None, ID, None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 0.5, null]}', {"a": [1, 0.5, None]}),
        ('"x"', "x"),
        ("0.123456789012345678901", "0.123456789012345678901"),
        ("1e400", "1E+400"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=lambda text: str(text)[:20],
)
def test_json_is_a_value_in_json_and_its_text_elsewhere(text: str, value: Any) -> None:
    [found] = to_values(extension(pa.json_(), [text]))
    assert isinstance(found, JsonText)
    assert to_json_value({"c": found}) == {"c": value}
    assert to_text(found) == text


def test_two_fields_of_one_name_are_refused() -> None:
    array = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(ValueError, match="two fields of one name"):
        to_values(array)


# -- the table of plain types ----------------------------------------------------------------------


def test_every_type_without_parameters_is_in_the_table() -> None:
    types = [case.type for case in arrow_types.CASES]
    plain = [
        each
        for each in types
        if not isinstance(each, pa.BaseExtensionType)
        and not any(matches(each) for matches in WITH_PARAMETERS)
    ]
    assert len(plain) >= len(PLAIN_TYPES)
    assert [str(each) for each in plain if plain_type(each) is None] == []


@pytest.mark.parametrize("form", ["arrow", "name", "lance"])
def test_no_two_types_have_one_name(form: str) -> None:
    names = [getattr(each, form) for each in PLAIN_TYPES]
    assert len({*names}) == len(names)
