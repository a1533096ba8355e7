"""The parsers and rules of the second reader, without Spark."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from lance_bridge_migrate.second_reader.columns import conflicts, differences, holds
from lance_bridge_migrate.second_reader.csv_files import (
    Cell,
    Dialect,
    UnsupportedOptionError,
    dialect_of,
    scan,
)
from lance_bridge_migrate.second_reader.json_check import BROKEN, difference, documents_of, lines_of
from lance_bridge_migrate.second_reader.samples import as_arguments, spread
from lance_bridge_migrate.second_reader.storage import StoredFile, unregistered_partitions

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#the-second-reader")]

VALUES = st.text(st.sampled_from(list('a ,"\n\\é')), max_size=6)
RECORDS = st.lists(st.lists(VALUES, min_size=2, max_size=3), min_size=1, max_size=5)


def _written(records: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(records)
    return text.getvalue()


@given(RECORDS)
def test_records_are_those_that_pythons_csv_wrote(records: list[list[str]]) -> None:
    found = [[cell.text for cell in record] for record in Dialect().records(_written(records))]
    assert found == records


@given(RECORDS)
def test_a_scan_counts_records_and_values_across_quoted_line_breaks(
    records: list[list[str]],
) -> None:
    found = scan(io.BytesIO(_written(records).encode()), Dialect(), head=2)
    widths = [len(each) for each in records]
    assert (found.records, found.values) == (len(records), widths[0])
    assert found.shorter == sum(each < widths[0] for each in widths)
    assert bool(found.longer) == any(each > widths[0] for each in widths)
    values = [value for record in records for value in record]
    assert ("break" in found.seen) == any("\n" in value for value in values)
    assert ("empty" in found.seen) == any(value == "" for value in values)
    assert found.is_utf8


def test_values_keep_what_makes_them_null_or_empty() -> None:
    [first, second] = Dialect().records('1,"",,x "y"\n\n2,"a"b,"c')
    assert first == [Cell("1"), Cell("", is_quoted=True), Cell(""), Cell('x "y"')]
    assert second == [Cell("2"), Cell("ab", is_quoted=True), Cell('"c')]
    [escaped] = replace(Dialect(), escape="\\").records('"say \\"hi\\", ok",\\n')
    assert [cell.text for cell in escaped] == ['say "hi", ok', "\\n"]


def test_options_that_it_does_not_know_are_named() -> None:
    given_options = {"SEP": "\\t", "Header": "TRUE", "charset": "latin-1"}
    found = dialect_of(given_options)
    assert (found.separator, found.has_header, found.encoding) == ("\t", True, "latin-1")
    for option, value in (("comment", "#"), ("lineSep", "|"), ("sep", "||"), ("quote", "")):
        with pytest.raises(UnsupportedOptionError, match=option):
            dialect_of({option: value})


def test_records_on_which_readers_disagree_are_found_far_into_a_file() -> None:
    plain = b"1,some text\n" * 900_000
    odd = b'2,"a\nb"\n3,caf\xe9\n4,x,EXTRA\n'
    found = scan(io.BytesIO(b"id,t\n" + plain + odd), Dialect(), head=3)
    assert found.head == b"id,t\n" + b"1,some text\n" * 2
    assert (found.records, found.is_utf8, found.is_whole) == (900_004, False, True)
    assert found.longer == [(900_004, b"4,x,EXTRA\n")]
    assert any(b'2,"a\nb"\n' in each for each in found.odd)
    found = scan(io.BytesIO(plain), Dialect(), head=3, limit=100)
    assert (found.records, found.is_whole) == (8, False)


@pytest.mark.parametrize(
    ("stored", "read", "is_held"),
    [
        (pa.int32(), spark.LongType(), True),
        (pa.int64(), spark.IntegerType(), False),
        (pa.uint32(), spark.IntegerType(), False),
        (pa.uint32(), spark.LongType(), True),
        (pa.uint64(), spark.DecimalType(20, 0), True),
        (pa.int64(), spark.DoubleType(), False),
        (pa.int32(), spark.DoubleType(), True),
        (pa.float64(), spark.FloatType(), False),
        (pa.decimal128(10, 2), spark.DecimalType(12, 4), True),
        (pa.decimal128(10, 2), spark.DecimalType(11, 4), False),
        (pa.int64(), spark.TimestampNTZType(), True),
        (pa.int64(), spark.TimestampType(), False),
        (pa.string(), spark.LongType(), False),
        (pa.dictionary(pa.int8(), pa.string()), spark.StringType(), True),
        (pa.timestamp("us", "UTC"), spark.TimestampNTZType(), False),
        (pa.timestamp("ns"), spark.TimestampType(), True),
        (pa.date32(), spark.LongType(), False),
        (pa.duration("us"), spark.LongType(), False),
        (pa.duration("us"), spark.DayTimeIntervalType(), True),
        (pa.null(), spark.DateType(), True),
        (pa.list_(pa.int8()), spark.StringType(), False),
    ],
)
def test_a_type_holds_the_values_of_another(
    stored: pa.DataType, read: spark.DataType, is_held: bool
) -> None:
    assert holds(stored, read) is is_held


def test_differences_name_the_path_down_to_the_field() -> None:
    columns = spark.StructType().add("ID", "long").add("part", "integer")
    inner = spark.StructType().add("a", "integer")
    counts = spark.MapType(spark.StringType(), spark.IntegerType())
    columns = columns.add("items", spark.ArrayType(inner)).add("m", counts)
    stored = pa.schema(
        {
            "id": pa.int64(),
            "part": pa.string(),
            "items": pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()})),
            "m": pa.map_(pa.string(), pa.int64()),
        }
    )
    found = differences({"f": stored}, columns, ["Part"])
    assert [(each.path, each.read_as) for each in found] == [
        ("items[].a", "int"),
        ("items[].b", ""),
        ("m[value]", "int"),
    ]
    by_position = pa.schema({"_col0": pa.int64(), "_col1": pa.int64()})
    found = differences({"f": by_position}, spark.StructType().add("x", "long"), [])
    assert [(each.path, each.read_as) for each in found] == [("_col1", "")]
    one, other = (pa.schema({"m": pa.struct({"x": each})}) for each in (pa.int8(), pa.string()))
    assert [each.path for each in conflicts({"a": one, "b": other})] == ["m.x"]


_POINTS = spark.ArrayType(spark.StructType().add("y", "integer"))
JSON = (
    spark.StructType()
    .add("a", "long")
    .add("d", "double")
    .add("t", "string")
    .add("s", spark.StructType().add("x", _POINTS))
    .add("n", spark.DecimalType(20, 0))
)


@pytest.mark.parametrize(
    ("value", "read", "path"),
    [
        ({"a": 1, "t": {"any": 1}}, {"a": 1, "t": "{}"}, None),
        ({"a": 1}, {"a": None}, "a"),
        ({"d": 2**53 + 1}, {"d": float(2**53)}, "d"),
        ({"d": float("nan")}, {"d": float("nan")}, None),
        ({"n": 12345678901234567890}, {"n": 12345678901234567890}, None),
        ({"more": 1}, {}, "more"),
        ({"more": {}}, {}, None),
        ({"s": {"x": [{"y": 1}, {"z": 2}]}}, {"s": {"x": [{"y": 1}, {"y": None}]}}, "s.x[].z"),
        ({"s": {"x": [{"y": 1}]}}, {"s": {"x": []}}, "s.x"),
        ({"t": "x"}, {"t": "y"}, "t"),
    ],
)
def test_a_value_of_json_differs_where_spark_reads_another(
    value: Any, read: dict[str, Any], path: str | None
) -> None:
    assert difference(value, {**dict.fromkeys(JSON.names), **read}, JSON) == path


def test_objects_of_json_are_those_of_lines_or_of_lists() -> None:
    assert [*lines_of('{"a": 1}\r\n\n[{"a": 2}, 3]\n{"a"\n')] == [
        {"a": 1},
        {"a": 2},
        BROKEN,
        BROKEN,
    ]
    assert [*documents_of('[\n{"a": 1},\n{"a": 2}]\n{"a":\n3}')] == [{"a": 1}, {"a": 2}, {"a": 3}]
    with pytest.raises(ValueError, match="Expecting"):
        [*documents_of('{"a"')]


def test_partitions_are_registered_by_their_directories() -> None:
    names = ("k=1/a", "k=2/a", "k=2/b", "k=a%20b/c", "plain/x", "k=3/_temporary/x", "k=4/.x")
    stored = [StoredFile(f"/t/{name}", name, 1) for name in names]
    known = ["file:/t/k=1", "hdfs://host/t/k=a%20b"]
    assert [*unregistered_partitions(stored, known, 1)] == ["/t/k=2", "/t/k=a%20b"]
    assert [*unregistered_partitions(stored, [*known, "/t/k=a%20b"], 1)] == ["/t/k=2"]


def test_options_are_shown_as_a_shell_takes_them() -> None:
    shown = as_arguments({"escape": '"', "lineSep": "\n"})
    assert shown == "--read-option 'escape=\"' --read-option $'lineSep=\\n'"
    assert spread([str(n) for n in range(100)], 3) == ["0", "49", "99"]


def test_columns_that_differ_in_letter_case_are_compared_by_their_own_names() -> None:
    stored = pa.schema([("id", pa.int64()), ("Id", pa.string()), ("N", pa.int32())])
    read = spark.StructType().add("Id", "string").add("id", "long").add("n", "integer")
    assert differences({"a": stored}, read, ()) == []
    [found] = differences({"a": stored}, read.add("N", "date"), ())
    assert (found.path, found.read_as) == ("N", "date")
