"""The data source as Spark's Python processes use it, without a session: everything is pickled."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lance_bridge_spark.schemas import batch_schema
from lance_bridge_spark.source import LanceSource

ObjectT = TypeVar("ObjectT")


def sent(thing: ObjectT) -> ObjectT:
    """Return what is left of a thing on its way to another process."""
    again: ObjectT = pickle.loads(pickle.dumps(thing))
    return again


def source(options: Mapping[str, Any]) -> LanceSource:
    """Return the source with options as Spark hands them over; what is no text becomes JSON."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
    return LanceSource(CaseInsensitiveDict(texts))


def parts_of(options: Mapping[str, Any], schema: StructType | None = None) -> list[InputPartition]:
    """Return the tasks of a read."""
    made = source(options)
    asked = made.schema() if schema is None else schema
    return list(sent(made).reader(asked).partitions())


def read(options: Mapping[str, Any], schema: StructType | None = None) -> pa.Table:
    """Return the rows of a read, of all its tasks one after the other."""
    made = source(options)
    asked = made.schema() if schema is None else schema
    reader = sent(made).reader(asked)
    parts = reader.partitions()
    batches: list[Any] = [b for part in parts for b in sent(reader).read(sent(part))]
    expected = batch_schema(asked)
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert all(batch.schema.equals(expected) for batch in batches)
    return pa.Table.from_batches(batches, expected)


def begun(
    options: Mapping[str, Any], rows: pa.Table, *, overwrite: bool = False
) -> tuple[DataSourceArrowWriter, list[WriterCommitMessage | None]]:
    """Return a writer whose tasks are done, one for each batch, and what they said."""
    writer = source(options).writer(struct_of(rows), overwrite)
    assert isinstance(writer, DataSourceArrowWriter)
    messages = [sent(sent(writer).write(iter([batch]))) for batch in rows.to_batches()]
    return sent(writer), list(messages)


def write(options: Mapping[str, Any], rows: pa.Table, *, overwrite: bool = False) -> None:
    """Write rows, and commit."""
    writer, messages = begun(options, rows, overwrite=overwrite)
    writer.commit(messages)


def struct_of(rows: pa.Table) -> StructType:
    """Return the schema that a DataFrame with these rows has."""
    return from_arrow_schema(rows.schema)


def numbers(*ids: int) -> pa.Table:
    """Return rows with these ids and a word for each, in batches of two."""
    made = pa.table({"id": pa.array(ids, pa.int64()), "word": [f"w{i}" for i in ids]})
    return pa.Table.from_batches(made.to_batches(2), made.schema)


def ids_in(table: pa.Table) -> list[int]:
    """Return the ids, sorted."""
    return sorted(table["id"].to_pylist())


def batches_of(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the batches of one task."""
    return iter(rows.to_batches())
