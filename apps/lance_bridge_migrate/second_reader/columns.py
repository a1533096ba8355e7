"""Compare the columns of files, as the second reader gives them, with those that Spark reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as spark

from lance_bridge.blobs import is_blob
from lance_bridge.dotted_names import same_names

_ORC_POSITION = "_col"
"""The start of column names in ORC files of old releases of Hive, which are read by position."""
_INTEGERS: dict[type[spark.DataType], int] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}
DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""The decimal digits of integers, by their bits."""
_BITS_OF_FLOAT, _BITS_OF_DOUBLE = 16, 32
"""The largest integers that a float or a double holds without rounding."""
_TEXTS = (spark.StringType, spark.CharType, spark.VarcharType)


@dataclass(frozen=True)
class Difference:
    """A column, or a field of one, that Spark reads otherwise than it is in a file.

    Attributes:
        path: The names down to the field, such as ``items[].price``.
        stored: Its type in the file.
        read_as: The type that Spark reads; "" if it does not read the field.
    """

    file: str
    path: str
    stored: str
    read_as: str = ""


def differences(
    schemas: Mapping[str, pa.Schema], columns: spark.StructType, partitions: Sequence[str]
) -> list[Difference]:
    """Return the differences, one for each path and type.

    Args:
        partitions: Columns whose values are those of directories, whatever the files contain.
    """
    found: dict[tuple[str, str], Difference] = {}
    skipped = {name.lower() for name in partitions}
    for file, schema in schemas.items():
        data = [each for each in columns.fields if each.name.lower() not in skipped]
        stored = [each for each in schema if each.name.lower() not in skipped]
        names = names_of([each.name for each in stored], [each.name for each in data])
        stored = [each.with_name(name) for each, name in zip(stored, names, strict=True)]
        for each in _in_fields(stored, data, "", file):
            found.setdefault((each.path.lower(), each.stored), each)
    return list(found.values())


def names_of(stored: Sequence[str], read: Sequence[str]) -> Sequence[str]:
    """Return the names of a file's columns: those that Spark reads if they are by position."""
    if not all(name.startswith(_ORC_POSITION) for name in stored):
        return stored
    return [*read[: len(stored)], *stored[len(read) :]]


def conflicts(schemas: Mapping[str, pa.Schema]) -> list[Difference]:
    """Return the columns and fields that have another type in a later file than in an earlier one.

    Attributes of a difference are those of the later file; `Difference.read_as` is the first type.
    """
    first: dict[str, pa.DataType] = {}
    found: dict[str, Difference] = {}
    for file, schema in schemas.items():
        for path, data_type in _leaves(schema):
            known = first.setdefault(path.lower(), data_type)
            if known != data_type:
                each = Difference(file, path, str(data_type), str(known))
                found.setdefault(path.lower(), each)
    return list(found.values())


