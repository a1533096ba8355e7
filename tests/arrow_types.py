"""Every type of Arrow and of Lance, with values, for suites that are generated from them.

`CASES` are for suites that write and read values, `SAMPLES` for those that show them: a sample also
says what JSON has of each. The types come from the lists that pyarrow and pylance have themselves:
`undecided` and `undecided_samples` name those of a newer release that have no values here, nor a
reason, so that a suite fails until each is decided.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import lance
import lance.arrow
import numpy as np
import pyarrow as pa

# -- what is written and read ----------------------------------------------------------------------


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


# -- what is shown: each value, and how JSON has it ------------------------------------------------


LAST, FIRST = 2**63 - 1, -(2**63)
LAST_INT, FIRST_INT = 2**31 - 1, -(2**31)
ID = "0f0e0d0c-0b0a-0908-0706-050403020100"
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Sample:
    """Values of one type."""

    name: str
    array: pa.Array
    values: list[Any]
    """The values as JSON has them."""
    metadata: dict[str, str] = field(default_factory=dict)
    """The metadata of the field."""
    refused: str = ""
    """A part of Lance's reason to refuse the type; empty if it stores it."""
    no_parquet: bool = False
    """Whether Parquet cannot represent a value, so that a download names the column."""
    changed: pa.DataType | None = None
    """The type that Lance reads, if it is another one of the same values."""

    @property
    def field(self) -> pa.Field:
        """The field ``c`` of the values."""
        return pa.field("c", self.array.type, metadata=self.metadata or None)

    @property
    def table(self) -> pa.Table:
        """The values as the column ``c``, with row numbers as ``id``."""
        ids = pa.array(range(len(self.array)), pa.int64())
        schema = pa.schema([pa.field("id", pa.int64()), self.field])
        return pa.Table.from_arrays([ids, self.array], schema=schema)


def _of(kind: Any, *pairs: tuple[Any, Any], **options: Any) -> Sample:
    """Return a sample of a null and of pairs: a value that `pa.array` takes, and that in JSON."""
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    array = pa.array([*(value for value, _ in pairs), None], storage)
    if isinstance(kind, pa.BaseExtensionType):
        array = kind.wrap_array(array)
    name = options.pop("name", str(kind))
    return Sample(name, array, [*(value for _, value in pairs), None], **options)


def _same(kind: Any, *values: Any, **options: Any) -> Sample:
    return _of(kind, *((value, value) for value in values), **options)


def _moments(kind: Any, *pairs: tuple[int, Any], **options: Any) -> Sample:
    """Return a sample of pairs of the stored integer of a time, and its value in JSON."""
    integers = pa.array(
        [*(value for value, _ in pairs), None], pa.int32() if kind.bit_width == 32 else pa.int64()
    )
    values = [*(value for _, value in pairs), None]
    return Sample(options.pop("name", str(kind)), integers.view(kind), values, **options)


def _array(name: str, array: pa.Array, *values: Any, **options: Any) -> Sample:
    return Sample(name, array, list(values), **options)


def _wrap(kind: Any, values: list[Any]) -> pa.Array:
    return kind.wrap_array(pa.array(values, kind.storage_type))


_FLOAT_VALUES = [(1.5, 1.5), (-0.0, -0.0), (NAN, "NaN"), (INF, "Infinity"), (-INF, "-Infinity")]
_TEXT_VALUES = ["", "é😀\n\"',;", "a" * 300, "NULL"]
_BYTE_VALUES = [(b"", ""), (b"\x00\xff", "AP8="), (b"\x89PNG\r\n\x1a\n", "iVBORw0KGgo=")]
_EPOCH = (0, "1970-01-01T00:00:00")
_DECIMALS = (("1.50", "1.50"), ("-0.01", "-0.01"))
_NO_LANCE = "Unsupported data type"

