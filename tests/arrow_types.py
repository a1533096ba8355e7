"""Every type of Arrow and of Lance, with values, for suites that are generated from them.

The types come from the lists that pyarrow and pylance have themselves: `undecided` names those of a
newer release that are neither in `CASES` nor in `NOT_STORED`, so that a suite fails until each is
decided.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import lance
import lance.arrow
import numpy as np
import pyarrow as pa

BLOB = {"lance-encoding:blob": "true"}


@dataclass(frozen=True)
class TypeCase:
    """A type, and values of it.

    Attributes:
        values: Values for `pyarrow.array` of the type, or of an extension type's storage: null,
            empty and extreme ones among them.
        metadata: The metadata of a column of this type.
        nests: Whether the type can be a part of others.
    """

    name: str
    type: pa.DataType
    values: tuple[Any, ...]
    metadata: dict[str, str] = field(default_factory=dict)
    nests: bool = True

    def field(self, name: str) -> pa.Field:
        """Return a column of this type."""
        return pa.field(name, self.type, metadata=self.metadata or None)

    def array(self, rows: int = 0) -> pa.Array:
        """Return the values, and nulls first and last; more nulls if there have to be more rows."""
        values = [None, *self.values, None]
        values += [None] * (rows - len(values))
        if isinstance(self.type, lance.blob.BlobType):
            return lance.blob_array(values)
        if isinstance(self.type, pa.BaseExtensionType):
            return self.type.wrap_array(pa.array(values, self.type.storage_type))
        return pa.array(values, self.type)


def _time(unit: str) -> int:
    return 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit] - 1


_FLOATS = (0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", "a", "日本 ä", "a'b\"c`d\\", "x" * 3000)
_BYTES = (b"", b"\x00\xff", b"y" * 3000)
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_UNITS = ("s", "ms", "us", "ns")
_DAY = 86_400
_YEARS = {"s": 1, "ms": 10**3, "us": 10**6}
"""Times of these units can be in the years 1 and 9999; nanoseconds from 1677 to 2262 only."""
_FIRST, _LAST = -62_135_596_800, 253_402_300_799


def _timestamps(unit: str) -> tuple[int, ...]:
    if unit == "ns":
        return (0, -1_000, 2**63 - 1 - (2**63 - 1) % 1000, -(2**63) + 808)
    of = _YEARS[unit]
    return (0, -1, _FIRST * of, _LAST * of)


def _numbers() -> Iterator[TypeCase]:
    for dtype in _INTEGERS:
        low = -(2 ** (dtype.bit_width - 1))
        yield TypeCase(str(dtype), dtype, (0, 1, low, -low - 1))
    for dtype in _UNSIGNED:
        yield TypeCase(str(dtype), dtype, (0, 1, 2**dtype.bit_width - 1))
    yield TypeCase("float16", pa.float16(), tuple(map(np.float16, (*_FLOATS, 65504))))
    yield TypeCase("float32", pa.float32(), (*_FLOATS, 3.4028234663852886e38, 1e-45))
    yield TypeCase("float64", pa.float64(), (*_FLOATS, 1.7976931348623157e308, 5e-324))
    for make, precision, scale in (
        (pa.decimal128, 38, 18),
        (pa.decimal128, 5, 0),
        (pa.decimal256, 38, 2),
    ):
        dtype = make(precision, scale)
        most = decimal.Decimal((0, (9,) * precision, -scale))
        yield TypeCase(str(dtype), dtype, (most, most.copy_negate(), decimal.Decimal(0)))


def _times() -> Iterator[TypeCase]:
    yield TypeCase("date32", pa.date32(), (dt.date(1970, 1, 1), dt.date.min, dt.date.max))
    yield TypeCase("date64", pa.date64(), (dt.date(1970, 1, 1), dt.date.min, dt.date.max))
    for unit in _UNITS:
        make = pa.time32 if unit in ("s", "ms") else pa.time64
        yield TypeCase(f"time {unit}", make(unit), (0, 1, _time(unit)))
        yield TypeCase(f"timestamp {unit}", pa.timestamp(unit), _timestamps(unit))
        zone = pa.timestamp(unit, "Europe/Berlin")
        yield TypeCase(f"timestamp {unit} with zone", zone, _timestamps(unit))
        yield TypeCase(f"duration {unit}", pa.duration(unit), (0, 1_000, -1_000))


def _variable() -> Iterator[TypeCase]:
    yield TypeCase("null", pa.null(), ())
    yield TypeCase("bool", pa.bool_(), (True, False))
    for dtype in (pa.string(), pa.large_string(), pa.string_view()):
        yield TypeCase(str(dtype), dtype, _TEXTS)
    for dtype in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield TypeCase(str(dtype), dtype, _BYTES)
    yield TypeCase("fixed_size_binary", pa.binary(3), (b"\x00\x01\xff", b"abc"))
    yield TypeCase("dictionary", pa.dictionary(pa.int8(), pa.string()), ("", "a", "b", "a"))


def _nested() -> Iterator[TypeCase]:
    yield TypeCase("list", pa.list_(pa.int32()), ([], [1, None]))
    yield TypeCase("large_list", pa.large_list(pa.int32()), ([], [1, None]))
    yield TypeCase("vector", pa.list_(pa.float32(), 2), ([1.0, -2.5], [0.0, 3.0]))
    yield TypeCase("vector of float16", pa.list_(pa.float16(), 2), ([np.float16(1)] * 2,))
    yield TypeCase(
        "multivector", pa.list_(pa.list_(pa.float32(), 2)), ([], [[1.0, 2.0], [3.0, 4.0]])
    )
    yield TypeCase("struct", pa.struct({"x": pa.int8(), "y": pa.string()}), ({"x": 1, "y": None},))
    yield TypeCase("map", pa.map_(pa.string(), pa.int8()), ([], [("k", 1), ("l", None)]))


def _extensions() -> Iterator[TypeCase]:
    yield TypeCase("uuid", pa.uuid(), (uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes))
    yield TypeCase("json", pa.json_(), ('{"a":1}', "[]", '"text"'))
    yield TypeCase("bool8", pa.bool8(), (0, 1))
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 2])
    yield TypeCase("tensor", tensor, ([1.0, 2.0, 3.0, 4.0],))
    yield TypeCase("opaque", pa.opaque(pa.binary(), "kind", "vendor"), (b"", b"\x01"))
    bfloat16 = lance.arrow.BFloat16Type()  # type: ignore[no-untyped-call]  # pylance gives it no types
    yield TypeCase("bfloat16", bfloat16, (b"\x80\x3f", b"\x00\x00"))
    yield TypeCase("image URI", lance.arrow.ImageURIType(), ("", "file:///a.png"))
    yield TypeCase("encoded image", lance.arrow.EncodedImageType(), _BYTES)
    image = lance.arrow.FixedShapeImageTensorType(pa.uint8(), (1, 2, 1))
    yield TypeCase("image tensor", image, ([0, 255],))
    yield TypeCase("blob", lance.blob_field("b").type, (*_BYTES, b"z" * 100_000))
    yield TypeCase("blob by metadata", pa.large_binary(), _BYTES, BLOB)


CASES: tuple[TypeCase, ...] = (*_numbers(), *_times(), *_variable(), *_nested(), *_extensions())

NOT_STORED = {
    "Type_DECIMAL32": "Lance has no such type",
    "Type_DECIMAL64": "Lance has no such type",
    "Type_DENSE_UNION": "Lance has no such type",
    "Type_SPARSE_UNION": "Lance has no such type",
    "Type_INTERVAL_DAY_TIME": "Lance has no such type",
    "Type_INTERVAL_MONTHS": "Lance has no such type",
    "Type_INTERVAL_MONTH_DAY_NANO": "Lance has no such type",
    "Type_LARGE_LIST_VIEW": "Lance has no such type",
    "Type_LIST_VIEW": "Lance has no such type",
    "Type_RUN_END_ENCODED": "Lance has no such type",
    "ExtensionType": "the class from which Python's extension types are made",
    "UnknownExtensionType": "an extension type that no library of this process knows",
}
"""Types that no table of Lance has, and why, by pyarrow's constant or the class's name."""


def undecided() -> list[str]:
    """Return the types of pyarrow and pylance that this file does not know, by name."""
    ids = {name: getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}
    known = {each.type.id for each in CASES}
    missing = [name for name, of in ids.items() if of not in known and name not in NOT_STORED]
    classes = {type(each.type).__name__ for each in CASES}
    missing += [
        cls.__name__
        for cls in _subclasses(pa.BaseExtensionType)
        if cls.__name__ not in classes | {*NOT_STORED}
        and cls.__module__.startswith(("pyarrow", "lance."))
    ]
    return sorted(missing)


def _subclasses(cls: type) -> Iterator[type]:
    subclasses: list[type] = cls.__subclasses__()
    for each in subclasses:
        yield each
        yield from _subclasses(each)


def as_numbers(case: TypeCase, *, durations: bool = False) -> TypeCase:
    """Return a case as which Spark has its values: a time is a number of its unit.

    Args:
        durations: Whether durations are numbers of microseconds, as in Spark's Parquet.
    """
    if pa.types.is_time(case.type):
        return replace(case, type=pa.int64())
    if durations and pa.types.is_duration(case.type):
        parts = {"s": 10**6, "ms": 10**3, "us": 1}.get(case.type.unit)
        values = (each // 1000 if parts is None else each * parts for each in case.values)
        return replace(case, type=pa.int64(), values=tuple(values))
    return case


# -- columns ---------------------------------------------------------------------------------------


def _struct_of(case: TypeCase, values: pa.Array) -> pa.Array:
    fields = [case.field("inner"), pa.field("other", pa.int32())]
    others = pa.array(range(len(values)), pa.int32())
    return pa.StructArray.from_arrays([values, others], fields=fields)


def _list_of(of: pa.Field, values: pa.Array) -> pa.Array:
    """Return as many lists as values: one of none, one of two, and of one each."""
    counts = [0, *([2] if len(values) > 1 else []), *[1] * max(len(values) - 2, 0)]
    counts = [*counts, *[0] * (len(values) - len(counts))]
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(of))


def _list_of_structs(case: TypeCase, values: pa.Array) -> pa.Array:
    structs = _struct_of(case, values)
    return _list_of(pa.field("item", structs.type), structs)


SHAPES: dict[str, Callable[[TypeCase, pa.Array], pa.Array]] = {
    "plain": lambda _, values: values,
    "in a struct": _struct_of,
    "in a list": lambda case, values: _list_of(case.field("item"), values),
    "in a list of structs": _list_of_structs,
}
"""Ways in which a type occurs in a column."""


def rows_of(case: TypeCase, shape: str, rows: int = 0) -> pa.Table:
    """Return rows with an id from 0, a number `n`, and the column `c` with the values of a type.

    Args:
        rows: The least number of rows.
    """
    values = SHAPES[shape](case, case.array(rows))
    column = case.field("c") if shape == "plain" else pa.field("c", values.type)
    ids = pa.array(range(len(values)), pa.int64())
    numbers = pa.array([1] * len(values), pa.int32())
    names = [pa.field("id", pa.int64()), pa.field("n", pa.int32()), column]
    return pa.table([ids, numbers, values], schema=pa.schema(names))


def wide(shapes: Iterable[str] = SHAPES, cases: Iterable[TypeCase] = CASES) -> pa.Table:
    """Return rows with an id from 0, a number `n`, and a column for each type in some shapes."""
    most, shapes = max(len(case.values) for case in CASES) + 2, list(shapes)
    ids, ones = pa.array(range(most), pa.int64()), pa.array([1] * most, pa.int32())
    fields, columns = [pa.field("id", pa.int64()), pa.field("n", pa.int32())], [ids, ones]
    for case in cases:
        for shape in shapes:
            rows = rows_of(case, shape, most)
            name = re.sub(r"\W", "_", f"{case.name} {shape}")
            fields.append(rows.schema.field("c").with_name(name))
            columns.append(rows["c"])
    return pa.table(columns, schema=pa.schema(fields))


# -- values ----------------------------------------------------------------------------------------


def plain(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values that can be compared, also if they are stored as another type.

    Times are numbers of nanoseconds, floats are texts, and blobs are bytes.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        array = _storage(array)
    return [_plain(array[i]) for i in range(len(array))]


def _storage(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    is_blob = isinstance(whole.type, lance.blob.BlobType)
    return whole.storage.flatten()[0] if is_blob else whole.storage


def _plain(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    for is_of, plain_of in _PLAIN:
        if is_of(value.type):
            return plain_of(value)
    return value.as_py()


def _plain_extension(value: pa.Scalar) -> Any:
    inner = _plain(value.value)
    return inner["data"] if isinstance(value.type, lance.blob.BlobType) else inner


def _nanoseconds(value: pa.Scalar) -> int:
    of = value.type
    if pa.types.is_date(of):
        return int(value.value) * (_DAY * 10**9 if pa.types.is_date32(of) else 10**6)
    return int(value.value) * 10**9 // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[of.unit]


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (lambda of: isinstance(of, pa.BaseExtensionType), _plain_extension),
    (pa.types.is_dictionary, lambda value: _plain(value.value)),
    (pa.types.is_struct, lambda value: {of.name: _plain(value[of.name]) for of in value.type}),
    (pa.types.is_nested, lambda value: plain(value.values)),
    (pa.types.is_temporal, _nanoseconds),
    (pa.types.is_floating, lambda value: repr(float(value.as_py()))),
)
