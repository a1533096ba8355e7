"""The functions that Spark's workers call in tasks that the driver's service has planned.

To read, a task gets one batch of one row with its pickled partition, and returns the batches it
reads. To write, it gets the batches, and returns one row with the pickled message for the commit.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader
from pyspark.sql.types import BinaryType, StructField, StructType

_MESSAGE = "message"


def pickled_reader(reader: DataSourceReader, schema: StructType) -> bytes:
    """Return the function that reads a partition, pickled for Spark's workers."""
    return pickle.dumps((partial(_read, reader), schema))


def pickled_writer(writer: DataSourceArrowWriter) -> bytes:
    """Return the function that writes the rows of a task, pickled for Spark's workers."""
    result = StructType([StructField(_MESSAGE, BinaryType())])
    return pickle.dumps((partial(_write, writer), result))


def partition_batch(pickled: bytes) -> pa.RecordBatch:
    """Return a pickled partition as an argument for the function of `pickled_reader`."""
    return pa.record_batch([pa.array([pickled], pa.binary())], names=["partition"])


def _read(reader: DataSourceReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    partition = None
    for batch in batches:
        partition = pickle.loads(batch.column(0)[0].as_py())
    return reader.read(partition)  # type: ignore[arg-type] # Spark gives one partition, never none


def _write(
    writer: DataSourceArrowWriter, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    message = pickle.dumps(writer.write(batches))
    yield pa.record_batch([pa.array([message], pa.binary())], names=[_MESSAGE])
