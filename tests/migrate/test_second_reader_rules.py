"""Rules of the second reader, without Spark: parsers, values, and the metadata of lakes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from lance_bridge_migrate.second_reader.columns import conflicts, differences, holds
from lance_bridge_migrate.second_reader.csv_check import Cell, Dialect, dialect_of, parsed, scan
from lance_bridge_migrate.second_reader.delta_iceberg import Snapshot, read_snapshot
from lance_bridge_migrate.second_reader.hashes import IncomparableError, combined, hashes
from lance_bridge_migrate.second_reader.json_check import BROKEN, difference, documents_of, lines_of
from lance_bridge_migrate.second_reader.parquet_orc_avro import (
    count_avro_rows,
    read_avro_columns,
    schema_of_avro,
)
from lance_bridge_migrate.second_reader.rows import rows_at_once
from lance_bridge_migrate.second_reader.storage import (
    Storage,
    StoredFile,
    UnreachableError,
    as_arguments,
    spread,
    unregistered_partitions,
)
from lance_bridge_migrate.spark.sources import SourceTable

from .places import avro_file

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#the-second-reader")]

VALUES = st.text(st.sampled_from(list('a ,"\n\\é')), max_size=6)
RECORDS = st.lists(st.lists(VALUES, min_size=2, max_size=3), min_size=1, max_size=5)
TEXTS = st.one_of(st.none(), st.text(max_size=4), st.just("long " * 40))
STRUCT = pa.struct({"a": pa.int64(), "t": pa.string()})
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "numbers": (pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1)),
    "texts": (pa.string(), TEXTS),
    "lists": (pa.list_(pa.string()), st.none() | st.lists(TEXTS, max_size=3)),
    "structs": (
        STRUCT,
        st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "t": TEXTS}),
    ),
    "maps": (
        pa.map_(pa.string(), pa.int64()),
        st.none() | st.lists(st.tuples(st.text(max_size=2), st.integers(0, 3)), max_size=2),
    ),
}
COLUMN = '{"name": "%s", "type": "long", "nullable": true, "metadata": {}}'
COLUMNS = f'{{"type": "struct", "fields": [{COLUMN}]}}'


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
        with pytest.raises(UnreachableError, match=option):
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
    assert unregistered_partitions(stored, known, 1) == {"/t/k=2", "/t/k=a%20b"}
    assert unregistered_partitions(stored, [*known, "/t/k=a%20b"], 1) == {"/t/k=2"}


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


# -- values, and what files say of themselves ------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_hashes_are_equal_where_values_are(kind: str, data: st.DataObject) -> None:
    of, values = KINDS[kind]
    found = data.draw(st.lists(values, max_size=6))
    array = pa.array(found, of)
    made = hashes(array, of)
    for one, first in zip(found, made, strict=True):
        assert [one == other for other in found] == (made == first).tolist()
    # As parts of a longer array, values have the same hashes.
    sliced = pa.concat_arrays([array, array]).slice(len(found) // 2, len(found))
    expected = np.concatenate([made, made])[len(found) // 2 :][: len(found)]
    assert hashes(sliced, of).tolist() == expected.tolist()


SAME: dict[str, tuple[pa.Array, pa.Array]] = {
    "widened": (pa.array([1, None, -3], pa.int32()), pa.array([1, None, -3])),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), pa.array([2**64 - 1], pa.decimal128(20, 0))),
    "zeros": (pa.array([-0.0, math.nan]), pa.array([0.0, -math.nan])),
    "bytes": (pa.array([b"x", None]), pa.array(["x", None])),
    "dictionary": (pa.array(["x", "y", "x"]).dictionary_encode(), pa.array(["x", "y", "x"])),
    "vectors": (pa.array([[1.0, 2.0], None]), pa.array([[1, 2], None], pa.list_(pa.float64(), 2))),
    "scale": (pa.array([Decimal("1.5")]), pa.array([Decimal("1.500")])),
    "unit": (pa.array([1], pa.timestamp("ms", "UTC")), pa.array([1000], pa.timestamp("us"))),
    "day": (pa.array([1], pa.date32()), pa.array([86_400_000_000], pa.timestamp("us"))),
    "fields": (pa.array([{"T": "x", "A": 1, "more": 1}]), pa.array([{"a": 1, "t": "x"}], STRUCT)),
    "no field": (pa.array([{"a": 1}]), pa.array([{"a": 1, "t": None}], STRUCT)),
}


@pytest.mark.parametrize("name", SAME)
def test_hashes_are_those_of_the_values_in_the_other_type(name: str) -> None:
    stored, wanted = SAME[name]
    assert hashes(stored, wanted.type).tolist() == hashes(wanted, wanted.type).tolist()


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint32(), pa.int32()),
        (pa.int64(), pa.decimal128(10, 0)),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(10, 2), pa.decimal128(10, 1)),
        (pa.int64(), pa.string()),
        (pa.timestamp("us"), pa.date32()),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.struct({"x": pa.int8()}), pa.struct({"y": pa.int8()})),
    ],
)
def test_types_whose_values_others_cannot_be_are_not_compared(
    stored: pa.DataType, wanted: pa.DataType
) -> None:
    with pytest.raises(IncomparableError):
        hashes(pa.array([], stored), wanted)


def test_days_before_the_calendar_of_today_are_equal_on_demand() -> None:
    days = pa.array([-141_428, -150_000, -141_427, -141_426], pa.date32())
    assert len({*hashes(days, days.type).tolist()}) == 4
    assert len({*hashes(days, days.type, old_calendar=True).tolist()}) == 2


def test_rows_differ_if_values_change_places() -> None:
    one, other = (hashes(pa.array(values), pa.int64()) for values in ([1, 2], [1, 3]))
    assert combined([one, other], 2)[0] == combined([one, other], 2)[0]
    swapped = combined([one, other[::-1]], 2)
    assert {*swapped.tolist()}.isdisjoint(combined([one, other], 2).tolist())
    assert combined([other, one], 2)[1] != combined([one, other], 2)[1]


# -- Avro ------------------------------------------------------------------------------------------

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "namespace": "test",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "t", "type": ["null", "string"]},
        {"name": "n", "type": ["int", "long"]},
        {"name": "any", "type": ["null", "int", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "f", "type": {"type": "fixed", "name": "Key", "size": 2}},
        {"name": "g", "type": ["null", "test.Key"]},
        {"name": "l", "type": {"type": "array", "items": "Key"}},
        {"name": "m", "type": {"type": "map", "values": {"type": "enum", "name": "E"}}},
        {"name": "next", "type": ["null", "Row"]},
    ],
}


def test_the_columns_of_avro_are_those_of_spark() -> None:
    assert schema_of_avro(AVRO) == pa.schema(
        {
            "id": pa.int64(),
            "t": pa.string(),
            "n": pa.int64(),
            "any": pa.null(),
            "day": pa.date32(),
            "d": pa.decimal128(9, 0),
            "f": pa.binary(),
            "g": pa.binary(),
            "l": pa.list_(pa.binary()),
            "m": pa.map_(pa.string(), pa.string()),
            "next": pa.null(),
        }
    )


def test_rows_of_avro_are_counted_by_blocks() -> None:
    rows: list[dict[str, Any]] = [{"id": number, "t": "x" * number} for number in range(70)]
    data = avro_file(rows, block=30)
    file = io.BytesIO(data)
    assert read_avro_columns(file).names == ["id", "t"]
    assert count_avro_rows(file) == 70
    for damaged in (b"Obj\x02", data[:30], b"Obj\x01\x00", b"Obj\x01" + b"\xff" * 20):
        with pytest.raises(ValueError, match=r"Avro|early|schema|damaged"):
            read_avro_columns(io.BytesIO(damaged))
    with pytest.raises(ValueError, match="records"):
        schema_of_avro(json.loads('"long"'))


# -- records of CSV --------------------------------------------------------------------------------

CELLS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
    st.sampled_from(("a,b", 'say "hi"', "two\nlines", "\r\n", "C:\\x", " x ", "caf\u00e9", '""')),
)


@given(
    records=st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=4),
    end=st.sampled_from(("\n", "\r\n")),
    is_quoted=st.booleans(),
)
def test_both_parsers_of_csv_agree(records: list[list[str]], end: str, *, is_quoted: bool) -> None:
    def written(value: str) -> str:
        if is_quoted or any(each in value for each in ',"\n\r'):
            return '"' + value.replace('"', '""') + '"'
        return value

    text = end.join(",".join(map(written, record)) for record in records) + end
    expected = [[cell.text for cell in record] for record in Dialect().records(text)]
    assert expected == records
    table = parsed(text, Dialect(), ["a", "b"], 1)
    assert table is not None
    assert [list(row.values()) for row in table.to_pylist()] == expected[1:]


@pytest.mark.parametrize("text", ["a,b\n1,2,3\n", "a,b\n1\n"])
def test_records_of_other_lengths_are_left_to_the_slower_parser(text: str) -> None:
    assert parsed(text, Dialect(), ["a", "b"], 1) is None


def test_a_nul_and_an_escape_are_left_to_the_slower_parser() -> None:
    assert parsed("a,b\n1,2\n", Dialect(escape="\\"), ["a", "b"], 1) is None
    assert parsed("a,b\n1,2\0\n", Dialect(), ["a", "b"], 1) is None
    assert parsed("a,b\n1,2\n", Dialect(), ["a", "b"], 1) is not None


# -- metadata of Delta and Iceberg -----------------------------------------------------------------


class Files(Storage):
    """Files in memory, below ``/t``."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def open(self, uri: str) -> BinaryIO:
        try:
            return io.BytesIO(self._files[uri.removeprefix("file:///t/")])
        except KeyError as error:
            raise UnreachableError(uri) from error

    def files_below(self, location: str) -> list[StoredFile]:
        above = location.removeprefix("file:///t/") + "/"
        names = [name.removeprefix(above) for name in self._files if name.startswith(above)]
        return [StoredFile(f"/t/{above}{name}", name, 1) for name in names]


