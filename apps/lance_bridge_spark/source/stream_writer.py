"""Writing a stream to a table, each batch once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lance_bridge.errors import invalid

from ..addresses import TableAddress
from .batches import Batch
from .errors import as_spark
from .options import WriteOptions
from .requests import Write
from .writer import Job, Written, fragments_of

_QUERY_OF_TASK = "sql.streaming.queryId"


@dataclass(frozen=True)
class StreamWritten(Written):
    """What one task has written of a batch."""

    query: str
    version: int
    """Of the table, when the batch was planned."""


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch. Spark makes one for the tasks, and another one for the commit."""

    def __init__(
        self, address: TableAddress, schema: StructType, write: Write, options: WriteOptions
    ) -> None:
        self._job = Job(address, schema, write, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with as_spark():
            context = TaskContext.get()
            query = context.getLocalProperty(_QUERY_OF_TASK) if context else None
            if not query:
                raise invalid("A stream's task does not know its query: write with writeStream")
            done = self._job.target.write(iterator)
            return StreamWritten(done.fragments, done.rows, query, self._job.commit.version)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the rows of the batch visible, unless they are already."""
        told = [each for each in messages if isinstance(each, StreamWritten)]
        if not told:
            return
        with as_spark():
            batch = Batch(told[0].query, batchId)
            commit = replace(
                self._job.commit,
                version=min(each.version for each in told),
                uuid=str(uuid.uuid4()),
                properties=batch.properties,
            )
            if batch.begin(*commit.open()):
                commit.run(fragments_of(messages), self._job.operation)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the files: where a commit was tried, its outcome may not be known."""
