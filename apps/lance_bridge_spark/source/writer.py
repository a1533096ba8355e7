"""Committing the files of a write exactly once, even if a reply is lost or the call is repeated.

A write has one transaction with a unique identifier, generated before its tasks start. Before each
attempt, and after a failed one, the versions since the write began are searched for it.
"""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
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
from lance_bridge.errors import (
    LANCE_ERRORS,
    OutcomeUnknownError,
    concurrent_modification,
    display,
    first_line,
    invalid,
    translate_lance_errors,
)
from lance_bridge.requests import Ref
from lance_bridge.storage import MAIN
from lance_bridge.transaction_versions import find_commit

from ..addresses import Access, CatalogAddress, TableAddress
from ..lookup import create_table, find_table
from ..schemas import new_schema, nullable
from . import conversion
from .options import OVERWRITE, REPLACE_FRAGMENTS, Write, WriteOptions
from .worker_calls import spark_call

if TYPE_CHECKING:
    from lance_bridge.records import TableRecord
    from lance_bridge.table import Table

    from ..spark_tables import SparkTable

# -- commits ---------------------------------------------------------------------------------------

Operation = Callable[[list[FragmentMetadata]], Any]
"""Builds the operation of a transaction from the new fragments."""

NO_FRAGMENT = 2**32 - 1
"""An id that no fragment has. Changes that require an empty table remove it, so that two of them
conflict: Lance detects conflicts between commits that name the same fragment."""


def fragments_to_guard(
    dataset: lance.LanceDataset, exclude: Collection[int]
) -> list[FragmentMetadata]:
    """Return the fragments that a change does not modify, and that no other writer may modify.

    Args:
        exclude: The ids of the fragments that the change modifies or removes.
    """
    return [each.metadata for each in dataset.get_fragments() if each.fragment_id not in exclude]


@dataclass(frozen=True)
class Commit:
    """A commit that has not been sent yet: its table, read version and transaction identifier."""

    address: TableAddress
    location: str
    """The location that the tasks wrote to, which must still be the table's."""
    version: int
    uuid: str
    branch: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    """Whether any later version is a conflict."""
    entry: str | None = None
    """The identifier of the table's entry when the write began, if it has one."""

    def open(self) -> tuple[SparkTable, lance.LanceDataset]:
        """Return the current table, opened for writing.

        Raises:
            InvalidTableStateError: (19) another table has its name now.
        """
        table = find_table(self.address)
        if table.uri != self.location:
            raise InvalidTableStateError(
                f"Table '{self.address.name}' was at {self.location} when the write began, and is "
                f"now at {table.record.location}: write again"
            )
        if self.entry is not None and table.entry_id != self.entry:
            raise InvalidTableStateError(
                f"Table '{self.address.name}' is not the one that the write began with, which was "
                "dropped: write again"
            )
        return table, table.open(Ref(branch=self.branch), write=True)

    def run(self, fragments: Iterable[str], operation: Operation) -> int:
        """Commit the fragments (in JSON) of all tasks, and return the new version.

        Raises:
            InvalidTableStateError: (19) another table has its name now.
            LanceNamespaceError: What `commit_once` raises.
        """
        table, dataset = self.open()
        transaction = lance.Transaction(
            read_version=self.version,
            operation=operation([FragmentMetadata.from_json(each) for each in fragments]),
            uuid=self.uuid,
            transaction_properties=dict(self.properties),
        )
        return commit_once(table, dataset, transaction, self.branch, alone=self.alone)