PLAIN: list[Sample] = [
    _array("null", pa.nulls(2), None, None),
    _same(pa.bool_(), True, False),
    *(_same(getattr(pa, f"int{bits}")(), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0)
      for bits in (8, 16, 32, 64)),
    *(_same(getattr(pa, f"uint{bits}")(), 0, 2**bits - 1) for bits in (8, 16, 32, 64)),
    *(_of(kind, *_FLOAT_VALUES) for kind in (pa.float16(), pa.float32(), pa.float64())),
    _same(pa.float64(), 5e-324, 1.7976931348623157e308, name="extreme double"),
    *(_of(kind, *((Decimal(value), text) for value, text in _DECIMALS), **options)
      for kind, options in (
          (pa.decimal32(5, 2), {"refused": _NO_LANCE}),
          (pa.decimal64(9, 2), {"refused": _NO_LANCE}),
          (pa.decimal128(38, 2), {}), (pa.decimal256(76, 2), {}),
      )),
    _of(pa.decimal128(5, -2), (Decimal("1.2E+3"), "1.2E+3"), no_parquet=True),
    _of(pa.decimal256(76, 0), (Decimal("9" * 76), "9" * 76)),
    *(_same(kind, *_TEXT_VALUES) for kind in (pa.string(), pa.large_string())),
    _same(pa.string_view(), *_TEXT_VALUES, changed=pa.string()),
    *(_of(kind, *_BYTE_VALUES) for kind in (pa.binary(), pa.large_binary())),
    _of(pa.binary_view(), *_BYTE_VALUES, changed=pa.binary()),
    _of(pa.binary(2), (b"\x00\xff", "AP8=")),
    _moments(pa.date32(), (0, "1970-01-01"), (LAST_INT, "+5881580-07-11"),
             (FIRST_INT, "-5877641-06-23"), (-719_163, "0000-12-31")),
    _moments(pa.date64(), (0, "1970-01-01"), (_DAY * 1000, "1970-01-02")),
    _moments(pa.date64(), (1, "1970-01-01T00:00:00.001000"), name="part of a day",
             no_parquet=True),
    _moments(pa.date64(), (LAST, "+292278994-08-17T07:12:55.807000"), name="far date64",
             no_parquet=True),
    _moments(pa.time32("s"), (0, "00:00:00"), (_DAY - 1, "23:59:59")),
    _moments(pa.time32("ms"), (1, "00:00:00.001000")),
    _moments(pa.time64("us"), (1, "00:00:00.000001")),
    _moments(pa.time64("ns"), (1, "00:00:00.000000001"), (1000, "00:00:00.000001")),
    _moments(pa.timestamp("s"), _EPOCH, (1, "1970-01-01T00:00:01")),
    _moments(pa.timestamp("s"), (LAST, "+292277026596-12-04T15:30:07"), name="far timestamp",
             no_parquet=True),
    _moments(pa.timestamp("ms"), _EPOCH, (LAST, "+292278994-08-17T07:12:55.807000")),
    _moments(pa.timestamp("us"), _EPOCH, (LAST, "+294247-01-10T04:00:54.775807"),
             (FIRST + 1, "-290308-12-21T19:59:05.224193")),
    _moments(pa.timestamp("ns"), (1, "1970-01-01T00:00:00.000000001"),
             (LAST, "2262-04-11T23:47:16.854775807")),
    _moments(pa.timestamp("us", "UTC"), (1, "1970-01-01T00:00:00.000001+00:00")),
    _moments(pa.timestamp("ns", "Europe/Berlin"), (1, "1970-01-01T01:00:00.000000001+01:00")),
    _moments(pa.timestamp("us", "-03:30"), (0, "1969-12-31T20:30:00-03:30")),
    _moments(pa.timestamp("us", "Nowhere/Land"), (0, "1970-01-01T00:00:00+00:00")),
    _moments(pa.duration("s"), (1, 1.0), (LAST, "9223372036854775807")),
    _moments(pa.duration("ms"), (1, 0.001), (-1, -0.001)),
    _moments(pa.duration("us"), (1, 1e-06)),
    _moments(pa.duration("ns"), (1, 1e-09), (LAST, "9223372036.854775807")),
    _of(pa.month_day_nano_interval(), ((1, 2, 3), [1, 2, 3]), refused=_NO_LANCE),
]  # fmt: skip


def _views(factory: Any) -> pa.Array:
    return pa.array([[1, None], [], None], factory(pa.int32()))


_UNION = (pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
NESTED: list[Sample] = [
    _same(pa.list_(pa.int32()), [1, None], []),
    _same(pa.large_list(pa.string()), ["a", None], []),
    _of(pa.list_(pa.float32(), 2), ([0.5, NAN], [0.5, "NaN"])),
    _same(pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": "x"},
          {"a": None, "b": None}),
    _of(pa.map_(pa.string(), pa.timestamp("ns")),
        ([("k", 1), ("l", None)], [["k", "1970-01-01T00:00:00.000000001"], ["l", None]]), ([], [])),
    _array("dictionary", pa.array(["a", None, "a"]).dictionary_encode(), "a", None, "a"),
    _array("list view", _views(pa.list_view), [1, None], [], None, refused=_NO_LANCE),
    _array("large list view", _views(pa.large_list_view), [1, None], [], None,
           refused=_NO_LANCE),
    _array("run-end encoded", pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([7, None])),
           7, 7, None, refused=_NO_LANCE),
    _array("sparse union", pa.UnionArray.from_sparse(*_UNION), 1, "b", refused=_NO_LANCE),
    _array("dense union", pa.UnionArray.from_dense(_UNION[0], pa.array([0, 1], pa.int32()),
                                                   _UNION[1]), 1, "b", refused=_NO_LANCE),
]  # fmt: skip

