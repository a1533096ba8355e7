"""The values of Arrow arrays, without loss, in types that JSON, CSV and text can express.

pyarrow's own `to_pylist` fails for dates and times outside the years 1 to 9999 and for nanoseconds,
and gives objects of other libraries for extension types.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Context, Decimal
from functools import lru_cache, partial
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from .values import JsonText, number_of

_EXTENSION = b"ARROW:extension:name"
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY = _EPOCH.toordinal()
_CYCLE = 146_097
"""The days of 400 years, after which the calendar repeats."""
_DAYS = range(_CYCLE, 24 * _CYCLE)
"""Days, counted from year 1, that Python's calendar has in every time zone."""
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_EXACT = Context(prec=100)

Values = list[Any]


def to_values(array: pa.Array | pa.ChunkedArray, field: pa.Field | None = None) -> Values:
    """Return the values of an array, of these types.

    - None, bool, int, float, str, bytes and Decimal;
    - a dict for a struct, a list for a list, and a list of pairs for a map;
    - str for a date, a time (ISO 8601, see `_date`) and a UUID, and `JsonText` for JSON;
    - float for a duration in seconds, or str if no float is equal to it.

    An extension type that is not known has the values of its storage.

    Args:
        field: The field of the array. Its metadata name an extension type that is not registered.

    Raises:
        ValueError: A value cannot be represented: text that is not UTF-8, or a struct with two
            fields of one name.
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in to_values(chunk, field)]
    name = extension_name(array.type, field)
    stored = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    known = _EXTENSIONS.get(name)
    if known is not None and known[0](stored.type):
        return known[1](stored)
    return _stored_values(stored)


def extension_name(type_: pa.DataType, field: pa.Field | None = None) -> str:
    """Return the name of an extension type, registered with Arrow or not; otherwise ""."""
    if isinstance(type_, pa.BaseExtensionType):
        return str(type_.extension_name)
    metadata = (field.metadata if field is not None else None) or {}
    name: bytes = metadata.get(_EXTENSION, b"")
    return name.decode(errors="replace")


def _stored_values(array: pa.Array) -> Values:
    for applies, convert in _STORED:
        if applies(array.type):
            return convert(array)
    return list(array.to_pylist())


# -- nested ----------------------------------------------------------------------------------------


def _structs(array: pa.StructArray) -> Values:
    fields = list(array.type)
    names = [each.name for each in fields]
    if len(set(names)) < len(names):
        raise ValueError("a struct has two fields of one name")
    columns = [to_values(*each) for each in zip(array.flatten(), fields, strict=True)]
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for is_valid, row in zip(array.is_valid().to_pylist(), rows, strict=True)
    ]


def _lists(array: Any) -> Values:
    items = array.type.value_field
    if _is_plain(items):
        return list(array.to_pylist())
    flat = iter(to_values(array.flatten(), items))
    return [
        None if length is None else [next(flat) for _ in range(length)]
        for length in pc.list_value_length(array).to_pylist()
    ]


def _is_plain(field: pa.Field) -> bool:
    """Return whether pyarrow converts a type as `to_values` does, but faster."""
    type_ = field.type
    is_number = types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_)
    return is_number and not extension_name(type_, field)


def _maps(array: pa.MapArray) -> Values:
    key, item = array.type.key_field, array.type.item_field
    entries = array.cast(pa.list_(pa.struct([key, item])))
    return [
        None if each is None else [[entry[key.name], entry[item.name]] for entry in each]
        for each in _lists(entries)
    ]


def _words(array: pa.DictionaryArray) -> Values:
    words = to_values(array.dictionary)
    return [None if index is None else words[index] for index in array.indices.to_pylist()]


# -- times -----------------------------------------------------------------------------------------


def _each(format_: Callable[[int], Any], array: pa.Array) -> Values:
    integers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return [None if each is None else format_(each) for each in integers.to_pylist()]


def _milliseconds(array: pa.Array) -> Values:
    """Return the values of date64, which should be whole days."""
    return _each(
        lambda ms: _moment(ms, "ms", None) if ms % (_DAY * 1000) else _date(ms // (_DAY * 1000)),
        array,
    )


def _timestamps(array: pa.Array) -> Values:
    unit, zone = array.type.unit, _zone(array.type.tz) if array.type.tz else None
    return _each(lambda count: _moment(count, unit, zone), array)


def _times(array: pa.Array) -> Values:
    unit = array.type.unit

    def format_(count: int) -> str:
        seconds, rest = divmod(count, _UNITS[unit])
        if seconds not in range(_DAY):
            return f"{count} {unit}"
        clock = (_EPOCH + timedelta(seconds=seconds)).strftime("%H:%M:%S")
        return clock + _fraction(rest, unit)

    return _each(format_, array)


def _durations(array: pa.Array) -> Values:
    digits = len(str(_UNITS[array.type.unit])) - 1
    return _each(lambda count: number_of(Decimal(count).scaleb(-digits, _EXACT)), array)


def _date(days: int) -> str:
    """Return a day in ISO 8601, counted from 1970; a year has a sign before 0 and after 9999."""
    near, year = _in_calendar(days)
    return f"{_year(year)}-{near:%m-%d}"


def _moment(count: int, unit: str, zone: tzinfo | None) -> str:
    """Return a time in ISO 8601, in its zone and with the offset of this from UTC."""
    seconds, rest = divmod(count, _UNITS[unit])
    near, year = _in_calendar(seconds // _DAY)
    near += timedelta(seconds=seconds % _DAY)
    if zone is not None:
        local = near.astimezone(zone)
        year += local.year - near.year
        near = local
    text = near.isoformat(timespec="seconds")
    offset = "" if zone is None else text[19:]
    return f"{_year(year)}{text[4:19]}{_fraction(rest, unit)}{offset}"


def _in_calendar(days: int) -> tuple[datetime, int]:
    """Return a day of Python's calendar with the same month, day and weekday, and the true year."""
    ordinal = days + _EPOCH_DAY
    cycles = 0
    if ordinal not in _DAYS:
        cycles = ordinal // _CYCLE - (1 if ordinal < _DAYS.start else 23)
    near = _EPOCH + timedelta(days=days - cycles * _CYCLE)
    return near, near.year + 400 * cycles


