"""Arrow IPC streams in requests: whole, legal in every form, and refused when broken."""

from __future__ import annotations

import io
import random
import struct

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.dataset.rows import Rows

from .building import TABLE
from .memory_catalog import MemoryNamespace, MemoryServer

pytestmark = pytest.mark.quick

ROWS = pa.table({"a": [1, 2, 3], "s": ["x", None, "zz"], "v": [[1.0], [], None]})
EOS = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def stream(
    table: pa.Table, *, options: pa.ipc.IpcWriteOptions | None = None, chunk: int | None = None
) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def read_stream(data: bytes) -> pa.Table:
    """Return the rows of a stream, as a write would get them."""
    rows = Rows.from_data(data)
    rows.require_storable()
    return rows.reader().read_all()


# -- legal streams ---------------------------------------------------------------------------------


OLD_FRAMING = pa.ipc.IpcWriteOptions(use_legacy_format=True)
OLDEST = pa.ipc.IpcWriteOptions(use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
NOT_NULL = pa.struct([pa.field("x", pa.int64(), nullable=False)])


def test_a_legal_stream_is_read_whole() -> None:
    assert read_stream(stream(ROWS)) == ROWS
    assert read_stream(stream(ROWS, chunk=1)) == ROWS
    empty = ROWS.schema.empty_table()
    assert read_stream(stream(empty)) == empty
    for old in (OLD_FRAMING, OLDEST):
        assert not stream(ROWS, options=old).endswith(EOS)
        assert read_stream(stream(ROWS, options=old)) == ROWS
    hidden = pa.table({"s": [{"x": 1}, None]}, schema=pa.schema([("s", NOT_NULL)]))
    assert read_stream(stream(hidden)) == hidden
    long = pa.table({"a": list(range(10_000)), "s": ["same"] * 10_000})
    for codec in ("lz4", "zstd"):
        data = stream(long, options=pa.ipc.IpcWriteOptions(compression=codec))
        assert len(data) < len(stream(long))
        assert read_stream(data) == long


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": [1, None]}, schema=pa.schema([pa.field("a", pa.int64(), nullable=False)])),
        pa.table(
            {"s": [{"x": 1}, {"x": None}]},
            schema=pa.schema([("s", NOT_NULL)]),
        ),
        pa.table(
            {"l": [[1, None]]},
            schema=pa.schema([("l", pa.list_(pa.field("item", pa.int64(), nullable=False)))]),
        ),
    ],
)
def test_a_null_where_the_schema_has_none_is_invalid(table: pa.Table) -> None:
    with pytest.raises(InvalidInputError, match="must not be null"):
        read_stream(stream(table))


# -- broken streams --------------------------------------------------------------------------------


@pytest.mark.spec("common.md#createtable")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        EOS,
        b"hello, this is no stream at all",
        b"ARROW1\x00\x00",
        b"PAR1",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\x00" * 16,
        b"\x00" * 4096,
    ],
)
def test_what_is_no_stream_is_invalid(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"no data|not a complete Arrow IPC stream"):
        read_stream(data)


def test_a_stream_cut_anywhere_is_invalid() -> None:
    """Also before its end marker, which Arrow allows to leave out: lost batches look the same."""
    data = stream(ROWS, chunk=1)
    for end in range(len(data)):
        with pytest.raises(InvalidInputError):
            read_stream(data[:end])


@pytest.mark.spec("common.md#createtable")
@pytest.mark.parametrize("rest", [b"x", b"\x00" * 8, EOS, stream(ROWS)])
def test_what_follows_the_end_of_a_stream_is_invalid_and_not_dropped(rest: bytes) -> None:
    with pytest.raises(InvalidInputError, match=f"by {len(rest)} bytes"):
        read_stream(stream(ROWS) + rest)


def test_a_stream_without_columns_is_invalid() -> None:
    with pytest.raises(InvalidInputError, match="no columns"):
        read_stream(stream(pa.table({})))


def text_array(offsets: list[int], text: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


@pytest.mark.parametrize(
    "array",
    [
        text_array([0, 1_000_000, 4, 6], b"aabbcc"),
        text_array([0, 4, 2, 6], b"aabbcc"),
        text_array([0, -5, 4, 6], b"aabbcc"),
        text_array([0, 2, 4, 6], b"aa\xff\xfecc"),
        pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["a"]), safe=False),
    ],
    ids=["offset beyond", "offsets fall", "offset below", "no UTF-8", "no such word"],
)
def test_values_that_would_lead_outside_their_buffers_are_invalid(array: pa.Array) -> None:
    with pytest.raises(InvalidInputError, match="not valid Arrow data"):
        read_stream(stream(pa.table({"s": array})))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_random_damage_is_refused_or_harmless(compression: str | None) -> None:
    whole = stream(ROWS, options=pa.ipc.IpcWriteOptions(compression=compression))
    chance = random.Random(20)
    refused = 0
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            read_stream(bytes(damaged)).validate(full=True)
        except InvalidInputError:
            refused += 1
    assert refused > 300


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["a", "a"], ["a.b"], [""], ["_rowid"], ["_rowaddr"]])
def test_odd_column_names_are_stored_or_invalid(
    namespace: MemoryNamespace, server: MemoryServer, names: list[str]
) -> None:
    table = pa.table([pa.array([1])] * len(names), names=names)
    request = api.CreateTableRequest(id=TABLE)
    try:
        namespace.create_table(request, stream(table))
    except InvalidInputError:
        assert not server.tables
    else:
        assert namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count == 1
