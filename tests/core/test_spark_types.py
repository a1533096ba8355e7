"""Arrow schemas as catalogs show them, against what Spark itself makes of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField

from lance_bridge.dataset.spark_types import columns_of, spark_type

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


def test_spark_can_read_every_type_that_is_written() -> None:
    for data_type in (*BOTH_KNOW.values(), pa.uint64()):
        field: dict[str, Any] = {
            "name": "c",
            "type": spark_type(data_type),
            "nullable": True,
            "metadata": {},
        }
        assert StructField.fromJson(field).name == "c", data_type
