"""Every type of Lance as Spark reads it: the values, and the type that holds all of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lance_bridge_spark.source import types

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.spec("spark.md#reading-types")]

DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
UTC = dt.timezone.utc

READ: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "boolean": (pa.bool_(), "boolean", [True, False, None]),
    "int8": (pa.int8(), "tinyint", [-128, 127, None]),
    "int16": (pa.int16(), "smallint", [-32768, 32767, None]),
    "int32": (pa.int32(), "int", [-(2**31), 2**31 - 1, None]),
    "int64": (pa.int64(), "bigint", [-(2**63), 2**63 - 1, None]),
    "uint8": (pa.uint8(), "smallint", [0, 255, None]),
    "uint16": (pa.uint16(), "int", [0, 65535, None]),
    "uint32": (pa.uint32(), "bigint", [0, 2**32 - 1, None]),
    "uint64": (pa.uint64(), "decimal(20,0)", [0, 2**64 - 1, None]),
    "float16": (pa.float16(), "float", [0.5, -2.0, None]),
    "float32": (pa.float32(), "float", [0.5, -2.0, None]),
    "float64": (pa.float64(), "double", [0.1, -1e300, None]),
    "decimal": (pa.decimal128(38, 18), "decimal(38,18)", [Decimal("1.000000000000000001"), None]),
    "string": (pa.string(), "string", ["", "häß", None]),
    "large_string": (pa.large_string(), "string", ["", "häß", None]),
    "binary": (pa.binary(), "binary", [b"", b"\x00\xff", None]),
    "large_binary": (pa.large_binary(), "binary", [b"", b"\x00\xff", None]),
    "fixed_binary": (pa.binary(2), "binary", [b"ab", b"\x00\xff", None]),
    "date": (pa.date32(), "date", [DAY, dt.date(1, 1, 1), None]),
    "date64": (pa.date64(), "date", [DAY, dt.date(1969, 12, 31), None]),
    "timestamp_s": (pa.timestamp("s"), "timestamp_ntz", [NOON.replace(microsecond=0), None]),
    "timestamp_ms": (pa.timestamp("ms"), "timestamp_ntz", [NOON.replace(microsecond=0), None]),
    "timestamp_us": (pa.timestamp("us"), "timestamp_ntz", [NOON, None]),
    "timestamp_ns": (pa.timestamp("ns"), "timestamp_ntz", [NOON, None]),
    "time_s": (pa.time32("s"), "bigint", [86_399, 0, None]),
    "time_us": (pa.time64("us"), "bigint", [86_399_999_999, 0, None]),
    "duration": (
        pa.duration("us"),
        "interval day to second",
        [dt.timedelta(days=-3, microseconds=1), None],
    ),
    "list": (pa.list_(pa.int32()), "array<int>", [[1, None, 3], [], None]),
    "large_list": (pa.large_list(pa.string()), "array<string>", [["a", None], [], None]),
    "vectors": (pa.list_(pa.float32(), 2), "array<float>", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    "vectors_with_null": (
        pa.list_(pa.float32(), 2),
        "array<float>",
        [[1.0, 2.0], None, [5.0, 6.0]],
    ),
    "half_vectors": (pa.list_(pa.float16(), 2), "array<float>", [[1.0, 2.0], [3.0, 4.0]]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "string", ["a", "b", "a", None]),
    "struct": (
        pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.float32(), 2))]),
        "struct<a:smallint,b:array<float>>",
        [{"a": 1, "b": [1.0, 2.0]}, {"a": None, "b": [3.0, 4.0]}],
    ),
    "list_of_structs": (
        pa.list_(pa.struct([("a", pa.large_string())])),
        "array<struct<a:string>>",
        [[{"a": "x"}, {"a": None}], [], None],
    ),
    "list_of_vectors": (
        pa.list_(pa.list_(pa.float32(), 2)),
        "array<array<float>>",
        [[[1.0, 2.0], [3.0, 4.0]], [], None],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), "map<string,bigint>", [[("a", 1)], [], None]),
}


def table_of_all(directory: Path) -> str:
    """Write a table with a column of each type, padded with null to one length."""
    columns = {}
    for name, (kind, _, values) in READ.items():
        padded = [*values, *[values[-1]] * (4 - len(values))]
        if pa.types.is_dictionary(kind):
            columns[name] = pa.array(padded, pa.string()).dictionary_encode().cast(kind)
        else:
            columns[name] = pa.array(padded, kind)
    place = str(directory / "all.lance")
    lance.write_dataset(pa.table(columns), place)
    return place


def test_every_column_is_read_with_all_its_values(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("lance").load(table_of_all(tmp_path))
    found: dict[str, tuple[str, list[Any]]] = {
        field.name: (field.dataType.simpleString(), []) for field in frame.schema.fields
    }
    for row in frame.collect():
        for name, value in row.asDict(recursive=True).items():
            found[name][1].append(bytes(value) if isinstance(value, bytearray) else value)
    expected = {
        name: (type_name, [dict(v) if name == "map" and v is not None else v for v in values])
        for name, (_, type_name, values) in READ.items()
    }
    assert {n: (kind, v[: len(READ[n][2])]) for n, (kind, v) in found.items()} == expected


def test_a_time_with_a_zone_is_the_same_moment_in_every_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    moment = NOON.replace(tzinfo=UTC)
    zones = {zone: pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin", "+05:30")}
    table = pa.table({zone: pa.array([moment, None], kind) for zone, kind in zones.items()})
    lance.write_dataset(table, str(tmp_path / "t.lance"))

    frame = spark.read.format("lance").load(str(tmp_path / "t.lance"))

    assert [each.dataType.simpleString() for each in frame.schema] == ["timestamp"] * 3
    found = frame.selectExpr(*(f"unix_micros(`{zone}`) as `{zone}`" for zone in zones)).first()
    assert found is not None
    micros = int(moment.timestamp()) * 1_000_000 + moment.microsecond
    assert set(found.asDict().values()) == {micros}


def test_what_a_microsecond_cannot_hold_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    lance.write_dataset(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), str(tmp_path / "t"))
    frame = spark.read.format("lance").load(str(tmp_path / "t"))
    with pytest.raises(Exception, match=r"LANCE_INVALID_INPUT\] Column 'at' cannot be read"):
        frame.collect()


def test_an_extension_is_read_as_what_it_is_stored_as() -> None:
    assert types.read_type(pa.uuid()) == pa.binary()
