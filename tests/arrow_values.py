"""Values of every Arrow type, and what JSON says of them: for each surface that shows a table.

`SAMPLES` has every type of Arrow and every extension type that pyarrow and Lance register;
`undecided` names those that have none yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import lance
import lance.arrow
import pyarrow as pa

LAST, FIRST = 2**63 - 1, -(2**63)
LAST_INT, FIRST_INT = 2**31 - 1, -(2**31)
ID = "0f0e0d0c-0b0a-0908-0706-050403020100"
_DAY = 86_400
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


def _numbers(kind: Any, *pairs: tuple[int, Any], **options: Any) -> Sample:
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


_FLOATS = [(1.5, 1.5), (-0.0, -0.0), (NAN, "NaN"), (INF, "Infinity"), (-INF, "-Infinity")]
_TEXTS = ["", "é😀\n\"',;", "a" * 300, "NULL"]
_BYTES = [(b"", ""), (b"\x00\xff", "AP8="), (b"\x89PNG\r\n\x1a\n", "iVBORw0KGgo=")]
_EPOCH = (0, "1970-01-01T00:00:00")
_DECIMALS = (("1.50", "1.50"), ("-0.01", "-0.01"))
_NO_LANCE = "Unsupported data type"

PLAIN: list[Sample] = [
    _array("null", pa.nulls(2), None, None),
    _same(pa.bool_(), True, False),
    *(_same(getattr(pa, f"int{bits}")(), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0)
      for bits in (8, 16, 32, 64)),
    *(_same(getattr(pa, f"uint{bits}")(), 0, 2**bits - 1) for bits in (8, 16, 32, 64)),
    *(_of(kind, *_FLOATS) for kind in (pa.float16(), pa.float32(), pa.float64())),
    _same(pa.float64(), 5e-324, 1.7976931348623157e308, name="extreme double"),
    *(_of(kind, *((Decimal(value), text) for value, text in _DECIMALS), **options)
      for kind, options in (
          (pa.decimal32(5, 2), {"refused": _NO_LANCE}),
          (pa.decimal64(9, 2), {"refused": _NO_LANCE}),
          (pa.decimal128(38, 2), {}), (pa.decimal256(76, 2), {}),
      )),
    _of(pa.decimal128(5, -2), (Decimal("1.2E+3"), "1.2E+3"), no_parquet=True),
    _of(pa.decimal256(76, 0), (Decimal("9" * 76), "9" * 76)),
    *(_same(kind, *_TEXTS) for kind in (pa.string(), pa.large_string())),
    _same(pa.string_view(), *_TEXTS, changed=pa.string()),
    *(_of(kind, *_BYTES) for kind in (pa.binary(), pa.large_binary())),
    _of(pa.binary_view(), *_BYTES, changed=pa.binary()),
    _of(pa.binary(2), (b"\x00\xff", "AP8=")),
    _numbers(pa.date32(), (0, "1970-01-01"), (LAST_INT, "+5881580-07-11"),
             (FIRST_INT, "-5877641-06-23"), (-719_163, "0000-12-31")),
    _numbers(pa.date64(), (0, "1970-01-01"), (_DAY * 1000, "1970-01-02")),
    _numbers(pa.date64(), (1, "1970-01-01T00:00:00.001000"), name="part of a day",
             no_parquet=True),
    _numbers(pa.date64(), (LAST, "+292278994-08-17T07:12:55.807000"), name="far date64",
             no_parquet=True),
    _numbers(pa.time32("s"), (0, "00:00:00"), (_DAY - 1, "23:59:59")),
    _numbers(pa.time32("ms"), (1, "00:00:00.001000")),
    _numbers(pa.time64("us"), (1, "00:00:00.000001")),
    _numbers(pa.time64("ns"), (1, "00:00:00.000000001"), (1000, "00:00:00.000001")),
    _numbers(pa.timestamp("s"), _EPOCH, (1, "1970-01-01T00:00:01")),
    _numbers(pa.timestamp("s"), (LAST, "+292277026596-12-04T15:30:07"), name="far timestamp",
             no_parquet=True),
    _numbers(pa.timestamp("ms"), _EPOCH, (LAST, "+292278994-08-17T07:12:55.807000")),
    _numbers(pa.timestamp("us"), _EPOCH, (LAST, "+294247-01-10T04:00:54.775807"),
             (FIRST + 1, "-290308-12-21T19:59:05.224193")),
    _numbers(pa.timestamp("ns"), (1, "1970-01-01T00:00:00.000000001"),
             (LAST, "2262-04-11T23:47:16.854775807")),
    _numbers(pa.timestamp("us", "UTC"), (1, "1970-01-01T00:00:00.000001+00:00")),
    _numbers(pa.timestamp("ns", "Europe/Berlin"), (1, "1970-01-01T01:00:00.000000001+01:00")),
    _numbers(pa.timestamp("us", "-03:30"), (0, "1969-12-31T20:30:00-03:30")),
    _numbers(pa.timestamp("us", "Nowhere/Land"), (0, "1970-01-01T00:00:00+00:00")),
    _numbers(pa.duration("s"), (1, 1.0), (LAST, "9223372036854775807")),
    _numbers(pa.duration("ms"), (1, 0.001), (-1, -0.001)),
    _numbers(pa.duration("us"), (1, 1e-06)),
    _numbers(pa.duration("ns"), (1, 1e-09), (LAST, "9223372036.854775807")),
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
    _of(lance.arrow.EncodedImageType(), *_BYTES[1:]),
    _same(lance.arrow.FixedShapeImageTensorType(pa.uint8(), [1, 1, 2]), [0, 255]),
    _same(pa.struct([("data", pa.list_(pa.int32())), ("shape", pa.list_(pa.int32(), 2))]),
          {"data": [1, 2], "shape": [1, 2]}, name="variable shape tensor",
          metadata={"ARROW:extension:name": "arrow.variable_shape_tensor",
                    "ARROW:extension:metadata": "{}"}),
    _of(pa.binary(), *_BYTES[1:], name="geoarrow.wkb",
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


SHAPES: dict[str, Callable[[Sample], Sample]] = {
    "plain": lambda sample: sample,
    "struct": in_struct,
    "list": in_list,
    "list of struct": lambda sample: in_list(in_struct(sample)),
}


# -- what has no sample ----------------------------------------------------------------------------


def undecided() -> list[str]:
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