def _leaves(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        path, stored = f"{above}{field.name}", plain_type(field.type)
        while is_list(stored):
            path, stored = f"{path}[]", plain_type(stored.value_type)
        if pa.types.is_struct(stored):
            inner = (stored.field(number) for number in range(stored.num_fields))
            yield from _leaves(inner, f"{path}.")
        else:
            yield path, stored


def _in_fields(
    stored: Sequence[pa.Field], read: Sequence[spark.StructField], above: str, file: str
) -> Iterator[Difference]:
    known = {each.name: each.dataType for each in read}
    for field in stored:
        path = f"{above}{field.name}"
        same = same_names(field.name, [*known])
        if not same:
            yield Difference(file, path, str(field.type))
        else:
            yield from _in_type(field.type, known[same[0]], path, file)


def _in_type(
    stored: pa.DataType, read: spark.DataType, path: str, file: str
) -> Iterator[Difference]:
    stored = plain_type(stored)
    if isinstance(read, spark.VariantType):
        return
    if pa.types.is_struct(stored) and isinstance(read, spark.StructType):
        fields = [stored.field(number) for number in range(stored.num_fields)]
        yield from _in_fields(fields, read.fields, f"{path}.", file)
    elif pa.types.is_map(stored) and isinstance(read, spark.MapType):
        yield from _in_type(stored.key_type, read.keyType, f"{path}[key]", file)
        yield from _in_type(stored.item_type, read.valueType, f"{path}[value]", file)
    elif is_list(stored) and isinstance(read, spark.ArrayType):
        yield from _in_type(stored.value_type, read.elementType, f"{path}[]", file)
    elif not holds(stored, read):
        yield Difference(file, path, str(stored), read.simpleString())


def plain_type(stored: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves: that in an extension, or in a dictionary."""
    if isinstance(stored, pa.BaseExtensionType):
        return plain_type(stored.storage_type)
    return plain_type(stored.value_type) if pa.types.is_dictionary(stored) else stored


def has_extension(field: pa.Field) -> bool:
    """Return whether a field is of an extension type or a blob of Lance, or has one inside."""
    if isinstance(field.type, pa.BaseExtensionType) or is_blob(field):
        return True
    return any(has_extension(field.type.field(n)) for n in range(field.type.num_fields))


def is_list(stored: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's types of lists."""
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list,
              pa.types.is_list_view, pa.types.is_large_list_view)  # fmt: skip
    return any(check(stored) for check in checks)


def holds(stored: pa.DataType, read: spark.DataType) -> bool:
    """Return whether a type of Spark holds all values of a type in a file.

    Types of Spark that this module does not know hold everything: they are Spark's to check.
    """
    if pa.types.is_null(stored):
        return True
    for check, rule in _RULES:
        if check(stored):
            return rule(stored, read)
    return not pa.types.is_nested(stored) or not isinstance(read, _KNOWN)


def _integer(stored: pa.DataType, read: spark.DataType) -> bool:
    is_unsigned = pa.types.is_unsigned_integer(stored)
    bits = int(stored.bit_width) + (1 if is_unsigned else 0)
    if isinstance(read, spark.DecimalType):
        digits = 20 if bits > 64 else DIGITS[stored.bit_width]
        return read.precision - read.scale >= digits
    if isinstance(read, spark.FloatType):
        return bits <= _BITS_OF_FLOAT
    if isinstance(read, spark.DoubleType):
        return bits <= _BITS_OF_DOUBLE + 1
    if type(read) in _INTEGERS:
        return bits <= _INTEGERS[type(read)]
    if isinstance(read, spark.TimestampNTZType):  # as Spark writes them to ORC
        return bits == _INTEGERS[spark.LongType]
    return isinstance(read, _TEXTS) or not isinstance(read, _KNOWN)


def _floating(stored: pa.DataType, read: spark.DataType) -> bool:
    if pa.types.is_float16(stored):
        return isinstance(read, (spark.FloatType, spark.DoubleType, spark.BinaryType))
    if pa.types.is_float32(stored):
        return isinstance(read, (spark.FloatType, spark.DoubleType, *_TEXTS))
    return isinstance(read, (spark.DoubleType, *_TEXTS))


def _decimal(stored: pa.DataType, read: spark.DataType) -> bool:
    if isinstance(read, spark.DecimalType):
        whole = stored.precision - stored.scale
        return bool(read.scale >= stored.scale and read.precision - read.scale >= whole)
    if type(read) in _INTEGERS and stored.scale == 0:
        return bool(stored.precision < DIGITS[_INTEGERS[type(read)]])
    return isinstance(read, _TEXTS)


def _timestamp(stored: pa.DataType, read: spark.DataType) -> bool:
    if isinstance(read, spark.LongType):  # with spark.sql.legacy.parquet.nanosAsLong
        return bool(stored.unit == "ns")
    is_moment = stored.tz is not None
    return isinstance(read, (spark.TimestampType, *_TEXTS)) or (
        isinstance(read, spark.TimestampNTZType) and not is_moment
    )


_KNOWN = (spark.BooleanType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType,
          spark.FloatType, spark.DoubleType, spark.DecimalType, *_TEXTS, spark.BinaryType,
          spark.DateType, spark.TimestampType, spark.TimestampNTZType, spark.ArrayType,
          spark.MapType, spark.StructType)  # fmt: skip


def _is_text(stored: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
              pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
              pa.types.is_fixed_size_binary)  # fmt: skip
    return any(check(stored) for check in checks)


_Check = Callable[[pa.DataType], bool]
_Rule = Callable[[pa.DataType, spark.DataType], bool]
_DATES = (spark.DateType, spark.TimestampType, spark.TimestampNTZType, *_TEXTS)
_RULES: tuple[tuple[_Check, _Rule], ...] = (
    (pa.types.is_boolean, lambda _, read: isinstance(read, (spark.BooleanType, *_TEXTS))),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (
        _is_text,
        lambda _, r: isinstance(r, (spark.BinaryType, *_TEXTS)) or not isinstance(r, _KNOWN),
    ),
    (pa.types.is_date, lambda _, read: isinstance(read, _DATES)),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_duration, lambda _, read: isinstance(read, spark.DayTimeIntervalType)),
)