def _added(path: str, rows: int | None, vector: str = "", deleted: int = 0) -> dict[str, Any]:
    file: dict[str, Any] = {"path": path}
    if rows is not None:
        file["stats"] = json.dumps({"numRecords": rows})
    if vector:
        file["deletionVector"] = {"pathOrInlineDv": vector, "offset": 1, "cardinality": deleted}
    return {"add": file}


def _removed(path: str, vector: str = "") -> dict[str, Any]:
    file: dict[str, Any] = {"path": path}
    if vector:
        file["deletionVector"] = {"pathOrInlineDv": vector, "offset": 1}
    return {"remove": file}


def _schema(name: str) -> dict[str, Any]:
    return {"metaData": {"schemaString": COLUMNS % name}}


LOG: tuple[list[dict[str, Any]], ...] = (
    [_schema("a"), _added("one", 10), _added("two", 5)],
    [_removed("one"), _added("one", 10, "v1", 3)],
    [_removed("one", "v1"), _added("one", 10, "v2", 4), _schema("b")],
    [_removed("two"), _added("three", 7)],
)


ROWS = (15, 12, 11, 13)


def _delta(version: int, files: Mapping[str, bytes]) -> Snapshot | None:
    source = SourceTable(names=("/t",), format="delta", location="/t", snapshot=version)
    return read_snapshot(None, Files(files), source)


