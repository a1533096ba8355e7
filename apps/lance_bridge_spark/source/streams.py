"""Reading a table as a stream: the rows that each version appends, in the order of versions.

An offset is a version and the number of its new fragments that have been read. After the last of
them it is the next version, so that versions that were read can be cleaned up. Without
`start_version` the stream begins with all existing rows. Batches end at fragment boundaries.

Version numbers repeat in a table that is dropped and created again, so an offset also has the
identifier of the table's entry.

A batch that is written is one commit, whose transaction names the query and the batch, so that a
batch that Spark repeats is written once.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableVersionNotFoundError,
)
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from lance_bridge.errors import LANCE_ERRORS, first_line, invalid, translate_lance_errors
from lance_bridge.requests import Ref
from lance_bridge.transaction_versions import keeps_rows, transaction_at

from ..addresses import TableAddress
from ..lookup import find_table
from .options import Options, ReadOptions, Scan, Write, WriteOptions, whole_number
from .reading import Fragments, Reading, group_fragments, rows_of
from .worker_calls import spark_call
from .writer import Job, Written, fragments_of

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

logger = logging.getLogger(__name__)

# -- new rows of versions --------------------------------------------------------------------------

FAIL, SKIP = "fail", "skip"
ON_CHANGE = (FAIL, SKIP)
"""What a stream does at a version that changes or deletes rows: fail, or skip it."""


Added = list[tuple[int, int]]
"""The ids and numbers of rows of a version's new fragments."""


class TableChanges:
    """The new fragments of the versions of one branch of a table, cached by version."""

    def __init__(self, name: str, on_change: str) -> None:
        """Initialize an empty cache.

        Args:
            name: The table's name in messages.
        """
        self._name = name
        self._on_change = on_change
        self._known: dict[int, Added] = {}

    def snapshot(self, dataset: lance.LanceDataset, version: int) -> Added:
        """Return all fragments of a version.

        Raises:
            TableVersionNotFoundError: (11) the version was cleaned up.
        """
        return rows_of(self._checkout(dataset, version))

    def of(self, dataset: lance.LanceDataset, version: int) -> Added:
        """Return the fragments that a version adds.

        Raises:
            ConcurrentModificationError: (14) it changes or deletes rows, and `FAIL` is set.
            TableVersionNotFoundError: (11) the version or the previous one was cleaned up.
        """
        if version not in self._known:
            self._known[version] = self._find_added(dataset, version)
        return self._known[version]

    def _find_added(self, dataset: lance.LanceDataset, version: int) -> Added:
        now = self._checkout(dataset, version)
        if version == 1:
            return rows_of(now)
        operation = self._operation(now, version)
        if isinstance(operation, lance.LanceOperation.Append):
            # New fragments have the highest ids, so that the previous version may be missing.
            there = sorted(rows_of(now))
            return there[len(there) - len(list(operation.fragments)) :]
        if keeps_rows(operation):
            return []
        previous = self._checkout(dataset, version - 1)
        if _keeps_values(previous, now):
            before = {each.fragment_id for each in previous.get_fragments()}
            return [each for each in rows_of(now) if each[0] not in before]
        if self._on_change == SKIP:
            return []
        raise ConcurrentModificationError(
            f"Version {version} of table '{self._name}' changes or deletes rows "
            f"({type(operation).__name__}), and a stream reads rows that are appended: set the "
            f"option on_change to {SKIP} to skip such versions, or start again at a later "
            "start_version"
        )

    def _operation(self, dataset: lance.LanceDataset, version: int) -> Any:
        with translate_lance_errors(f"Version {version} of table '{self._name}' could not be read"):
            transaction = transaction_at(dataset, version)
        return None if transaction is None else transaction.operation

    def _checkout(self, dataset: lance.LanceDataset, version: int) -> lance.LanceDataset:
        if version == dataset.version:
            return dataset
        try:
            return dataset.checkout_version(version)
        except LANCE_ERRORS as error:
            if _has_version(dataset, version, self._name):
                raise
            raise TableVersionNotFoundError(
                f"Version {version} of table '{self._name}' was cleaned up or does not exist, and "
                "the stream has not read it: start again at a later start_version, or keep "
                "versions for longer"
            ) from error