def commit_once(
    table: SparkTable,
    dataset: lance.LanceDataset,
    transaction: lance.Transaction,
    branch: str | None = None,
    *,
    alone: bool = False,
) -> int:
    """Commit a transaction whose identifier is unique, and return its version.

    If it is committed already, return that version.

    Args:
        dataset: Any version of the table, opened for writing.
        branch: The branch of the dataset; None is main.
        alone: Whether any version after the one that was read is a conflict.

    Raises:
        ConcurrentModificationError: (14) a concurrent change conflicts with it.
        InvalidInputError: (13) Lance rejects it.
        OutcomeUnknownError: (17) the reply is lost, and the table cannot be read.
        ServiceUnavailableError: (17)
    """
    name = table.address.name
    with translate_lance_errors(f"The versions of table '{name}' could not be read"):
        done = _find_commit(dataset, transaction)
        is_latest = int(dataset.latest_version) == int(transaction.read_version)
    if done is not None:
        return done
    if alone and not is_latest:
        raise concurrent_modification(table.path)
    options = table.storage_options(write=True)
    # Without retries, Lance does not overwrite a version later than the one that was read.
    overwrites = isinstance(transaction.operation, lance.LanceOperation.Overwrite)
    strict: dict[str, Any] = {"max_retries": 0} if alone and overwrites else {}
    try:
        with table.committing(dataset, "the change is not committed"):
            committed = lance.LanceDataset.commit(
                dataset, transaction, storage_options=options, **strict
            )
    except LanceNamespaceError as error:
        done = _find_after_failure(table, branch, transaction, error)
        if done is None:
            raise
    version = int(committed.version) if done is None else done
    table.note_commit(int(dataset.version), version, transaction.uuid, branch)
    return version


def _find_commit(dataset: lance.LanceDataset, transaction: lance.Transaction) -> int | None:
    read_version = int(transaction.read_version)
    return find_commit(dataset, lambda each: each.uuid == transaction.uuid, read_version)


def _find_after_failure(
    table: SparkTable,
    branch: str | None,
    transaction: lance.Transaction,
    error: LanceNamespaceError,
) -> int | None:
    try:
        return _find_commit(find_table(table.address).open(Ref(branch=branch)), transaction)
    except (LanceNamespaceError, *LANCE_ERRORS) as unread:
        raise OutcomeUnknownError(
            f"Table '{table.address.name}': whether the change is committed is not known, since "
            f"the table cannot be read after a commit that failed ({first_line(error)}). It is if "
            f"a version has the transaction {transaction.uuid}"
        ) from unread


# -- writer ----------------------------------------------------------------------------------------


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
        rows = conversion.ToLance(batches, schema, self.names)
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
        keeps = not (options.overwrite_schema and write.mode == OVERWRITE)
        if keeps:
            conversion.require_vectors(dataset.schema, options.vectors, address.name)
            names = conversion.match_columns(schema, dataset.schema, address.name)
            arrow_schema = blobs.as_written(dataset.schema)
            if write.mode == OVERWRITE:
                blobs.refuse_overwrite(dataset.schema, address.name)
                arrow_schema = dataset.schema
            # Files have the ids of the table's fields. Lance numbers an Arrow schema from 0, with
            # others after a field was added to a struct: columns would change places.
            self._schema: Any = dataset.lance_schema
        else:
            self._schema = arrow_schema = new_schema(nullable(schema), options.vectors)
            names = {name: name for name in arrow_schema.names}
        access = table.access(dataset, branch=write.branch, write=True)
        self.target = Target(
            access,
            data_location(access),
            arrow_schema.serialize().to_pybytes(),
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
            entry=table.entry_id,
        )

    def operation(self, fragments: list[FragmentMetadata]) -> Any:
        """Return the operation that commits the new fragments."""
        if self._write.mode == OVERWRITE:
            return lance.LanceOperation.Overwrite(self._schema, fragments)
        if self._write.mode == REPLACE_FRAGMENTS:
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

    def opened(entry: TableRecord | None = None) -> tuple[SparkTable, lance.LanceDataset]:
        table = find_table(address, entry)
        return table, table.open(ref, write=True)

    if write.entry is not None:
        # The entry may have changed since the statement loaded it: load it again then.
        with suppress(LanceNamespaceError):
            return opened(write.entry)
    try:
        return opened()
    except (TableNotFoundError, InvalidTableStateError):
        if not write.may_create or write.version is not None or write.branch is not None:
            raise
    with suppress(TableAlreadyExistsError):
        create_table(address, new_schema(nullable(schema), options.vectors))
    return opened()


