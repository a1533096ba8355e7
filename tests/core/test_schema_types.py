"""Types in requests are those of answers, and with units those that Arrow prints."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.dataset.schema_json import to_json, type_from_json

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


def test_a_type_of_an_answer_is_understood_in_a_request() -> None:
    given = to_json(pa.schema([(str(kind), kind) for kind in TOLD_WHOLE])).fields
    assert [type_from_json(each.type.to_dict()) for each in given] == TOLD_WHOLE


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.timestamp(unit) for unit in UNITS),
        *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "+02:00")),
        *(pa.duration(unit) for unit in UNITS),
        *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    ],
    ids=str,
)
def test_a_unit_and_a_zone_may_be_written_as_arrow_prints_them(kind: pa.DataType) -> None:
    assert type_from_json({"type": str(kind)}) == kind


BYTE = {"name": "i", "nullable": True, "type": {"type": "int8"}}


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
