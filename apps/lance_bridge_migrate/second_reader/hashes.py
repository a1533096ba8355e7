"""Hashes of the values of Arrow columns, of any type, with which rows are compared in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .columns import DIGITS, is_list, plain_type

Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_BASE = 0xD6E8FEB86659FD93
_BASES = (_BASE, pow(_BASE, -1, 2**64))
"""An odd number, so that it has an inverse, and that."""
_NULL = np.uint64(0xA0761D6478BD642F)
_OF_BYTES = np.random.default_rng(1).integers(0, 2**64, 256, dtype=np.uint64)
_LONG = 128
"""The bytes of a value from which on it is hashed by itself: of many short ones at once."""
_OLDEST_DAY, _OLDEST_MICROSECOND = -141_427, -2_208_988_800_000_000
"""October 15, 1582, and the year 1900: before them, readers convert between calendars."""
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (*_TEXTS, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
          pa.types.is_fixed_size_binary)  # fmt: skip


class IncomparableError(Exception):
    """Values of a type that are no values of another one, or of which Spark makes others."""


def hashes(values: pa.Array, wanted: pa.DataType, *, old_calendar: bool = False) -> Hashes:
    """Return a hash of each value, read as one of a type.

    Fields of structs are found by name, in any letter case. All NaN are equal, and so are 0.0 and
    -0.0. An array without values shows whether the types can be compared.

    Args:
        old_calendar: Whether days before October 15, 1582, and times before 1900, are all equal.

    Raises:
        IncomparableError: The type of the values is not one that Spark reads as this type.
    """
    values, wanted = _plain(values), plain_type(wanted)
    if pa.types.is_null(values.type):
        return np.full(len(values), _NULL)
    found = _of_type(values, wanted, old_calendar)
    if not values.null_count:
        return found
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), found, _NULL)


def combined(columns: list[Hashes], rows: int) -> Hashes:
    """Return the hash of each row from those of its values."""
    found = np.zeros(rows, np.uint64)
    for each in columns:
        found = _mixed(found * _FACTORS[0] + each)
    return found


def _of_type(values: pa.Array, wanted: pa.DataType, old: bool) -> Hashes:
    if pa.types.is_map(values.type):
        values = values.cast(_entries_of(values.type))
    wanted = _entries_of(wanted) if pa.types.is_map(wanted) else wanted
    stored = values.type
    if pa.types.is_struct(wanted) and pa.types.is_struct(stored):
        return _structs(values, wanted, old)
    if is_list(wanted) and is_list(stored):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy().astype(np.int64)
        return _segments(hashes(values.flatten(), wanted.value_type, old_calendar=old), lengths)
    if any(check(wanted) for check in _BYTES) and any(check(stored) for check in _BYTES):
        return _bytes(values)
    if pa.types.is_nested(wanted) or pa.types.is_nested(stored):
        raise IncomparableError
    return _plain_values(values, wanted, old)


def _structs(values: pa.StructArray, wanted: pa.StructType, old: bool) -> Hashes:
    names = [each.name for each in values.type]
    if not {name.lower() for name in names} & {each.name.lower() for each in wanted}:
        raise IncomparableError  # releases of Spark disagree whether such a struct is null
    parts = dict(zip(names, values.flatten(), strict=True))
    cases = {name.lower(): name for name in names}
    found = []
    for field in wanted:
        name = field.name if field.name in parts else cases.get(field.name.lower())
        part = pa.nulls(len(values)) if name is None else parts[name]
        found.append(hashes(part, field.type, old_calendar=old))
    return combined(found, len(values))


def _plain_values(values: pa.Array, wanted: pa.DataType, old: bool) -> Hashes:
    for check, function in _PLAIN:
        if check(wanted):
            try:
                return _mixed(function(values, wanted) + _SEED)
            except pa.ArrowException as error:
                raise IncomparableError from error
    for check, convert, oldest in _TIMES:
        if check(wanted):
            days = convert(values, wanted)
            days = np.maximum(days, oldest) if old else days
            return _mixed(days.view(np.uint64) + _SEED)
    raise IncomparableError


# -- plain values ----------------------------------------------------------------------------------


def _booleans(values: pa.Array, _: pa.DataType) -> Hashes:
    if not pa.types.is_boolean(values.type):
        raise IncomparableError
    return _integers(values.cast(pa.int64()), pa.int64())


def _integers(values: pa.Array, wanted: pa.DataType) -> Hashes:
    stored = values.type
    is_nanoseconds = pa.types.is_timestamp(stored) and wanted == pa.int64()
    if not is_nanoseconds:
        is_unsigned = pa.types.is_unsigned_integer(stored) > pa.types.is_unsigned_integer(wanted)
        if not pa.types.is_integer(stored) or stored.bit_width + is_unsigned > wanted.bit_width:
            raise IncomparableError
    found = values.cast(pa.uint64() if wanted == pa.uint64() else pa.int64()).fill_null(0)
    return np.asarray(found.to_numpy().view(np.uint64))


def _floats(values: pa.Array, wanted: pa.DataType) -> Hashes:
    stored = values.type
    is_float = pa.types.is_floating(stored) and stored.bit_width <= wanted.bit_width
    is_whole = pa.types.is_integer(stored) and stored.bit_width <= wanted.bit_width // 2
    if not (is_float or is_whole):
        raise IncomparableError
    found = values.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0
    return np.where(np.isnan(found), np.nan, found).view(np.uint64)


def _decimals(values: pa.Array, wanted: pa.DataType) -> Hashes:
    stored, scale = values.type, 0
    if pa.types.is_decimal(stored):
        digits, scale = stored.precision - stored.scale, stored.scale
    elif pa.types.is_integer(stored):
        digits = 20 if stored == pa.uint64() else DIGITS[stored.bit_width]
    else:
        raise IncomparableError
    if scale > wanted.scale or digits > wanted.precision - wanted.scale:
        raise IncomparableError
    found = values.cast(pa.decimal128(wanted.precision, wanted.scale))
    if not len(found):
        return np.zeros(0, np.uint64)
    words = np.frombuffer(found.buffers()[1], np.uint64)
    low, high = words[0::2], words[1::2]
    of = slice(found.offset, found.offset + len(found))
    return _mixed(low[of] + _SEED) + high[of]


def _days(values: pa.Array, _: pa.DataType) -> npt.NDArray[np.int64]:
    if not pa.types.is_date(values.type):
        raise IncomparableError
    found = values.cast(pa.date32()).cast(pa.int32()).fill_null(0)
    return np.asarray(found.to_numpy().astype(np.int64))


def _microseconds(values: pa.Array, wanted: pa.DataType) -> npt.NDArray[np.int64]:
    is_date = pa.types.is_date(values.type) and wanted.tz is None
    if not (is_date or pa.types.is_timestamp(values.type)):
        raise IncomparableError
    zone = None if is_date else values.type.tz
    found = values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).fill_null(0)
    return np.asarray(found.to_numpy())


def _times(values: pa.Array, _: pa.DataType) -> Hashes:
    if not pa.types.is_time(values.type):
        raise IncomparableError
    return _integers(values.cast(pa.time64("ns")).cast(pa.int64()), pa.int64())


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Hashes]], ...] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal128, _decimals),
    (pa.types.is_time, _times),
)
_TIMES: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Any], int], ...] = (
    (pa.types.is_date, _days, _OLDEST_DAY),
    (pa.types.is_timestamp, _microseconds, _OLDEST_MICROSECOND),
)


# -- bytes and lists -------------------------------------------------------------------------------


def _bytes(values: pa.Array) -> Hashes:
    values = values.cast(pa.large_binary())
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    is_long = lengths > _LONG
    if not is_long.any():
        return _short_bytes(values, lengths)
    found = np.zeros(len(values), np.uint64)
    found[~is_long] = _short_bytes(values.filter(pa.array(~is_long)), lengths[~is_long])
    for number in np.flatnonzero(is_long):
        digest = hashlib.blake2b(values[int(number)].as_buffer(), digest_size=8).digest()
        found[number] = int.from_bytes(digest, "little")
    return found


def _short_bytes(values: pa.Array, lengths: npt.NDArray[np.int64]) -> Hashes:
    data = values.buffers()[2]
    if not len(values) or data is None:
        return _segments(np.zeros(0, np.uint64), lengths)
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    if len(text) != lengths.sum():  # there are bytes of values that are null
        return _short_bytes(values.fill_null(b""), lengths)
    return _segments(_OF_BYTES[text], lengths)


def _segments(parts: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """Return the hash of each list from those of its elements, which follow each other."""
    powers, inverses = (_powers(base, len(parts).bit_length()) for base in _BASES)
    products = parts * powers[: len(parts)]
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(products, dtype=np.uint64)))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    own = (sums[ends] - sums[starts]) * inverses[starts]
    return _mixed(own + lengths.astype(np.uint64) * _SEED)


@lru_cache(maxsize=8)
def _powers(base: int, bits: int) -> Hashes:
    """Return the powers of a number, as many as numbers have so many bits."""
    found = np.full(1 << bits, base, np.uint64)
    found[0] = 1
    return np.asarray(np.multiply.accumulate(found, dtype=np.uint64))


def _mixed(values: Hashes) -> Hashes:
    """Return numbers of which each bit depends on all bits of the given ones."""
    values = (values ^ (values >> np.uint64(30))) * _FACTORS[0]
    values = (values ^ (values >> np.uint64(27))) * _FACTORS[1]
    return np.asarray(values ^ (values >> np.uint64(31)))


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return _plain(values.combine_chunks())
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    is_encoded = isinstance(values, pa.DictionaryArray)
    return _plain(values.dictionary_decode()) if is_encoded else values


def _entries_of(of: pa.MapType) -> pa.DataType:
    fields = [pa.field("key", of.key_type), pa.field("value", of.item_type)]
    return pa.list_(pa.struct(fields))