def _year(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04}"
    return f"{'-' if year < 0 else '+'}{abs(year):04}"


def _fraction(rest: int, unit: str) -> str:
    """Return a fraction of a second: none, microseconds, or nanoseconds if there are any."""
    nanoseconds = rest * (_UNITS["ns"] // _UNITS[unit])
    if not nanoseconds:
        return ""
    return f".{nanoseconds:09}" if nanoseconds % 1000 else f".{nanoseconds // 1000:06}"


@lru_cache
def _zone(name: str) -> tzinfo:
    """Return a time zone; UTC if it is not known, in which the time is the same moment."""
    if match := _OFFSET.fullmatch(name):
        sign, hours, minutes = match.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return timezone(-offset if sign == "-" else offset) if offset < _ONE_DAY else timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return timezone.utc


_ONE_DAY = timedelta(days=1)

_STORED: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Values]]] = (
    (types.is_struct, _structs),
    (types.is_map, _maps),
    (types.is_dictionary, _words),
    (types.is_run_end_encoded, lambda array: to_values(pc.run_end_decode(array))),
    (types.is_list, _lists),
    (types.is_large_list, _lists),
    (types.is_fixed_size_list, _lists),
    (types.is_list_view, _lists),
    (types.is_large_list_view, _lists),
    (types.is_date32, partial(_each, _date)),
    (types.is_date64, _milliseconds),
    (types.is_timestamp, _timestamps),
    (types.is_time, _times),
    (types.is_duration, _durations),
)


# -- extension types -------------------------------------------------------------------------------


def _is_text(type_: pa.DataType) -> bool:
    return bool(
        types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    )


def _is_bytes(size: int) -> Callable[[pa.DataType], bool]:
    return lambda type_: types.is_fixed_size_binary(type_) and type_.byte_width == size


def _convert(convert: Callable[[Any], Any]) -> Callable[[pa.Array], Values]:
    return lambda array: [None if each is None else convert(each) for each in array.to_pylist()]


def _bfloat16(data: bytes) -> float:
    """Return the number whose sign, exponent and first seven digits these are."""
    [number] = struct.unpack("<f", b"\0\0" + data)
    return float(number)


_EXTENSIONS: dict[str, tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Values]]] = {
    "arrow.uuid": (_is_bytes(16), _convert(lambda data: str(UUID(bytes=data)))),
    "arrow.json": (_is_text, _convert(JsonText)),
    "arrow.bool8": (types.is_int8, _convert(bool)),
    "lance.bfloat16": (_is_bytes(2), _convert(_bfloat16)),
}
"""Extension types whose values are not those of their storage: which storage they need, and how it
is converted. Other storage with their name is not converted."""