def _commits(log: tuple[list[dict[str, Any]], ...] = LOG, first: int = 0) -> dict[str, bytes]:
    return {
        f"_delta_log/{number:020d}.json": "\n".join(map(json.dumps, actions)).encode()
        for number, actions in enumerate(log)
        if number >= first
    }


def _checkpoint(version: int, parts: int) -> dict[str, bytes]:
    """Return a checkpoint of version 2 of `LOG`, as a file of that version or in parts."""
    rows = [LOG[2][1], {"metaData": LOG[2][2]["metaData"]}, _added("two", 5)]
    names = [f".{n + 1:010d}.{parts:010d}" for n in range(parts)] if parts > 1 else [""]
    found = {}
    for number, name in enumerate(names):
        data = io.BytesIO()
        kind = pa.struct({"path": pa.string(), "stats": pa.string(), "deletionVector": pa.struct(
            {"pathOrInlineDv": pa.string(), "offset": pa.int32(), "cardinality": pa.int64()}
        )})  # fmt: skip
        schema = pa.schema({"add": kind, "metaData": pa.struct({"schemaString": pa.string()})})
        pq.write_table(pa.Table.from_pylist(rows[number :: len(names)], schema), data)
        found[f"_delta_log/{version:020d}.checkpoint{name}.parquet"] = data.getvalue()
    return found


