"""Writing a stream to a table: each batch is committed once, even if Spark sends it again.

The transaction of a batch contains its query and its number. Before a commit, a file beside the
table's data records the query's batch and the latest version. Only a repeated batch is searched
for, in the versions after the recorded one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from lance_namespace.errors import InvalidTableStateError, ServiceUnavailableError
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lance_bridge.errors import LANCE_ERRORS, first_line, invalid, translate_lance_errors
from lance_bridge.lance_datasets import transaction_at

from ..addresses import TableAddress
from .options import WriteOptions
from .requests import Write
from .stream_maintenance import Maintenance
from .worker_calls import spark_call
from .writer import Job, Written, fragments_of

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

_QUERY_OF_TASK = "sql.streaming.queryId"


@dataclass(frozen=True)
class StreamWritten(Written):
    """What one task has written of a batch."""

    query: str
    version: int
    """The table's version when the batch was planned."""


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch. Spark creates one writer for the tasks, and another for the commit."""

    def __init__(
        self, address: TableAddress, schema: StructType, write: Write, options: WriteOptions
    ) -> None:
        self._job = Job(address, schema, write, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with spark_call():
            context = TaskContext.get()
            query = context.getLocalProperty(_QUERY_OF_TASK) if context else None
            if not query:
                raise invalid("A stream's task does not know its query: write with writeStream")
            done = self._job.target.write(iterator)
            return StreamWritten(done.fragments, done.rows, query, self._job.commit.version)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the rows of the batch, unless they are committed already."""
        written = [each for each in messages if isinstance(each, StreamWritten)]
        if not written:
            return
        with spark_call():
            batch = Batch(written[0].query, batchId)
            commit = replace(
                self._job.commit,
                version=min(each.version for each in written),
                uuid=str(uuid.uuid4()),
                properties=batch.properties,
            )
            table, dataset = commit.open()
            maintenance = Maintenance.of(table) if commit.branch is None else None
            if not batch.begin(table, dataset):
                return
            commit.run(fragments_of(messages), self._job.operation)
            if maintenance is not None:
                maintenance.run(commit.address, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the files: the outcome of an attempted commit may be unknown."""


QUERY = "lance_bridge.stream.query"
"""The transaction property with a query's identifier, which is the same after restarts."""
BATCH = "lance_bridge.stream.batch"

_DIRECTORY = "_transactions"
"""Its files are deleted when the table is dropped, and kept when the table is cleaned up."""


@dataclass(frozen=True)
class Batch:
    """A batch of a query."""

    query: str
    number: int

    @property
    def properties(self) -> dict[str, str]:
        """The properties of its transaction."""
        return {QUERY: self.query, BATCH: str(self.number)}

    def begin(self, table: SparkTable, dataset: lance.LanceDataset) -> bool:
        """Record that the batch is about to be committed; return False if it is committed.

        Args:
            dataset: Any version of the table, on the branch that is written to.

        Raises:
            InvalidTableStateError: (19) a version that may contain the batch was cleaned up.
            ServiceUnavailableError: (17) a version or the file cannot be read or written.
        """
        files = table.files(write=True)
        path = f"{_DIRECTORY}/{self.query}.stream.json"
        with translate_lance_errors(
            f"The versions of table '{table.address.name}' could not be read"
        ):
            latest = int(dataset.latest_version)
        noted = json.loads(files.read(path) or b"{}")
        begun = int(noted.get("batch", -1))
        if begun == self.number:
            if noted.get("done"):
                return False
            where = f"{files.location}/{path}"
            versions = range(latest, int(noted["since"]), -1)
            return not any(
                self._is_this_batch(table, dataset, version, where) for version in versions
            )
        if begun < self.number:
            note = {"batch": self.number, "since": latest}
            files.put_over(path, json.dumps(note).encode())
        return begun < self.number

    def _is_this_batch(
        self, table: SparkTable, dataset: lance.LanceDataset, version: int, where: str
    ) -> bool:
        name = table.address.name
        try:
            transaction = transaction_at(dataset, version)
        except LANCE_ERRORS as error:
            with translate_lance_errors(f"The versions of table '{name}' could not be read"):
                is_there = version in {each["version"] for each in dataset.versions()}
            if is_there:
                raise ServiceUnavailableError(
                    f"Version {version} of table '{name}' could not be read: {first_line(error)}"
                ) from error
            raise InvalidTableStateError(
                f"Whether table '{name}' has batch {self.number} of the stream is not known: "
                f"version {version} may be that batch, and was cleaned up. Look for its rows. If "
                f'they exist, set "done" to true in {where}; if not, delete that file. Then '
                "start the stream again"
            ) from error
        found = (transaction and transaction.transaction_properties) or {}
        return found.get(QUERY) == self.query and int(found[BATCH]) == self.number
