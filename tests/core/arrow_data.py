"""Arrow data of every type and layout, made from seeds: what a caller may hand in as rows."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NUMBERS = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal32(9, 2),
    pa.decimal64(18, 3),
    pa.decimal128(38, 2),
    pa.decimal256(76, 10),
]
TIMES = [
    pa.date32(),
    pa.date64(),
    *(pa.time32(unit) for unit in ("s", "ms")),
    *(pa.time64(unit) for unit in ("us", "ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    pa.timestamp("us", "UTC"),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    pa.month_day_nano_interval(),
]
TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(3),
    pa.binary(16),
]
EXTENSIONS = [
    pa.uuid(),
    pa.json_(),
    pa.bool8(),
    pa.fixed_shape_tensor(pa.float32(), [2]),
    pa.opaque(pa.decimal128(38, 2), "a", "b"),
]
LEAVES = [*NUMBERS, *TIMES, *TEXTS, *EXTENSIONS, pa.null()]
KEYS = [pa.string(), pa.int32(), pa.decimal128(38, 2)]
INDICES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8()]
JSON = ['{"a":1}', "[1,2]", "true", '"text"']
DAY = 86_400
UNITS = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_EXACT = Context(prec=100)


DICTIONARY_VALUES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.int64(),
    pa.float64(),
    pa.decimal128(38, 2),
    pa.timestamp("us"),
]
_SIZES = st.integers(1, 3)


def types() -> st.SearchStrategy[pa.DataType]:
    """Return types of every kind, also inside each other."""
    return st.integers(0, 3).flatmap(_types)


def _types(depth: int) -> st.SearchStrategy[pa.DataType]:
    if not depth:
        return st.sampled_from(LEAVES)
    inner = _types(depth - 1)
    structs = st.lists(st.tuples(inner, st.booleans()), max_size=3).map(_struct)
    lists = [inner.map(pa.list_), inner.map(pa.large_list), st.builds(pa.list_, inner, _SIZES)]
    dictionaries = st.builds(
        pa.dictionary, st.sampled_from(INDICES), st.sampled_from(DICTIONARY_VALUES)
    )
    others = st.one_of(
        inner.map(pa.list_view),
        inner.map(pa.large_list_view),
        st.builds(pa.run_end_encoded, st.just(pa.int32()), st.sampled_from(NUMBERS)),
        st.builds(_union, st.lists(inner, min_size=1, max_size=2), st.booleans()),
    )
    maps = st.builds(pa.map_, st.sampled_from(KEYS), inner)
    return st.one_of(*lists, *lists[:2], structs, structs, structs, maps, dictionaries, others)


def _struct(kinds: list[tuple[pa.DataType, bool]]) -> pa.DataType:
    return pa.struct(
        [
            pa.field(f"f{i}", kind, nullable=i > 0 or may_be_null or pa.types.is_null(kind))
            for i, (kind, may_be_null) in enumerate(kinds)
        ]
    )


def _union(kinds: list[pa.DataType], is_dense: bool) -> pa.DataType:
    fields = [pa.field(f"u{i}", kind) for i, kind in enumerate(kinds)]
    return pa.dense_union(fields) if is_dense else pa.sparse_union(fields)


# -- values ----------------------------------------------------------------------------------------


def make_array(kind: pa.DataType, length: int, nulls: float, rng: random.Random) -> pa.Array:
    """Return an array of random values, of which a share is null."""
    if kind.equals(pa.json_()):
        texts = [None if rng.random() < nulls else rng.choice(JSON) for _ in range(length)]
        return kind.wrap_array(pa.array(texts, kind.storage_type))
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(make_array(kind.storage_type, length, nulls, rng))
    for applies, make in _MAKERS:
        if applies(kind):
            return make(kind, length, nulls, rng)
    values = [None if rng.random() < nulls else _make_value(kind, rng) for _ in range(length)]
    return pa.array(values, kind)


def _make_dictionary(kind: Any, length: int, nulls: float, rng: random.Random) -> pa.Array:
    words = make_array(kind.value_type, 5, 0, rng).unique()
    picks = [None if rng.random() < nulls else rng.randrange(len(words)) for _ in range(length)]
    return pa.DictionaryArray.from_arrays(pa.array(picks, kind.index_type), words)


def _make_runs(kind: Any, length: int, nulls: float, rng: random.Random) -> pa.Array:
    values = make_array(kind.value_type, length, nulls, rng)
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, length + 1), pa.int32()), values)


def _make_struct(kind: Any, length: int, nulls: float, rng: random.Random) -> pa.Array:
    parts = [make_array(each.type, length, nulls, rng) for each in kind]
    mask = _make_mask(length, nulls, rng)
    if not parts:
        return pa.array([None if each.as_py() else {} for each in mask], kind)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)


def _make_mask(length: int, nulls: float, rng: random.Random) -> pa.Array:
    return pa.array([rng.random() < nulls for _ in range(length)], pa.bool_())


def _make_vectors(kind: Any, length: int, nulls: float, rng: random.Random) -> pa.Array:
    values = make_array(kind.value_type, length * kind.list_size, nulls, rng)
    mask = _make_mask(length, nulls, rng)
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)


def _make_offsets(length: int, rng: random.Random, kind: pa.DataType) -> pa.Array:
    sizes = [0, *(rng.choice([0, 1, 3]) for _ in range(length))]
    return pa.array([sum(sizes[: i + 1]) for i in range(length + 1)], kind)


def _make_map(kind: Any, length: int, nulls: float, rng: random.Random) -> pa.Array:
    offsets = _make_offsets(length, rng, pa.int32())
    count, mask = offsets[-1].as_py(), _make_mask(length, nulls, rng)
    keys = make_array(kind.key_type, count, 0, rng)
    items = make_array(kind.item_type, count, nulls, rng)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


def _make_list(kind: Any, length: int, nulls: float, rng: random.Random) -> pa.Array:
    offsets = _make_offsets(length, rng, pa.int64() if "large" in str(kind)[:5] else pa.int32())
    values = make_array(kind.value_type, offsets[-1].as_py(), nulls, rng)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        factory = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        mask = _make_mask(length, nulls, rng)
        return factory.from_arrays(offsets, values, type=kind, mask=mask)
    views = pa.ListViewArray if pa.types.is_list_view(kind) else pa.LargeListViewArray
    sizes = pa.array([1 if offsets[i] != offsets[i + 1] else 0 for i in range(length)])
    return views.from_arrays(offsets[:-1], sizes.cast(offsets.type), values, type=kind)


def _make_union(kind: Any, length: int, nulls: float, rng: random.Random) -> pa.Array:
    children = [make_array(each.type, length, nulls, rng) for each in kind]
    names = [each.name for each in kind]
    codes = pa.array([rng.randrange(kind.num_fields) for _ in range(length)], pa.int8())
    if kind.mode == "sparse":
        return pa.UnionArray.from_sparse(codes, children, names)
    return pa.UnionArray.from_dense(codes, pa.array(range(length), pa.int32()), children, names)


_MAKERS: list[tuple[Callable[[Any], bool], Callable[..., pa.Array]]] = [
    (pa.types.is_dictionary, _make_dictionary),
    (pa.types.is_run_end_encoded, _make_runs),
    (pa.types.is_struct, _make_struct),
    (pa.types.is_fixed_size_list, _make_vectors),
    (pa.types.is_map, _make_map),
    (pa.types.is_union, _make_union),
    (lambda kind: kind.num_fields > 0, _make_list),
]


def _make_value(kind: Any, rng: random.Random) -> Any:
    value: Any = None
    if pa.types.is_boolean(kind):
        value = rng.random() < 0.5
    elif pa.types.is_integer(kind):
        low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        value = rng.choice([low, low + 2**kind.bit_width - 1, rng.randrange(100)])
    elif pa.types.is_floating(kind):
        value = rng.choice([0.0, -0.0, 1.5, -2.25, float("inf")])
    elif pa.types.is_decimal(kind):
        digits = 10**kind.precision - 1
        number = rng.choice([digits, -digits, rng.randrange(1000)])
        value = Decimal(number).scaleb(-kind.scale, _EXACT)
    elif pa.types.is_interval(kind):
        value = pa.MonthDayNano([1, rng.randrange(30), 1000])
    elif pa.types.is_temporal(kind):
        value = _make_time(kind, rng)
    elif not pa.types.is_null(kind):
        value = _make_text(kind, rng)
    return value


def _make_text(kind: Any, rng: random.Random) -> str | bytes:
    size = kind.byte_width if pa.types.is_fixed_size_binary(kind) else rng.choice([0, 1, 5, 40])
    text = "".join(rng.choice("abcdefgh") for _ in range(size))
    if "string" in str(kind):
        return f"é{text}" if rng.random() < 0.2 else text
    return text.encode()


def _make_time(kind: pa.DataType, rng: random.Random) -> pa.Scalar:
    """Return a scalar: pyarrow takes no numbers for times, and Python's have no nanoseconds."""
    if pa.types.is_date32(kind):
        number = rng.randrange(-1000, 30_000)
    elif pa.types.is_date64(kind):
        number = rng.randrange(-1000, 30_000) * DAY * 1000
    else:
        # Python's own times, which failures are shown as, have no nanoseconds.
        number = rng.randrange(DAY) * UNITS[kind.unit]
    storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.scalar(number, storage).cast(kind)


