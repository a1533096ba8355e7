"""Write rows from Spark into a Lance table exactly once.

The identifier of a write's transaction is derived from the migration's mark, so that any process
can detect that the write was committed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from lance_bridge import blobs
from lance_bridge.errors import translate_lance_errors
from lance_bridge.lance_datasets import find_commit
from lance_bridge.names import quoted
from lance_bridge.requests import Ref
from lance_bridge_spark.rows import (
    APPEND,
    RESULTS_DDL,
    Job,
    TableAddress,
    Target,
    Write,
    WriteOptions,
    Written,
    find_table,
    fragments_of,
    load,
    to_spark,
    unpack,
    write_rows,
)
from lance_bridge_spark.schemas import ROW_ID, batch_schema, spark_schema

from ..record import Check
from ..targets import MARK
from .session import become_active, spark_errors

# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """The version and the number of rows of a write."""

    version: int
    rows: int


def transaction_of(mark: str, step: str) -> str:
    """Return the identifier of the transaction of one step of one item."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"lance-bridge:{mark}/{step}"))


def append(
    frame: DataFrame,
    address: TableAddress,
    *,
    version: int,
    transaction: str,
    mark: str,
    options: Mapping[str, Any],
    alone: bool = False,
) -> Loaded:
    """Append the rows of a DataFrame to a table in one commit, unless that was done already.

    Without rows, nothing is committed, and the given version is returned.

    Args:
        version: The version to append to; later versions are searched for the transaction.
        transaction: The identifier of the transaction.
        mark: The mark to store in the properties of the transaction.
        options: The fields of `WriteOptions`.
        alone: Whether any later version of another writer is a conflict.

    Raises:
        TableSchemaValidationError: (20) the columns do not fit the table.
        InvalidInputError: (13) values that the table cannot hold.
        ConcurrentModificationError: (14) `alone`, and another writer has written to the table.
        LanceNamespaceError: What finding, opening and committing raises.
    """
    dataset = find_table(address).open()
    made = find_commit(dataset, lambda each: each.uuid == transaction, version)
    if made is not None:
        return Loaded(made, rows_added(address, made))
    write = Write(APPEND, version=version, guard=alone, may_create=False)
    job = Job(address, frame.schema, write, WriteOptions(**options))
    job.commit = replace(job.commit, uuid=transaction, properties={MARK: mark})
    written = _run(frame, job.target, f"The rows for '{address.name}' are not written")
    fragments = fragments_of(written)
    if not fragments:
        return Loaded(version, 0)
    made = job.commit.run(fragments, job.operation)
    return Loaded(made, sum(each.rows for each in written))


def rows_added(address: TableAddress, version: int) -> int:
    """Return how many rows a version has more than the one before it."""
    table = find_table(address)
    with translate_lance_errors(f"The rows of '{address.name}' could not be counted"):
        after = table.open(Ref(version=version)).count_rows()
        return int(after - table.open(Ref(version=version - 1)).count_rows())


def _run(frame: DataFrame, target: Target, what: str) -> list[Written]:
    """Write the rows in Spark tasks. Only the results that tasks returned count."""
    # PySpark looks up columns by unquoted names, which fails for some column names.
    plain = {name: f"c{number}" for number, name in enumerate(frame.columns)}
    names = {column: plain[name] for column, name in target.names.items()}
    task = partial(write_rows, replace(target, names=names))
    with spark_errors(what):
        rows = frame.toDF(*plain.values()).mapInArrow(task, RESULTS_DDL).collect()
    return [unpack(row) for row in rows]


# -- reading back ----------------------------------------------------------------------------------


def read_back(spark: Any, address: TableAddress, version: int) -> DataFrame:
    """Return the rows of a table's version as a DataFrame."""
    become_active(spark)
    with spark_errors(f"'{address.name}' cannot be read"):
        return load(spark, address, {"version": str(version)})


def sample_of(spark: Any, dataset: lance.LanceDataset, row_numbers: list[int]) -> DataFrame:
    """Return some rows of a dataset, by their row numbers, as a DataFrame."""
    shown: StructType = spark_schema(dataset.schema)
    expected = batch_schema(shown)
    with translate_lance_errors(f"Rows of {dataset.uri} could not be read"):
        ids = dataset.take(row_numbers, columns=[ROW_ID]).column(ROW_ID).combine_chunks()
        taken = pa.table(blobs.take_rows(dataset, ids, dataset.schema.names))
    batches = [to_spark(batch, expected) for batch in taken.to_batches()]
    frame: DataFrame = spark.createDataFrame(
        pa.Table.from_batches(batches, schema=expected), schema=shown
    )
    return frame


# -- checksums -------------------------------------------------------------------------------------


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
