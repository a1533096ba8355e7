"""Schemas in answers are those that pylance's directory namespace gives for the same dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa

from lance_bridge.dataset.schema_json import to_json

UNITS = ("s", "ms", "us", "ns")
STORABLE = [
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)),
    *(pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "+02:00")),
    *(pa.duration(unit) for unit in UNITS),
    *(pa.decimal128(20, 3), pa.decimal128(38, -2), pa.decimal256(50, 10)),
    *(pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.float32(), 4)),
    pa.list_(pa.field("element", pa.int32(), nullable=False)),
    pa.struct([("x", pa.int32()), pa.field("y", pa.string(), nullable=False)]),
    pa.struct([]),
    pa.map_(pa.string(), pa.int32()),
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


def test_a_decimal_has_its_precision_and_scale_in_one_number() -> None:
    answer = to_json(pa.schema([pa.field("c", pa.decimal128(20, 3))])).to_dict()
    assert answer["fields"][0]["type"] == {"type": "decimal128", "length": 20003}
