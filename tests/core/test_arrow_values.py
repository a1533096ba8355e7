"""Types and values of Arrow in the forms that are printed or published, without loss."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import arrow_types
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples

from lance_bridge.arrow_values import to_values
from lance_bridge.type_table import PLAIN_TYPES, plain_type
from lance_bridge.values import JsonText, to_json_value, to_text

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#output", "common.md#published-columns")]

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
