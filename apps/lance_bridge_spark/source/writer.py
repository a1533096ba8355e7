"""Writing to a table: tasks write files, and the driver makes one commit.

The columns are checked before the first task. Tasks get no catalog and no open dataset, only a
location and its storage options; they return fragments as JSON.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lance_bridge import blobs, locations
from lance_bridge.records import ENTRY_ID
from lance_bridge.requests import Ref
from lance_bridge.storage import MAIN

from ..addresses import Access, TableAddress
from ..lookup import create_table, find_table
from . import arrays, requests, schema_compat
from .commit import NO_FRAGMENT, Commit, fragments_to_guard
from .options import WriteOptions
from .requests import Write
from .types import nullable
from .worker_calls import spark_call

if TYPE_CHECKING:
    from ..spark_tables import SparkTable


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The fragments that one task has written, as JSON."""

    fragments: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Target:
    """What a task needs to write files. Pickles, with the credentials."""

    access: Access
    place: str
    """The location of the table, or of its branch under it."""
    schema: bytes
    """The table's schema, serialized as Arrow IPC."""
    names: Mapping[str, str]
    """The DataFrame's name for each column of the table."""
    mode: str
    lance_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def appending(
        cls, access: Access, schema: pa.Schema, lance_options: Mapping[str, Any] | None = None
    ) -> Target:
        """Return a target for appending rows whose columns have the table's names."""
        names = {name: name for name in schema.names}
        serialized = blobs.as_written(schema).serialize().to_pybytes()
        return cls(access, access.location, serialized, names, "append", lance_options or {})

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task as fragments that are not committed.

        Raises:
            InvalidInputError: (13) the table cannot hold a value.
            ServiceUnavailableError: (17)
        """
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        rows = arrays.ToLance(batches, schema, self.names)
        first = next(rows, None)
        if first is None:
            return Written((), 0)
        reader = pa.RecordBatchReader.from_batches(schema, itertools.chain([first], rows))
        with rows.writing(f"The rows for table '{self.access.address.name}' are not written"):
            fragments = write_fragments(
                reader,
                self.place,
                schema=schema,
                mode=self.mode,
                storage_options=self.access.storage_options(),
                **self.access.renewal_arguments(),
                **self.lance_options,
            )
        return Written(tuple(json.dumps(each.to_json()) for each in fragments), rows.count)


class Job:
    """A write to one table: the target of its tasks, and its commit. Pickles."""

    def __init__(
        self, address: TableAddress, schema: StructType, write: Write, options: WriteOptions
    ) -> None:
        """Find the table or create it, and check the columns.

        Raises:
            LanceNamespaceError: The table cannot be found, created or opened.
            TableSchemaValidationError: (20) the columns do not fit the table.
        """
        self._write = replace(write, entry=None)  # tasks need none
        table, dataset = find_or_create(address, schema, write, options)
        keeps = not (options.overwrite_schema and write.mode == requests.OVERWRITE)
        if keeps:
            schema_compat.require_vectors(dataset.schema, options.vectors, address.name)
            names = schema_compat.match_columns(schema, dataset.schema, address.name)
            self._schema = blobs.as_written(dataset.schema)
            if write.mode == requests.OVERWRITE:
                blobs.refuse_overwrite(dataset.schema, address.name)
                self._schema = dataset.schema
        else:
            self._schema = schema_compat.new_schema(nullable(schema), options.vectors)
            names = {name: name for name in self._schema.names}
        access = table.access(dataset, branch=write.branch, write=True)
        self.target = Target(
            access,
            data_location(access),
            self._schema.serialize().to_pybytes(),
            names,
            "append" if keeps else "overwrite",
            options.for_lance(),
        )
        self.commit = Commit(
            address,
            access.location,
            access.version,
            str(uuid.uuid4()),
            write.branch,
            alone=write.guard,
            entry=table.record.properties.get(ENTRY_ID),
        )

    def operation(self, fragments: list[FragmentMetadata]) -> Any:
        """Return the operation that commits the new fragments."""
        if self._write.mode == requests.OVERWRITE:
            return lance.LanceOperation.Overwrite(self._schema, fragments)
        if self._write.mode == requests.REPLACE_FRAGMENTS:
            return self._replacement(fragments)
        return lance.LanceOperation.Append(fragments)

    def _replacement(self, fragments: list[FragmentMetadata]) -> Any:
        """Return the change of fragments, whose rows get new row ids, even if ids are stable.

        Spark passes the new rows without their old ids, mixed with inserted rows.
        """
        removed, kept = list(self._write.fragments), list[FragmentMetadata]()
        if self._write.guard:
            kept = fragments_to_guard(self.target.access.open(), removed)
            removed += [] if kept or removed else [NO_FRAGMENT]
        return lance.LanceOperation.Update(
            removed_fragment_ids=removed, updated_fragments=kept, new_fragments=fragments
        )


class LanceWriter(DataSourceArrowWriter):
    """Writes a DataFrame; created on the driver, sent to the tasks, and committed on the driver."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @property
    def transaction(self) -> str:
        """The identifier of the transaction that commits the rows."""
        return self._job.commit.uuid

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with spark_call():
            return self._job.target.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the rows of all tasks in one version."""
        with spark_call():
            self._job.commit.run(fragments_of(messages), self._job.operation)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files: the outcome of an attempted commit may be unknown."""


def data_location(access: Access) -> str:
    """Return the location of the files of a table or of one of its branches."""
    if access.branch in (None, MAIN):
        return access.location
    return locations.join(access.location, "tree", str(access.branch))


def fragments_of(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    """Return the fragments that all tasks have written."""
    return [each for m in messages if isinstance(m, Written) for each in m.fragments]


def find_or_create(
    address: TableAddress, schema: StructType, write: Write, options: WriteOptions
) -> tuple[SparkTable, lance.LanceDataset]:
    """Return the table to write to; create a missing one, empty, with the columns.

    If two writers create it concurrently, one succeeds and both append: no rows are lost.
    """
    ref = Ref(version=write.version, branch=write.branch)
    if write.entry is not None:
        with suppress(LanceNamespaceError):
            table = find_table(address, write.entry)
            return table, table.open(ref, write=True)
        # The entry may have changed since the statement loaded it: load it again.
    try:
        table = find_table(address)
        return table, table.open(ref, write=True)
    except (TableNotFoundError, InvalidTableStateError):
        if not write.may_create or write.version is not None or write.branch is not None:
            raise
    with suppress(TableAlreadyExistsError):
        create_table(address, schema_compat.new_schema(nullable(schema), options.vectors))
    table = find_table(address)
    return table, table.open(ref, write=True)
