"""Schemas: in answers as pylance's directory namespace gives them, in catalogs as Spark does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors
from pyspark.sql.pandas.types import from_arrow_schema

from lance_bridge.dataset.schema_json import to_json, type_from_json
from lance_bridge.spark_types import columns_of, spark_type

pytestmark = pytest.mark.quick

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


def both_answers(directory: Path, schema: pa.Schema) -> tuple[Any, Any]:
    """Return our JSON form of a stored schema, and that of the directory namespace."""
    lance.write_dataset(schema.empty_table(), str(directory / "t.lance"))
    stored = lance.dataset(str(directory / "t.lance")).schema
    namespace = api.connect("dir", {"root": str(directory)})
    request = api.DescribeTableRequest(id=["t"], load_detailed_metadata=True)
    theirs = namespace.describe_table(request).var_schema
    assert theirs is not None
    return to_json(stored).to_dict(), theirs.to_dict()


def test_every_type_that_lance_stores_is_answered_alike(tmp_path: Path) -> None:
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(STORABLE)]
    fields += [
        pa.field(f"r{number}", pa.list_(kind) if pa.types.is_null(kind) else kind, nullable=False)
        for number, kind in enumerate(STORABLE)
    ]
    ours, theirs = both_answers(tmp_path, pa.schema(fields))
    assert len(ours["fields"]) == len(fields)
    assert ours == theirs


def test_metadata_of_fields_and_schema_is_answered_alike(tmp_path: Path) -> None:
    field = pa.field("c", pa.int32(), metadata={"unit": "mm", "ü": "ö"})
    ours, theirs = both_answers(tmp_path, pa.schema([field], metadata={"made by": "test"}))
    assert ours == theirs
    assert ours["fields"][0]["metadata"] == {"unit": "mm", "ü": "ö"}
    assert ours["metadata"] == {"made by": "test"}


def test_json_columns_are_answered_as_readers_get_them() -> None:
    """Lance keeps them in a form of its own, which the directory namespace tells instead."""
    answer = to_json(pa.schema([pa.field("c", pa.json_())])).to_dict()["fields"][0]
    assert answer["type"] == {"type": "utf8"}
    assert answer["metadata"]["ARROW:extension:name"] == "arrow.json"


def test_metadata_that_is_no_text_is_still_answered() -> None:
    answer = to_json(pa.schema([pa.field("c", pa.int8(), metadata={b"\xff": b"\xfe"})])).to_dict()
    assert answer["fields"][0]["metadata"] == {"\ufffd": "\ufffd"}


# -- types in requests ---------------------------------------------------------------------------


def test_a_type_of_an_answer_is_understood_in_a_request() -> None:
    given = to_json(pa.schema([(str(kind), kind) for kind in TOLD_WHOLE])).fields
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