def _has_version(dataset: lance.LanceDataset, version: int, name: str) -> bool:
    with translate_lance_errors(f"The versions of table '{name}' could not be read"):
        return version in {each["version"] for each in dataset.versions()}


def _by_id(dataset: lance.LanceDataset) -> dict[int, FragmentMetadata]:
    return {each.fragment_id: each.metadata for each in dataset.get_fragments()}


def _keeps_values(before: lance.LanceDataset, after: lance.LanceDataset) -> bool:
    """Return whether a version has all rows of the previous one, with the same values.

    Columns may have been added or dropped. A column of another type has another field id.
    """
    fields, fields_after = _field_ids(before), _field_ids(after)
    if any(fields_after.get(path, field) != field for path, field in fields.items()):
        return False
    kept = set(fields.values()) & set(fields_after.values())
    fragments = _by_id(after)
    return all(
        _is_same(each, fragments.get(number), kept) for number, each in _by_id(before).items()
    )


def _is_same(before: FragmentMetadata, after: FragmentMetadata | None, fields: set[int]) -> bool:
    """Return whether a fragment has the same rows, and the given fields in the same files.

    A backfill of one column keeps the file with the old values for the other columns: only the
    field id of that column moves to a new file.
    """
    if after is None or _deleted(before) != _deleted(after):
        return False
    return _files_by_field(before, fields) == _files_by_field(after, fields)


def _field_ids(dataset: lance.LanceDataset) -> dict[tuple[str, ...], int]:
    """Return the ids of all fields, including nested ones, by path."""
    found: dict[tuple[str, ...], int] = {}
    level: list[tuple[tuple[str, ...], Any]] = [((), dataset.lance_schema.fields())]
    while level:
        parent, fields = level.pop()
        for field in fields:
            path = (*parent, field.name())
            found[path] = field.id()
            level.append((path, field.children()))
    return found


def _files_by_field(fragment: FragmentMetadata, fields: set[int]) -> set[tuple[int, str]]:
    return {(each, file.path) for file in fragment.files for each in file.fields if each in fields}


def _deleted(fragment: FragmentMetadata) -> Any:
    return fragment.deletion_file and str(fragment.deletion_file)


# -- reading ---------------------------------------------------------------------------------------

LATEST = "latest"
_BATCH_ONLY = ("version", "tag", "timestamp", "limit")