_JSON = ['{"a":[1,0.5,null]}', '"x"', "[]"]
_BFLOAT16: Any = lance.arrow.BFloat16Type  # without types
_HALF = pa.array([b"\xc0\x3f", b"\x00\xc0", None], pa.binary(2))
EXTENSIONS: list[Sample] = [
    _of(pa.uuid(), (bytes(range(15, -1, -1)), ID)),
    _of(pa.json_(), *((text, json.loads(text)) for text in _JSON)),
    _of(pa.bool8(), (0, False), (1, True), (5, True)),
    _of(pa.fixed_shape_tensor(pa.float32(), [2, 1]), ([1.0, 2.0], [1.0, 2.0])),
    _same(pa.opaque(pa.int32(), "a", "b"), 1),
    _array("lance.bfloat16", _BFLOAT16().wrap_array(_HALF), 1.5, -2.0, None),
    _array("vector of bfloat16", pa.FixedSizeListArray.from_arrays(
        _BFLOAT16().wrap_array(_HALF[:2]), 2), [1.5, -2.0]),
    _same(lance.arrow.ImageURIType(), "file:///a.png"),
    _of(lance.arrow.EncodedImageType(), *_BYTE_VALUES[1:]),
    _same(lance.arrow.FixedShapeImageTensorType(pa.uint8(), [1, 1, 2]), [0, 255]),
    _same(pa.struct([("data", pa.list_(pa.int32())), ("shape", pa.list_(pa.int32(), 2))]),
          {"data": [1, 2], "shape": [1, 2]}, name="variable shape tensor",
          metadata={"ARROW:extension:name": "arrow.variable_shape_tensor",
                    "ARROW:extension:metadata": "{}"}),
    _of(pa.binary(), *_BYTE_VALUES[1:], name="geoarrow.wkb",
        metadata={"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": "{}"}),
]  # fmt: skip
BLOBS: list[Sample] = [
    _of(pa.large_binary(), (b"abc", 3), (b"", 0), name="lance-encoding:blob",
        metadata={"lance-encoding:blob": "true"}),
    _array("lance.blob.v2", lance.blob_array([b"abc", b"", None]), 3, 0, None),
]  # fmt: skip
"""Columns whose bytes no surface shows: ``values`` are their sizes."""

SAMPLES = [*PLAIN, *NESTED, *EXTENSIONS]
STORED = [each for each in SAMPLES if not each.refused]
_IN_NO_ARRAY = {"INTERVAL_MONTHS", "INTERVAL_DAY_TIME"}
"""Types that pyarrow reads, but has no class for."""


# -- inside others ---------------------------------------------------------------------------------


def in_struct(sample: Sample) -> Sample:
    """Return the values as a field of structs, of which the last is null."""
    array = pa.concat_arrays([sample.array, sample.array[-1:]])
    inner = pa.field("v", array.type, metadata=sample.metadata or None)
    mask = pa.array([False] * len(sample.array) + [True])
    return replace(
        sample,
        name=f"struct of {sample.name}",
        array=pa.StructArray.from_arrays([array], fields=[inner], mask=mask),
        values=[*({"v": each} for each in sample.values), None],
        metadata={},
        changed=None,
    )


def in_list(sample: Sample) -> Sample:
    """Return the values as items of lists: all of them, none, and a list that is null."""
    count = len(sample.array)
    inner = pa.field("item", sample.array.type, metadata=sample.metadata or None)
    array = pa.ListArray.from_arrays(
        pa.array([0, count, count, count], pa.int32()),
        sample.array,
        type=pa.list_(inner),
        mask=pa.array([False, False, True]),
    )
    return replace(
        sample,
        name=f"list of {sample.name}",
        array=array,
        values=[sample.values, [], None],
        metadata={},
        changed=None,
    )


SAMPLE_SHAPES: dict[str, Callable[[Sample], Sample]] = {
    "plain": lambda sample: sample,
    "struct": in_struct,
    "list": in_list,
    "list of struct": lambda sample: in_list(in_struct(sample)),
}


# -- what has no sample ----------------------------------------------------------------------------


def undecided_samples() -> list[str]:
    """Return the types of pyarrow and Lance that have no sample."""
    ids = {each.array.type.id for each in SAMPLES}
    names = {each.removeprefix("Type_"): getattr(pa.lib, each) for each in _constants()}
    missing = {name for name, id_ in names.items() if id_ not in ids} - _IN_NO_ARRAY
    classes = {type(each.array.type) for each in (*SAMPLES, *BLOBS)}
    registered = {each for each in _below(pa.BaseExtensionType) if _is_registered(each)}
    return sorted({*missing, *(each.__name__ for each in registered - classes)})


def _constants() -> list[str]:
    return [each for each in dir(pa.lib) if each.startswith("Type_")]


def _below(parent: type[Any]) -> Iterator[type[Any]]:
    for each in parent.__subclasses__():
        yield each
        yield from _below(each)


def _is_registered(extension: type[Any]) -> bool:
    is_base = extension in (pa.ExtensionType, pa.UnknownExtensionType)
    return not is_base and extension.__module__.split(".")[0] in ("pyarrow", "lance")