# -- layouts ---------------------------------------------------------------------------------------


def make_table(kind: pa.DataType, lengths: Sequence[int], nulls: float, seed: int) -> pa.Table:
    """Return a table of columns ``c``, of a type, and ``n``, in batches that are slices.

    Each batch begins somewhere in a longer one; dictionaries differ from batch to batch.
    """
    rng = random.Random(seed)
    chunks, numbers = [], []
    for i, length in enumerate(lengths):
        first = sum(lengths[:i])
        before, after = rng.randrange(10), rng.randrange(3)
        whole = make_array(kind, before + length + after, nulls, rng)
        chunks.append(whole.slice(before, length))
        numbers.append(pa.array(range(first, first + length), pa.int64()))
    columns = [pa.chunked_array(chunks, kind), pa.chunked_array(numbers, pa.int64())]
    return pa.table(columns, names=["c", "n"])


def to_stream(table: pa.Table, **options: Any) -> bytes:
    """Return a table as an Arrow IPC stream, batch by batch."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    return sink.getvalue()


def place_at(data: bytes, remainder: int) -> memoryview:
    """Return bytes whose address is a multiple of 64, plus a remainder."""
    memory = bytearray(len(data) + 128)
    start = -pa.py_buffer(memory).address % 64 + remainder
    memory[start : start + len(data)] = data
    return memoryview(memory)[start : start + len(data)]


FORMS: dict[str, Callable[[memoryview], Any]] = {
    "bytes": lambda data: data,
    "buffer": pa.py_buffer,
    "file": io.BytesIO,
    "table": lambda data: pa.ipc.open_stream(pa.py_buffer(data)).read_all(),
    "reader": lambda data: pa.ipc.open_stream(pa.py_buffer(data)),
    "batches": lambda data: list(pa.ipc.open_stream(pa.py_buffer(data))),
    "generator": lambda data: (batch for batch in pa.ipc.open_stream(pa.py_buffer(data))),
}
"""Ways to hand in a stream that is somewhere in memory."""
