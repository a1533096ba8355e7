"""Writing a stream to a table, each batch once.

The transaction of a batch says of which query it is and which of its batches. A batch that Spark
sends again, after a failure, is looked for in the versions of the table before it is committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import lance
import pyarrow as pa
from lance_namespace.errors import ServiceUnavailableError
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...errors import invalid
from ...tables.dataset import LANCE_FAILURES, brief
from ..addresses import TableAddress
from .commit import Commit
from .errors import as_spark
from .options import WriteOptions
from .requests import Write
from .writer import Job, Written, fragments_of

QUERY = "lance_bridge.stream.query"
"""The property of a transaction with the identifier of a query, which outlives its restarts."""
BATCH = "lance_bridge.stream.batch"
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
            commit = replace(
                self._job.commit,
                version=min(each.version for each in told),
                uuid=str(uuid.uuid4()),
                properties={QUERY: told[0].query, BATCH: str(batchId)},
            )
            _, dataset = commit.open()
            if not is_done(dataset, commit, batchId):
                commit.run(fragments_of(messages), self._job.operation)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the files: where a commit was tried, its outcome may not be known."""


def is_done(dataset: lance.LanceDataset, commit: Commit, batch: int) -> bool:
    """Return whether a batch has been committed, or one after it.

    The versions are read from the latest back to the query's last batch; of a query's first batch,
    back to the oldest that is there.

    Raises:
        ServiceUnavailableError: (17) a version cannot be read.
    """
    query = commit.properties[QUERY]
    for version in range(int(dataset.latest_version), 0, -1):
        try:
            transaction = dataset.read_transaction(version)
        except LANCE_FAILURES as error:
            if version in {each["version"] for each in dataset.versions()}:
                raise ServiceUnavailableError(
                    f"Version {version} of table '{commit.address.name}' could not be read: "
                    f"{brief(error)}"
                ) from error
            return False
        found = (transaction and transaction.transaction_properties) or {}
        if found.get(QUERY) == query:
            return int(found[BATCH]) >= batch
    return False
