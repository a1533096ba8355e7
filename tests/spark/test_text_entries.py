"""Unity's entry of a Lance table says TEXT: Spark's reader of text refuses it, and never says 0."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from lance_bridge.catalog import TableRecord
from lance_bridge.dataset.spark_types import columns_of
from lance_bridge_unity import mapping

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.spec("unity.md#columns")]

NESTED = pa.struct([("a b", pa.int64()), ("c`d", pa.list_(pa.struct([("1:e", pa.string())])))])
SCHEMAS = {
    "no columns": None,
    "one string": pa.schema([("name", pa.string())]),
    "the column of text": pa.schema([("value", pa.large_string())]),
    "strings": pa.schema([("a", pa.string()), ("b", pa.string())]),
    "a string and more": pa.schema([("a", pa.string()), ("b", pa.int64())]),
    "nested": pa.schema([("n", NESTED)]),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_sparks_reader_of_text_refuses_the_columns_of_an_entry(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    place = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"name": ["a", "b", "c"]}), place)
    schema = SCHEMAS[case]
    columns = columns_of(schema) if schema is not None else ()
    body = mapping.table_body(("c", "s", "t"), TableRecord((), f"file://{place}", columns=columns))
    fields = [StructField.fromJson(json.loads(each["type_json"])) for each in body["columns"]]
    for each, field in zip(body["columns"], fields, strict=True):
        # As Unity's connector for Spark reads it, which has no look at `type_json`.
        assert DataType.fromDDL(each["type_text"]) == field.dataType
    reader = spark.read.format(body["data_source_format"].lower()).schema(StructType(fields))
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"):
        reader.load(place).count()
