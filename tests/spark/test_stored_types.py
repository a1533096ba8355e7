"""Conversion of every type to Spark's and back, without a session."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pytest
from arrow_types import CASES, SHAPES, TypeCase, plain, rows_of
from lance_namespace.errors import InvalidInputError
from pyspark.sql.types import StringType, StructField, StructType

from lance_bridge import blobs
from lance_bridge_spark.source import arrays, stored_types
from lance_bridge_spark.source.schema_compat import match_columns, new_schema
from lance_bridge_spark.source.types import batch_schema, spark_schema

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("spark.md#reading-types", "spark.md#writing-types", "spark.md#blobs"),
]


def _as_read(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as Lance reads them: with bytes in place of blobs."""
    columns = [_with_bytes(each) for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _with_bytes(array: pa.Array) -> pa.Array:
    if blobs.is_blob_type(array.type):
        return array.storage.flatten()[0]
    if pa.types.is_struct(array.type):
        parts = [_with_bytes(each) for each in array.flatten()]
        return pa.StructArray.from_arrays(
            parts, names=[each.name for each in array.type], mask=array.is_null()
        )
    if pa.types.is_list(array.type):
        inner = _with_bytes(array.values)
        return pa.ListArray.from_arrays(array.offsets, inner, mask=array.is_null())
    return array


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_are_the_same_after_spark(case: TypeCase) -> None:
    for shape in SHAPES:
        rows = rows_of(case, shape)
        [batch] = rows.to_batches()
        expected = batch_schema(spark_schema(rows.schema))
        read = arrays.to_spark(_as_read(rows.schema, batch), expected)
        assert read.schema.equals(expected)
        back = arrays.to_lance(read.column("c"), rows.schema.field("c"))
        assert back.type.equals(rows.schema.field("c").type), shape
        assert plain(back) == plain(rows.column("c")), shape


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_new_table_has_the_types_of_its_source(case: TypeCase) -> None:
    for shape in SHAPES:
        schema = rows_of(case, shape).schema
        made = new_schema(spark_schema(schema))
        assert made.field("c").type.equals(stored_types.as_new(schema.field("c")).type), shape
        assert blobs.has_blobs(made.field("c")) == blobs.has_blobs(schema.field("c"))
        # Its own rows fit.
        match_columns(spark_schema(schema), made, "copy")


def test_a_column_of_another_type_takes_none_from_its_metadata() -> None:
    [field] = spark_schema(pa.schema([pa.field("c", pa.uint8())])).fields
    for text in (
        field.metadata[stored_types.KEY],
        "no base64",
        base64.b64encode(b"no schema").decode(),
    ):
        made = StructType([StructField("c", StringType(), True, {stored_types.KEY: text})])
        assert new_schema(made).field("c").type == pa.string()


def test_runs_of_rows_have_few_bytes_and_at_least_one_row() -> None:
    most = 16 * 1024 * 1024
    sizes = np.array([most + 1, 1, most, 5, 5])
    assert list(blobs.slices(sizes, 5)) == [(0, 1), (1, 1), (2, 1), (3, 2)]
    assert list(blobs.slices(None, 40)) == [(0, 16), (16, 16), (32, 8)]
    assert list(blobs.slices(sizes, 0)) == []


def test_a_value_that_the_type_cannot_hold_is_refused_with_the_column() -> None:
    for given, dtype in ((pa.array([300]), pa.uint8()), (pa.array([2**40]), pa.time32("s"))):
        with pytest.raises(InvalidInputError, match="Column 'c'"):
            arrays.to_lance(given, pa.field("c", dtype))