@pytest.mark.parametrize("version", range(len(LOG)))
def test_rows_of_delta_are_those_of_its_commits(version: int) -> None:
    found = _delta(version, _commits())
    assert found is not None
    assert (found.rows, found.columns.names) == (ROWS[version], ["b" if version > 1 else "a"])
    assert found.file.endswith(f"{2 if version > 1 else 0:020d}.json")


@pytest.mark.parametrize("parts", [1, 2])
def test_rows_of_delta_are_those_of_its_last_checkpoint_and_later_commits(parts: int) -> None:
    files = {**_commits(first=3), **_checkpoint(2, parts)}
    for version in (2, 3):
        found = _delta(version, files)
        assert found is not None
        assert (found.rows, found.columns.names) == (ROWS[version], ["b"])
    if parts > 1:  # a checkpoint that lacks a part is none
        with pytest.raises(UnreachableError, match=f"{0:020d}.json"):
            _delta(3, dict([*files.items()][:-1]))


def test_rows_of_files_without_statistics_are_unknown() -> None:
    found = _delta(0, _commits(([_schema("a"), _added("one", None)],)))
    assert (found and found.rows, found and found.columns) == (None, pa.schema({"a": pa.int64()}))
    with pytest.raises(UnreachableError, match="the metadata of"):
        _delta(0, {f"_delta_log/{0:020d}.json": b"{"})


def test_snapshots_without_rows_have_no_metadata_to_compare() -> None:
    source = SourceTable(names=("/t",), format="iceberg", location="/t")
    assert read_snapshot(None, Files({}), source) is None


FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "p", "type": "decimal(9, 2)"},
    {"name": "f", "type": "fixed[4]"},
    {"name": "v", "type": "variant"},
    {"name": "l", "type": {"type": "list", "element": "timestamptz"}},
    {"name": "m", "type": {"type": "map", "key": "string", "value": "uuid"}},
    {"name": "s", "type": {"type": "struct", "fields": [{"name": "x", "type": "date"}]}},
]


@pytest.mark.parametrize(("deletes", "rows"), [("0", 9), ("1", None)])
def test_rows_and_columns_of_iceberg_are_those_of_its_metadata(
    deletes: str, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"schema-id": 1, "type": "struct", "fields": FIELDS[:1]}
    schema = {"schema-id": 2, "type": "struct", "fields": FIELDS}
    summary = {"total-records": "9", "total-position-deletes": deletes}
    snapshot = {"snapshot-id": 7, "schema-id": 1, "summary": summary}
    metadata = {
        "current-schema-id": 2,
        "schemas": [old, schema],
        "snapshots": [{"snapshot-id": 6}, snapshot],
    }
    monkeypatch.setattr(f"{read_snapshot.__module__}._metadata_file", lambda *_: "/t/v1.json")
    source = SourceTable(names=("/t",), format="iceberg", location="/t", snapshot=7)
    found = read_snapshot(None, Files({"v1.json": json.dumps(metadata).encode()}), source)
    assert found is not None
    assert (found.rows, found.file) == (rows, "file:///t/v1.json")
    assert found.columns == pa.schema(
        {
            "id": pa.int64(),
            "p": pa.decimal128(9, 2),
            "f": pa.binary(),
            "v": pa.null(),
            "l": pa.list_(pa.timestamp("us", "UTC")),
            "m": pa.map_(pa.string(), pa.string()),
            "s": pa.struct({"x": pa.date32()}),
        }
    )
    with pytest.raises(UnreachableError):
        read_snapshot(None, Files({}), source)


@pytest.mark.parametrize(
    ("size", "rows", "expected"),
    [(100, 10, 1 << 14), (64 << 20, 64, 8), (640 << 20, 64, 1), (0, 0, 1)],
)
def test_rows_are_read_by_their_size(size: int, rows: int, expected: int) -> None:
    assert rows_at_once(size, rows) == expected
