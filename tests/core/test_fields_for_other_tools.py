"""What other tools read of a table: formats of entries, published columns, and schemas in JSON."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    PermissionDeniedError,
    UnsupportedOperationError,
)
from pyspark.sql.pandas.types import from_arrow_schema

from lance_bridge.arrow_types import columns_of, schema_to_json, spark_type, type_from_json
from lance_bridge.catalog import Column, Published
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.hive_entries import (
    COMMENT_LENGTH,
    INPUT_FORMAT,
    NAME_LENGTH,
    OUTPUT_FORMAT,
    SERDE,
    Formats,
    hive_columns,
)
from lance_bridge.records import PUBLISHED, check_properties, replace_visible
from lance_bridge.testing.calls import Calls

from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    TABLE,
    MemoryCatalog,
    MemoryNamespace,
    count_rows,
    create,
    raiser,
    stream,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#published-columns", "common.md#fields-for-other-tools"),
]

ON = {"publish.columns": "true"}
ABLE = replace(CAPABILITIES, no_alter="", publishes_columns=True)
TEXT = "org.apache.hadoop.mapred.TextInputFormat"
SIMPLE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
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
UNITS = ("s", "ms", "us", "ns")
TOLD_WHOLE = [
    *(pa.null(), pa.bool_(), pa.date32(), pa.date64()),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)),
    *(pa.timestamp("us"), pa.duration("us")),
    *(pa.decimal128(20, 3), pa.decimal128(38, -2), pa.decimal256(50, 10), pa.decimal128(5, 0)),
    *(pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.float32(), 4)),
    pa.list_(pa.field("element", pa.int32(), nullable=False)),
    pa.struct([("x", pa.int32()), pa.field("y", pa.string(), nullable=False)]),
    pa.map_(pa.string(), pa.int32()),
]
"""Types of which an answer says everything."""
WITH_UNITS = [
    *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "+02:00")),
    *(pa.duration(unit) for unit in UNITS),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
]
STORABLE = [
    *TOLD_WHOLE,
    *WITH_UNITS,
    pa.struct([]),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64())),
    pa.list_(pa.list_(pa.struct([("z", pa.list_(pa.float16(), 3))]))),
    *(pa.uuid(), pa.bool8()),
]


@pytest.fixture
def able(namespace: MemoryNamespace) -> MemoryNamespace:
    """A namespace on a catalog whose entries have columns."""
    namespace.server.capabilities = ABLE
    return namespace


def insert(ns: MemoryNamespace) -> None:
    ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream())


def entry(ns: MemoryNamespace) -> tuple[str | None, int | None]:
    """Return the version that the entry has columns of, and its number of rows."""
    record = ns.server.tables[tuple(TABLE)]
    return record.properties.get(PUBLISHED), record.published.rows if record.published else None


@pytest.mark.spec("common.md#table-properties")
@pytest.mark.parametrize("value", ["yes", "", "1", " true", "on"])
def test_other_values_are_refused(namespace: MemoryNamespace, value: str) -> None:
    with pytest.raises(InvalidInputError, match="must be true or false"):
        check_properties({"Publish.Columns": value})
    given = {"publish.columns": value}
    with pytest.raises(InvalidInputError, match="must be true or false"):
        namespace.create_namespace(api.CreateNamespaceRequest(id=["us"], properties=given))


@pytest.mark.spec("common.md#table-properties")
def test_the_value_is_in_lower_case_and_survives_a_redefinition() -> None:
    assert check_properties({"publish.COLUMNS": "True"}) == ON
    assert replace_visible(ON, {"team": "sales"}) == {**ON, "team": "sales"}
    off = {"publish.columns": "false"}
    assert replace_visible(ON, off) == off


@pytest.mark.spec(
    "common.md#createtable", "common.md#declaretable", "common.md#registertable",
    "unity.md#declaretable",
)  # fmt: skip
def test_a_catalog_without_columns_refuses_the_property_of_a_table(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    calls = Calls(namespace)
    attempts: list[Callable[[], object]] = [
        lambda: create(namespace, TABLE, properties=ON),
        lambda: calls.declare_table(TABLE, properties=ON),
        lambda: calls.register_table(TABLE, str(tmp_path / "x.lance"), properties=ON),
    ]
    for attempt in attempts:
        with pytest.raises(UnsupportedOperationError, match=r"Leave publish\.columns out"):
            attempt()
    assert namespace.server.tables == {}
    create(namespace, TABLE, properties={"publish.columns": "false"})
    insert(namespace)
    assert count_rows(namespace, TABLE) == 6


def test_a_catalog_without_columns_ignores_the_property_of_a_namespace(
    namespace: MemoryNamespace,
) -> None:
    path = tuple(DATASET)
    namespace.server.namespaces[path] = replace(namespace.server.namespaces[path], properties=ON)
    create(namespace, TABLE)
    assert "publish.columns" not in namespace.server.tables[tuple(TABLE)].properties


def test_a_wrong_value_of_a_namespace_is_named(able: MemoryNamespace) -> None:
    path = tuple(DATASET)
    wrong = {"publish.columns": "yes"}
    able.server.namespaces[path] = replace(able.server.namespaces[path], properties=wrong)
    with pytest.raises(InvalidInputError, match=r"Namespace 'eu\.shop\.sales': .* not 'yes'"):
        create(able, TABLE)
    assert able.server.tables == {}


@pytest.mark.parametrize(
    "error",
    [
        ConcurrentModificationError("always another client"),
        PermissionDeniedError("not yours"),
        OutcomeUnknownError("the reply was lost"),
        KeyError("elementType"),
        RecursionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_of_publishing_fails_a_commit(
    able: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    create(able, TABLE, properties=ON)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "lance_bridge"):
        patch.setattr(MemoryCatalog, "alter_table", raiser(error))
        insert(able)
    assert "lance-bridge doctor finds it" in caplog.text
    assert count_rows(able, TABLE) == 6
    assert entry(able) == ("1", 3)
    insert(able)
    assert entry(able) == ("3", 9)


def test_an_unreadable_location_fails_no_commit(
    able: MemoryNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(able, TABLE, properties=ON)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "lance_bridge"):
        patch.setattr(lance.LanceDataset, "count_rows", raiser(OSError("no such disk")))
        insert(able)
    assert "no such disk" in caplog.text
    assert entry(able) == ("1", 3)


@pytest.mark.parametrize("times", [1, 5])
def test_a_change_of_the_entry_at_the_same_time_is_tried_again(
    able: MemoryNamespace, times: int
) -> None:
    create(able, TABLE, properties=ON)
    left = [times]

    def fault(name: str, moment: str) -> None:
        if (name, moment) == ("alter_table", "before") and left[0]:
            left[0] -= 1
            raise ConcurrentModificationError("another client was first")

    able.server.fault = fault
    insert(able)
    assert left == [0]
    assert entry(able) == ("2", 6)


def test_a_later_version_that_was_published_meanwhile_stays(able: MemoryNamespace) -> None:
    """The writer of version 2 reads the entry and the data after version 3 was published."""
    create(able, TABLE, properties=ON)
    table = able.tables.load(tuple(TABLE))
    insert(able)
    insert(able)
    before = able.server.tables[tuple(TABLE)]
    table.publish_after_commit()
    assert able.server.tables[tuple(TABLE)] == before
    assert entry(able) == ("3", 9)


def test_turned_off_it_is_removed(able: MemoryNamespace) -> None:
    create(able, TABLE, properties=ON)
    table = able.tables.load(tuple(TABLE)).add_properties({"publish.columns": "false"})
    assert "should have none" in able.tables.load(tuple(TABLE)).find_outdated_columns()
    refreshed = table.refresh_entry()
    assert refreshed.find_outdated_columns() == ""
    record = able.server.tables[tuple(TABLE)]
    assert record.published == Published()
    assert PUBLISHED not in record.properties


@pytest.mark.parametrize(
    ("found", "wanted", "problems"),
    [
        (Formats(), Formats(), ()),
        (
            Formats(None, None, None),
            Formats(),
            ("no input format", "no output format", "no SerDe"),
        ),
        (Formats("", "", ""), Formats(), ("no input format", "no output format", "no SerDe")),
        (
            Formats("a.In", None, "a.SerDe"),
            Formats("a.In", OUTPUT_FORMAT, "a.SerDe"),
            ("no output format",),
        ),
        (Formats("a.In", "a.Out", None), Formats("a.In", "a.Out", SERDE), ("no SerDe",)),
        (Formats(TEXT, "a.Out", SIMPLE), Formats(TEXT, "a.Out", SIMPLE), ()),
        (Formats(INPUT_FORMAT, OUTPUT_FORMAT, SIMPLE), Formats(), ("the SerDe of text files",)),
        (Formats(INPUT_FORMAT, None, "a.SerDe"), Formats(serde="a.SerDe"), ("no output format",)),
    ],
    ids=["ours", "none", "empty", "no output", "no SerDe", "text of others", "earlier", "mixed"],
)
def test_missing_formats_are_added_and_those_of_others_stay(
    found: Formats, wanted: Formats, problems: tuple[str, ...]
) -> None:
    assert (found.completed(), found.problems()) == (wanted, problems)
    assert wanted.completed() == wanted
    assert wanted.problems() == ()


def test_no_tool_takes_an_entry_of_ours_for_text() -> None:
    """By these words, OpenMetadata and others recognise a format in the name of a SerDe."""
    words = ("simple", "csv", "tsv", "json", "parquet", "orc", "avro", "regex", "text")
    names = [name.rpartition(".")[2].lower() for name in (INPUT_FORMAT, SERDE)]
    assert [word for word in words for name in names if word in name] == []


# -- columns in Hive's syntax ----------------------------------------------------------------------


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


# -- schemas in JSON -------------------------------------------------------------------------------


def both_answers(directory: Path, schema: pa.Schema) -> tuple[Any, Any]:
    """Return our JSON form of a stored schema, and that of the directory namespace."""
    lance.write_dataset(schema.empty_table(), str(directory / "t.lance"))
    stored = lance.dataset(str(directory / "t.lance")).schema
    namespace = api.connect("dir", {"root": str(directory)})
    request = api.DescribeTableRequest(id=["t"], load_detailed_metadata=True)
    expected = namespace.describe_table(request).var_schema
    assert expected is not None
    return schema_to_json(stored).to_dict(), expected.to_dict()


def test_every_type_that_lance_stores_is_answered_alike(tmp_path: Path) -> None:
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(STORABLE)]
    fields += [
        pa.field(f"r{number}", pa.list_(kind) if pa.types.is_null(kind) else kind, nullable=False)
        for number, kind in enumerate(STORABLE)
    ]
    ours, expected = both_answers(tmp_path, pa.schema(fields))
    assert len(ours["fields"]) == len(fields)
    assert ours == expected


def test_metadata_of_fields_and_schema_is_answered_alike(tmp_path: Path) -> None:
    field = pa.field("c", pa.int32(), metadata={"unit": "mm", "ü": "ö"})
    ours, expected = both_answers(tmp_path, pa.schema([field], metadata={"made by": "test"}))
    assert ours == expected
    assert ours["fields"][0]["metadata"] == {"unit": "mm", "ü": "ö"}
    assert ours["metadata"] == {"made by": "test"}


def test_json_columns_are_answered_as_readers_get_them() -> None:
    """Lance keeps them in a form of its own, which the directory namespace tells instead."""
    answer = schema_to_json(pa.schema([pa.field("c", pa.json_())])).to_dict()["fields"][0]
    assert answer["type"] == {"type": "utf8"}
    assert answer["metadata"]["ARROW:extension:name"] == "arrow.json"


def test_metadata_that_is_no_text_is_still_answered() -> None:
    answer = schema_to_json(
        pa.schema([pa.field("c", pa.int8(), metadata={b"\xff": b"\xfe"})])
    ).to_dict()
    assert answer["fields"][0]["metadata"] == {"\ufffd": "\ufffd"}


# -- types in requests ---------------------------------------------------------------------------


def test_a_type_of_an_answer_is_understood_in_a_request() -> None:
    given = schema_to_json(pa.schema([(str(kind), kind) for kind in TOLD_WHOLE])).fields
    assert [type_from_json(each.type.to_dict()) for each in given] == TOLD_WHOLE


@pytest.mark.parametrize("kind", WITH_UNITS, ids=str)
def test_a_unit_and_a_zone_may_be_written_as_arrow_prints_them(kind: pa.DataType) -> None:
    assert type_from_json({"type": str(kind)}) == kind


BYTE = {"name": "i", "nullable": True, "type": {"type": "int8"}}


@pytest.mark.spec("operations.md#altertablealtercolumns")
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"type": "integer"},
        {"type": 5},
        {"type": "int32", "length": 4},
        {"type": "int32", "bits": 4},
        {"type": "time32"},
        {"type": "time32[ns]"},
        {"type": "duration[s, tz=UTC]"},
        {"type": "list"},
        {"type": "list", "fields": []},
        {"type": "fixed_size_list", "fields": [BYTE]},
        {"type": "map", "fields": [BYTE]},
        {"type": "decimal128"},
        {"type": "decimal128", "length": 99_000},
        {"type": "fixed_size_binary", "length": -1},
        {"type": "fixed_size_binary", "length": 2**40},
        {"type": "struct", "fields": [{"name": "i"}]},
    ],
    ids=str,
)
def test_what_is_no_type_is_invalid(given: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInputError, match="data_type"):
        type_from_json(given)


# -- as Spark names types --------------------------------------------------------------------------


BOTH_KNOW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large string": pa.large_string(),
    "binary": pa.binary(),
    "large binary": pa.large_binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp without zone": pa.timestamp("us"),
    "decimal": pa.decimal128(20, 3),
    "null": pa.null(),
    "list": pa.list_(pa.string()),
    "large list": pa.large_list(pa.int64()),
    "vector": pa.list_(pa.float32(), 8),
    "map": pa.map_(pa.string(), pa.int32()),
    "struct": pa.struct([pa.field("a", pa.int32(), nullable=False), ("b", pa.list_(pa.bool_()))]),
}


@pytest.mark.parametrize("nullable", [True, False])
def test_a_column_is_what_spark_makes_of_it(nullable: bool) -> None:
    schema = pa.schema(
        pa.field(name, kind, nullable=nullable or pa.types.is_null(kind))
        for name, kind in BOTH_KNOW.items()
    )
    found = [{"name": c.name, "type": c.type, "nullable": c.nullable} for c in columns_of(schema)]
    wanted = json.loads(from_arrow_schema(schema).json())["fields"]
    assert found == [{key: each[key] for key in ("name", "type", "nullable")} for each in wanted]


@pytest.mark.parametrize(
    ("data_type", "wanted"),
    [
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.date64(), "date"),
        (pa.time64("us"), "long"),
        (pa.duration("s"), "long"),
        (pa.decimal256(60, 2), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.binary(4), "binary"),
        (pa.string_view(), "string"),
        (pa.json_(pa.string()), "string"),
        (pa.uuid(), "binary"),
        (pa.dense_union([pa.field("a", pa.int8())]), "binary"),
    ],
    ids=str,
)
def test_what_spark_has_no_type_for_is_shown_as_the_nearest(
    data_type: pa.DataType, wanted: str
) -> None:
    assert spark_type(data_type) == wanted
