"""A table's columns in Hive's syntax: every type of Arrow, odd names, and a catalog's limits."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_bridge.catalog import Column
from lance_bridge.hive_columns import COMMENT_LENGTH, NAME_LENGTH, hive_columns
from lance_bridge.spark_types import columns_of

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#published-columns")]

TYPES = {
    "bigint": pa.int64(),
    "tinyint": pa.int8(),
    "int": pa.uint16(),
    "decimal(20,0)": pa.uint64(),
    "float": pa.float16(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "array<float>": pa.list_(pa.float32(), 768),
    "array<array<double>>": pa.list_(pa.list_(pa.float64(), 4)),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
    "struct<a:int,b:array<string>>": pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())}),
    "struct<a_b:int,c:string>": pa.struct({"a-b": pa.int32(), "C": pa.null()}),
    "struct<a:int,a_2:int>": pa.struct({"a": pa.int32(), "A": pa.int32()}),
}


def published(*columns: Column, type_length: int = 4000) -> list[tuple[str, str, str]]:
    found = hive_columns(columns, type_length=type_length)
    return [(each.name, each.type, each.comment) for each in found]


@pytest.mark.parametrize(("text", "arrow"), TYPES.items(), ids=TYPES)
def test_types_are_hives(text: str, arrow: pa.DataType) -> None:
    [column] = columns_of(pa.schema({"c": arrow}))
    assert published(column) == [("c", text, "")]


def test_names_are_folded_and_none_is_lost() -> None:
    columns = [Column(name, "integer") for name in ("id", "ID", "id_2", "", "a\nb", "Größe", "Id")]
    found = published(*columns)
    assert [name for name, _, _ in found] == ["id", "id_3", "id_2", "_", "a_b", "größe", "id_4"]
    assert [note for _, _, note in found] == [
        "",
        "Lance column 'ID'",
        "",
        "Lance column ''",
        r"Lance column 'a\nb'",
        "Lance column 'Größe'",
        "Lance column 'Id'",
    ]


def test_long_names_are_cut_and_stay_distinct() -> None:
    names = ["x" * 300, "x" * 301, "x" * NAME_LENGTH]
    found = published(*(Column(name, "string") for name in names))
    assert {len(name) for name, _, _ in found} == {NAME_LENGTH}
    assert len({name for name, _, _ in found}) == len(names)
    assert max(len(note) for _, _, note in found) == COMMENT_LENGTH


def test_a_long_type_loses_its_deepest_levels() -> None:
    inner = pa.struct({f"field_{number}": pa.int32() for number in range(300)})
    schema = pa.schema({"wide": inner, "deep": pa.list_(pa.struct({"a": inner, "b": pa.int8()}))})
    wide, deep = published(*columns_of(schema))
    assert wide == ("wide", "string", "shortened type")
    assert deep == ("deep", "array<struct<a:string,b:tinyint>>", "shortened type")
    whole = published(*columns_of(schema), type_length=131_072)
    assert len(whole[0][1]) > 4000
    assert whole[0][2] == whole[1][2] == ""


def test_very_deep_types_are_cut() -> None:
    arrow = pa.int8()
    for _ in range(100):
        arrow = pa.list_(arrow)
    [(_, text, note)] = published(*columns_of(pa.schema({"c": arrow})))
    assert text == "array<" * 31 + "string" + ">" * 31
    assert note == "shortened type"


@given(st.lists(st.text(max_size=300), max_size=20), st.integers(6, 200))
def test_any_names_and_limits_give_one_valid_column_for_each(names: list[str], limit: int) -> None:
    fields = pa.struct({str(number): pa.int32() for number in range(20)})
    types = [each.type for each in columns_of(pa.schema({"s": fields, "i": pa.int64()}))]
    columns = [Column(name, types[number % 2]) for number, name in enumerate(names)]
    found = hive_columns(columns, type_length=limit)
    assert len(found) == len(names)
    assert len({each.name for each in found}) == len(names)
    for each in found:
        assert 1 <= len(each.name) <= NAME_LENGTH
        assert len(each.type) <= limit
        assert len(each.comment) <= COMMENT_LENGTH
        assert not re.search(r"[\x00-\x1f\x7f]", each.name + each.type + each.comment)