# -- staged tables ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A table that is being created or replaced. Spark passes it as JSON; it contains no secret."""

    uuid: str
    """Identifies the transaction, and names the file with the fragments."""
    table: tuple[str, ...]
    location: str
    struct: str
    """The JSON text of the new ``StructType``."""
    columns: str
    """The Arrow schema of the rows, serialized as IPC, in base64."""
    properties: Mapping[str, str]
    replaces: int = 0
    """The version that the query replaces; 0 for a new table."""
    is_own_location: bool = False
    """Whether no other writer can use the location."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Stage:
        """Return the stage that `to_json` wrote."""
        return cls(**{**fields, "table": tuple(fields["table"])})

    def to_json(self) -> dict[str, Any]:
        """Return the stage as JSON objects."""
        return {**asdict(self), "table": list(self.table)}

    def schema(self) -> pa.Schema:
        """Return the schema of the rows to write."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    @property
    def file(self) -> str:
        """The path of the file with the fragments, relative to the location."""
        return f"_transactions/{self.uuid}.staged.json"


@dataclass(frozen=True)
class StagedAccess(Access):
    """What a task needs to write to a location that is not a table yet."""

    stage: Stage | None = None

    def fetch_storage_options(self) -> dict[str, str] | None:
        catalog, stage = self.address.catalog, self.stage
        if catalog is None or stage is None or stage.replaces:
            return super().fetch_storage_options()
        # The catalog has no entry yet to request credentials for.
        return dict(access(catalog, stage).storage)


def access(catalog: CatalogAddress, stage: Stage) -> Access:
    """Return what tasks need to write the stage's rows."""
    return StagedAccess(
        TableAddress(catalog, stage.table),
        locations.for_lance(stage.location),
        stage.replaces,
        write=True,
        storage=table_of(catalog, stage).storage_options(write=True) or {},
        stage=stage,
    )


def keep(catalog: CatalogAddress, stage: Stage, fragments: Sequence[str]) -> None:
    """Save the fragments (in JSON) that all tasks have written. Safe to repeat.

    Raises:
        ServiceUnavailableError: (17)
    """
    place = locations.for_lance(stage.location)
    if locations.is_local(place):
        # Without rows, no task has created the directory.
        with translate_lance_errors(f"The directory of table '{display(stage.table)}' is not made"):
            Path(place).mkdir(parents=True, exist_ok=True)
    files = table_of(catalog, stage).files(write=True)
    files.put_over(stage.file, json.dumps(list(fragments)).encode())


def kept_fragments(catalog: CatalogAddress, stage: Stage) -> list[str] | None:
    """Return the fragments (in JSON) that `keep` saved, or None."""
    content = table_of(catalog, stage).files(write=True).read(stage.file)
    return None if content is None else [str(each) for each in json.loads(content)]


def table_of(catalog: CatalogAddress, stage: Stage) -> Table:
    """Return a table at the stage's location, without a call to the catalog."""
    return catalog.connect().tables.at(stage.table, stage.location)


class StagedWriter(DataSourceArrowWriter):
    """Writes files at a stage's location, and saves the list of their fragments there."""

    def __init__(
        self, address: TableAddress, schema: StructType, write: Write, options: WriteOptions
    ) -> None:
        """Prepare the write of a stage's rows. No table is loaded.

        Raises:
            InvalidInputError: (13) there is no stage or no catalog.
            TableSchemaValidationError: (20)
        """
        if write.stage is None or address.catalog is None:
            raise invalid("A staged write needs the stage and its catalog")
        self._catalog = address.catalog
        self._stage = Stage.from_json(write.stage)
        stored = self._stage.schema()
        place = access(self._catalog, self._stage)
        self._target = Target(
            place,
            place.location,
            stored.serialize().to_pybytes(),
            conversion.match_columns(schema, stored, address.name),
            "overwrite" if self._stage.replaces else "create",
            options.for_lance(),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with spark_call():
            return self._target.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Save the fragments for the commit of the stage."""
        with spark_call():
            keep(self._catalog, self._stage, fragments_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files to `abort_staged`, or to the clean-up."""
