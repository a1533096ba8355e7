"""Compare two DataFrames regardless of row order, by checksums or by a sample of rows.

The checksum of a column consists of the number of non-null values, the xor of their hashes, and the
sum of the upper 28 bits of the hashes. The sum detects duplicate rows, which xor does not. The hash
is Spark's `xxhash64`, which treats all NaN as equal, and 0.0 and -0.0 as equal. It skips nulls
within arrays, maps and structs, so that flags for nulls are hashed as well; of arrays of numbers,
only the length is added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from lance_bridge.names import quoted

from ..journal import Check
from .session import spark_errors

_UPPER_BITS = 28
_HASH = "__row"
_BATCH_COLUMNS = 100
"""The maximum number of columns in one aggregate; Spark cannot compile code for more."""


def hash_column(field: spark.StructField) -> Column:
    """Return the hash of a column's value; null for a null value."""
    value = F.col(quoted((field.name,)))
    return F.when(value.isNotNull(), F.xxhash64(*_parts(value, field.dataType)))


def _parts(value: Column, data_type: spark.DataType) -> list[Column]:
    if isinstance(data_type, spark.ArrayType):
        if isinstance(data_type.elementType, spark.NumericType):
            return [value, F.size(value)]
        return [_marked_list(value, data_type.elementType), F.size(value)]
    if isinstance(data_type, spark.MapType):
        entry = spark.StructType().add("key", data_type.keyType).add("value", data_type.valueType)
        return [_marked_list(F.map_entries(value), entry), F.size(value)]
    if isinstance(data_type, spark.StructType):
        fields = [_marked(value.getField(each.name), each.dataType) for each in data_type.fields]
        return [part for each in fields for part in each]
    return [value]


def _marked_list(value: Column, data_type: spark.DataType) -> Column:
    return F.transform(value, lambda each: F.xxhash64(*_marked(each, data_type)))


def _marked(value: Column, data_type: spark.DataType) -> list[Column]:
    return [value.isNull(), *_parts(value, data_type)]


def checksums(frame: DataFrame, what: str) -> dict[str, Any]:
    """Return the checksum of each column, and the number of rows under the key "".

    Raises:
        ServiceUnavailableError: (17) it cannot be read.
        InvalidInputError: (13)
    """
    found: dict[str, Any] = {}
    fields = frame.schema.fields
    for start in range(0, max(len(fields), 1), _BATCH_COLUMNS):
        some = fields[start : start + _BATCH_COLUMNS]
        with spark_errors(f"The checksums of {what} cannot be computed"):
            row = frame.agg(F.count(F.lit(1)), *_aggregates(some)).collect()[0]
        found[""] = row[0]
        for number, field in enumerate(some):
            found[field.name] = [row[1 + 3 * number + part] for part in range(3)]
    return found


def _aggregates(fields: list[spark.StructField]) -> Iterator[Column]:
    for field in fields:
        value = hash_column(field)
        yield F.count(F.col(quoted((field.name,))))
        yield F.bit_xor(value)
        yield F.sum(F.shiftrightunsigned(value, 64 - _UPPER_BITS))


def compare_checksums(source: DataFrame, target: DataFrame) -> Iterator[Check]:
    """Compare the number of rows and, by column, all values."""
    expected = checksums(source, "the source")
    found = checksums(target.select(*[F.col(quoted((c,))) for c in source.columns]), "the target")
    yield Check(name="rows", ok=expected[""] == found[""], expected=expected[""], found=found[""])
    for column in source.columns:
        one, other = expected[column], found.get(column)
        yield Check(name="checksum", column=column, ok=one == other, expected=one, found=other)


# -- a sample --------------------------------------------------------------------------------------


def compare_sample(source: DataFrame, sample: DataFrame) -> Check:
    """Search the source for rows of the target, by the hash of all columns.

    Args:
        sample: Some rows of the target.
    """
    with spark_errors("A sample of the rows cannot be compared"):
        rows = _row_hashes(sample.select(*[F.col(quoted((c,))) for c in source.columns])).collect()
        wanted = {row[0] for row in rows}
        there = _row_hashes(source).where(F.col(_HASH).isin(*wanted)).distinct().count()
    return Check(name="sample", ok=there == len(wanted), expected=len(wanted), found=there)


def _row_hashes(frame: DataFrame) -> DataFrame:
    parts = [
        part
        for field in frame.schema.fields
        for part in _marked(F.col(quoted((field.name,))), field.dataType)
    ]
    return frame.select(F.xxhash64(*parts).alias(_HASH))


def schema_check(expected: pa.Schema, found: pa.Schema) -> Check:
    """Compare the planned schema with the actual one, ignoring metadata."""
    same = expected.remove_metadata().equals(found.remove_metadata())
    texts = [json.dumps({f.name: str(f.type) for f in each}) for each in (expected, found)]
    return Check(name="schema", ok=same, expected=texts[0], found=texts[1])
