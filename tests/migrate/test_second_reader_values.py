"""How the second reader compares values and reads what files say of themselves, without Spark."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from migrate.avro_writer import avro_file

from lance_bridge_migrate.second_reader import footers
from lance_bridge_migrate.second_reader.csv_files import Dialect, parsed
from lance_bridge_migrate.second_reader.hashes import IncomparableError, combined, hashes

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#the-second-reader")]

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
    assert footers.schema_of(AVRO) == pa.schema(
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
    assert footers.read_columns(file).names == ["id", "t"]
    assert footers.count_rows(file) == 70
    for damaged in (b"Obj\x02", data[:30], b"Obj\x01\x00", b"Obj\x01" + b"\xff" * 20):
        with pytest.raises(ValueError, match=r"Avro|early|schema|damaged"):
            footers.read_columns(io.BytesIO(damaged))
    with pytest.raises(ValueError, match="records"):
        footers.schema_of(json.loads('"long"'))


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