@dataclass(frozen=True)
class Position:
    """The position of a stream."""

    version: int
    fragments: int
    """How many of the version's new fragments have been read."""
    snapshot: int = 0
    """The version whose fragments are all new to the stream, or 0."""
    entry: str | None = None
    """The identifier of the table's entry, if it is known."""

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Position:
        """Return the position that `offset` wrote."""
        return cls(**offset)

    def offset(self) -> dict[str, Any]:
        """Return the offset that Spark stores. Spark compares offsets by their JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Limit:
    """The maximum size of a batch; None is unlimited. At least one fragment is read."""

    rows: int | None = None
    fragments: int | None = None
    least_rows: int = 0

    def is_exceeded(self, rows: int, fragments: int) -> bool:
        """Return whether a batch of this size would exceed the limit."""
        over_rows = self.rows is not None and rows > self.rows
        return over_rows or (self.fragments is not None and fragments > self.fragments)


@dataclass(frozen=True)
class Part(InputPartition):
    """Fragments of one version."""

    version: int
    fragments: Fragments


class Stream:
    """A stream's table on the driver, which is loaded again for every batch."""

    def __init__(self, address: TableAddress, options: Options, read: ReadOptions) -> None:
        for name in _BATCH_ONLY:
            if options.text(name) is not None:
                raise invalid(f"Option '{name}' is for reads of one version, and not for streams")
        self.address = address
        self.branch = read.branch
        self.limit = Limit(
            options.number("max_rows_per_batch"), options.number("max_fragments_per_batch")
        )
        on_change = options.text("on_change") or FAIL
        if on_change not in ON_CHANGE:
            raise invalid(f"Option 'on_change' must be one of {', '.join(ON_CHANGE)}")
        self._changes = TableChanges(address.name, on_change)
        text = options.text("start_version")
        self._start = None if text in (None, LATEST) else options.number("start_version")
        self._from_latest = text == LATEST

    def open(self) -> tuple[SparkTable, lance.LanceDataset]:
        """Return the table and its latest version."""
        table = find_table(self.address)
        return table, table.open(Ref(branch=self.branch))

    def reading(self, schema: StructType, read: ReadOptions) -> tuple[Reading, lance.LanceDataset]:
        """Return what tasks need to read fragments of any version, and the latest version."""
        table, dataset = self.open()
        access = table.access(dataset, branch=self.branch)
        return Reading(access, schema, Scan(), read).with_width(dataset), dataset

    def first(self) -> Position:
        """Return the start of the stream."""
        if self._start is not None:
            return Position(self._start, 0)
        table, dataset = self.open()
        latest = int(dataset.version)
        if self._from_latest:
            return Position(latest + 1, 0, entry=table.entry_id)
        return Position(latest, 0, latest, table.entry_id)

    def last(self) -> Position:
        """Return the position after the latest version."""
        table, dataset = self.open()
        return Position(int(dataset.version) + 1, 0, entry=table.entry_id)

    def _require_same_table(self, position: Position, entry: str | None, latest: int) -> None:
        """Raise InvalidTableState (19) if a position is one of another table of this name.

        Args:
            entry: The identifier of the table's entry, if it has one.
            latest: Its latest version.
        """
        advice = "start the query again with a new checkpoint"
        if None not in (position.entry, entry) and position.entry != entry:
            raise InvalidTableStateError(
                f"Table '{self.address.name}' was recreated or registered again since the stream "
                f"read it, and its versions may be other ones: {advice}"
            )
        # A stream may begin at a version that does not exist yet.
        if position.version > latest + 1 and position.version != self._start:
            raise InvalidTableStateError(
                f"The latest version of table '{self.address.name}' is {latest}, and the stream "
                f"has read version {position.version - 1}: the table was recreated since, so "
                f"{advice}"
            )

    def added(self, dataset: lance.LanceDataset, position: Position, version: int) -> Added:
        """Return the fragments of a version that are new to this stream."""
        if version == position.snapshot:
            return self._changes.snapshot(dataset, version)
        return self._changes.of(dataset, version)

    def next(self, start: Position, limit: Limit, last: int | None = None) -> Position:
        """Return the end of a batch that begins at ``start``, or ``start`` if nothing is new.

        Versions without new rows are skipped, so that they are no longer needed.

        Args:
            last: The last version that the stream reads.

        Raises:
            InvalidTableStateError: (19) the table was recreated.
        """
        table, dataset = self.open()
        self._require_same_table(start, table.entry_id, int(dataset.version))
        latest = int(dataset.version) if last is None else last
        rows = fragments = 0
        end = start
        for version in range(start.version, latest + 1):
            done = start.fragments if version == start.version else 0
            for index, (_, count) in enumerate(self.added(dataset, start, version)):
                if index < done:
                    continue
                if fragments and limit.is_exceeded(rows + count, fragments + 1):
                    return end
                rows, fragments = rows + count, fragments + 1
                end = Position(version, index + 1, start.snapshot, table.entry_id)
            end = Position(version + 1, 0, entry=table.entry_id)
        is_too_little = last is None and 0 < rows < limit.least_rows
        return start if is_too_little else end

    def parts(self, start: Position, end: Position) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yield the versions of a batch, each with its fragments to read.

        Raises:
            InvalidTableStateError: (19) the table was recreated.
        """
        table, dataset = self.open()
        for position in (start, end):
            self._require_same_table(position, table.entry_id, int(dataset.version))
        # For a managed table, this gives the latest version the name that tasks open it by.
        table.access(dataset, branch=self.branch)
        # An end without fragments of its version is the end of the previous version.
        for version in range(start.version, end.version + bool(end.fragments)):
            found = self.added(dataset, start, version)
            first = start.fragments if version == start.version else 0
            beyond = end.fragments if version == end.version else len(found)
            if found[first:beyond]:
                yield version, found[first:beyond]


class LanceStreamReader(DataSourceStreamReader):
    """Reads a stream without Spark's rate limits, which 4.1 does not have."""

    def __init__(self, stream: Stream, reading: Reading) -> None:
        self._stream = stream
        self._reading = reading

    def initialOffset(self) -> dict[str, Any]:
        with spark_call():
            return self._stream.first().offset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # 4.1's form
        """Return the end of the latest version: Spark 4.1 does not pass the current position."""
        with spark_call():
            return self._stream.last().offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        with spark_call():
            found = self._stream.parts(Position.of(start), Position.of(end))
            return [part for version, rows in found for part in self._parts(version, rows)]

    def _parts(self, version: int, rows: list[tuple[int, int]]) -> list[InputPartition]:
        reading = self._reading
        groups = group_fragments(rows, reading.width, reading.sizes)
        return [Part(version, group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = cast("Part", partition)
        with spark_call():
            access = replace(self._reading.access, version=part.version)
            yield from replace(self._reading, access=access).read(part.fragments)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: rows are not removed when they have been read."""


# -- maintenance -----------------------------------------------------------------------------------

COMPACT_EVERY = "stream.compact_every"
"""The number of batches of a stream after which small fragments are compacted."""
CLEAN_UP_AFTER_HOURS = "stream.clean_up_after_hours"
"""After each compaction, versions that are at least this old are deleted."""
_MOST = 999_999


@dataclass(frozen=True)
class Maintenance:
    """How often a stream compacts its table, and which old versions it then deletes."""

    every: int
    """Batches between two compactions."""
    older_than: timedelta | None = None

    @classmethod
    def of(cls, table: SparkTable) -> Maintenance | None:
        """Return the maintenance that a table's properties configure, or None.

        Raises:
            InvalidInputError: (13) a property is not a whole number from 1 to 999,999, or only
                `CLEAN_UP_AFTER_HOURS` is set.
        """
        every = _number_in(table, COMPACT_EVERY)
        hours = _number_in(table, CLEAN_UP_AFTER_HOURS)
        if every is None and hours is not None:
            raise invalid(
                f"Property {CLEAN_UP_AFTER_HOURS} of table '{table.name}' requires "
                f"{COMPACT_EVERY}, which sets how often to clean up: set both"
            )
        age = None if hours is None else timedelta(hours=hours)
        return None if every is None else cls(every, age)

    def run(self, address: TableAddress, batch: int) -> None:
        """Maintain the table if it is due after this batch.

        A failure is logged, because the batch is committed, and the next maintenance tries again.
        """
        if (batch + 1) % self.every:
            return
        # Only the driver commits; tasks import this module too, and do not need these functions.
        from lance_bridge.dataset import clean_up, compact  # noqa: PLC0415

        try:
            compact(find_table(address))
            if self.older_than is not None:
                clean_up(find_table(address), older_than=self.older_than)
        except LanceNamespaceError as error:
            logger.warning(
                "Table '%s' was not maintained after batch %d: %s",
                address.name,
                batch,
                first_line(error),
            )


def _number_in(table: SparkTable, key: str) -> int | None:
    text = table.properties.get(key)
    if text is None:
        return None
    return whole_number(f"Property {key} of table '{table.name}'", text, most=_MOST)


# -- writing ---------------------------------------------------------------------------------------

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
            if _has_version(dataset, version, name):
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
