"""Commits through the catalog: what pylance commits to one table, and a batch to several tables.

A commit of one version compares and sets the entry. The manifest gets its final name afterwards:
once the entry is set, the version exists, and the next client finishes what is left to do.

Commits to several tables are all or nothing; ``specs/managed.md`` has the protocol and its proof.
The record of the batch is written first; then each entry gets its next version, which depends on
the batch; then the outcome is written, which is the commit of all; then each entry is finished.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lance_namespace import (
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
)
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    TableVersionNotFoundError,
)

from ..credentials.sources import describe_credentials
from ..entry import TableEntry
from ..errors import (
    LatestVersionGoneError,
    OutcomeUnknownError,
    concurrent_modification,
    releases_as_conflicts,
)
from ..managed_state import State
from ..records import MARK, ForeignCommits
from ..requests import as_model
from ..storage.manifests import (
    Commit,
    Manifest,
    Scheme,
    Staged,
    name_of,
    refuse_metadata,
    require_content,
    require_scheme,
    version_conflict,
)
from . import batches, compare_and_set, mark, out_of_band
from .batches import BatchRecord, Outcome, finish_entries
from .version_directory import ManagedDirectory, managed_directory

ResultT = TypeVar("ResultT")
logger = logging.getLogger(__name__)


@dataclass
class TableView(LanceNamespace):
    """Implements the operations that `lance.LanceDataset` calls, for one table.

    pylance calls it from its own threads, and replaces its errors with its own. ``failure`` is the
    error of the last commit, or else the first error.
    """

    table: TableEntry
    write: bool
    failure: LanceNamespaceError | None = field(default=None, init=False)

    def namespace_id(self) -> str:
        """Return an identifier of the connection, the table and the right."""
        right = "write" if self.write else "read"  # pylance shares a store by this id
        connection = self.table.connection
        credentials = describe_credentials(connection.catalog, connection.config)
        where = connection.catalog.describe_connection()
        return f"{where}#{credentials}#{self.table.name}#{right}"

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:  # noqa: ARG002 - one table
        """Return fresh storage options."""
        options = self.table.storage_options(write=self.write)
        return DescribeTableResponse(
            location=self.table.uri,
            storage_options=options,
            managed_versioning=True,
        )

    def list_table_versions(
        self,
        request: ListTableVersionsRequest,  # noqa: ARG002 - pylance needs the latest only
    ) -> ListTableVersionsResponse:
        """Return the latest version that the catalog has now."""
        latest = self._record_failure(
            lambda: managed_directory(self.table.reloaded(), write=self.write).latest()
        )
        return ListTableVersionsResponse(versions=[latest.to_table_version()] if latest else [])

    def describe_table_version(
        self, request: DescribeTableVersionRequest | Mapping[str, Any]
    ) -> DescribeTableVersionResponse:
        """Describe a committed version. Raises TableVersionNotFound (11)."""
        version = as_model(DescribeTableVersionRequest, request).version
        found = self._record_failure(lambda: self._find(version))
        return DescribeTableVersionResponse(version=found.to_table_version())

    def create_table_version(
        self, request: CreateTableVersionRequest | Mapping[str, Any]
    ) -> CreateTableVersionResponse:
        """Commit a staged manifest through the catalog. Raises ConcurrentModification (14)."""
        staged = Staged.from_request(as_model(CreateTableVersionRequest, request))

        def commit() -> Manifest:
            return prepare(self.table.reloaded(), staged).do()

        self.failure = None
        return CreateTableVersionResponse(version=self._record_failure(commit).to_table_version())

    def _find(self, version: int | None) -> Manifest:
        table = self.table
        directory = managed_directory(table, write=self.write)
        if version is None or version > directory.state.version:
            directory = managed_directory(table.reloaded(), write=self.write)
        wanted = directory.state.version if version is None else version
        try:
            found = directory.find(wanted)
        except LatestVersionGoneError:
            # By now it may be an old version, which a clean-up has deleted.
            found = managed_directory(table.reloaded(), write=self.write).find(wanted)
        if found is None:
            raise TableVersionNotFoundError(
                f"Table '{self.table.name}' has no version {version or 'yet'}"
            )
        return found

    def _record_failure(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            with releases_as_conflicts():
                return call()
        except LanceNamespaceError as error:
            self.failure = self.failure or error
            raise


# -- a commit to one table -------------------------------------------------------------------------


@dataclass(frozen=True)
class CatalogCommit(Commit):
    """A version that was checked and can be committed through the catalog."""

    table: TableEntry
    old: State
    new: State

    def do(self) -> Manifest:
        """Create the version through the catalog.

        Raises:
            ConcurrentModificationError: (14)
            OutcomeUnknownError: (17) the outcome of the commit cannot be read back.
        """
        if not self.exists and self.table.foreign_commits is ForeignCommits.ADOPT:
            self._commit_in_storage_first()
        elif not self.exists:
            self._set_entry_after_batch()
        return self.finish()

    def _commit_in_storage_first(self) -> None:
        """Commit without losing a version that another client concurrently writes to storage.

        The storage decides which manifest gets the final name, as for such a client; then the entry
        is set. A client that finds the name taken, or a manifest whose writer died, adopts it.
        """
        if not self._put_final():
            now = out_of_band.clear_next_version(self.table).managed_state()
            if now.version != self.old.version or not self._put_final():
                raise version_conflict(self.path, self.version, now.version + 1)
        try:
            self._set_entry()
        except OutcomeUnknownError:
            raise  # if the entry is not set, the next client adopts the manifest
        except LanceNamespaceError as error:
            if not self._is_adopted():
                raise
            logger.info("%s was refused, and another client has adopted it: %s", self, error)

    def _set_entry_after_batch(self) -> None:
        """Compare and set the entry; wait once for a batch that came first.

        Until that batch is decided, Lance would mistake a refusal for a lost reply.
        """
        try:
            compare_and_set.swap(self.table, self.new, self._precedes)
        except ConcurrentModificationError:
            now = self.table.reloaded()
            if now.managed is None or now.managed.prepared is None:
                raise
            table = batches.resolve_batch(now)
            if table.managed != self.old.without_pending():
                raise
            compare_and_set.swap(table, self.new, self._precedes)

    def _set_entry(self) -> None:
        """Compare and set the entry; wait once for a client that quarantines manifests."""
        try:
            compare_and_set.swap(self.table, self.new, self._precedes)
        except ConcurrentModificationError:
            table = compare_and_set.wait_until_unlocked(
                batches.resolve_batch(self.table.reloaded())
            )
            if table.managed != self.old.without_pending():
                raise
            compare_and_set.swap(table, self.new, self._precedes)

    def _is_adopted(self) -> bool:
        """Return whether another client has adopted a refused commit; quarantine it otherwise.

        Raises:
            OutcomeUnknownError: (17) it cannot be quarantined, and may be adopted later.
        """
        directory = ManagedDirectory(self.directory.files, self.old, self._mark_id)
        try:
            if self._has_final_name():
                # Before reading the entry: a client that adopts it later keeps the staged manifest.
                directory.copy_to_quarantine([self.name])
            found = self.table.reloaded().managed
            if found is None or self._precedes(found):
                return self._has_final_name()
            if self._has_final_name():
                directory.withdraw(self.name)
        except LanceNamespaceError as error:
            raise OutcomeUnknownError(f"{self} may be adopted later: {error}") from error
        return False

    def finish(self) -> Manifest:
        """Return the new version's manifest, under its final name if storage allows that.

        A failure of the storage does not undo the commit, and must not look as if it did.
        """
        directory = ManagedDirectory(self.directory.files, self.new, self._mark_id)
        try:
            manifest = directory.latest()
        except LanceNamespaceError as error:
            if not self.data:
                raise
            logger.warning("%s is committed, and not finished: %s", self, error)
            manifest = None
        if manifest is not None:
            return manifest
        if not self.data:
            raise concurrent_modification(self.path)
        name, millis = self.new.staged, time.time_ns() // 1_000_000
        path = f"{self.directory.path}/{name}"
        return Manifest(self.version, Scheme.V2, name, path, len(self.data), None, millis)

    @property
    def _mark_id(self) -> str:
        return self.table.record.properties.get(MARK, "")

    def _precedes(self, later: State | None) -> bool:
        """Return whether a later state is based on this version, and not on another client's.

        No client commits a version, or returns a table to its storage, before the previous version
        has its final name.
        """
        if later is None:
            return self._has_final_name()
        if later.without_pending() == self.new:
            return True
        if later.version == self.version:  # another client may have adopted it
            path = self.directory.within(later.staged)
            adopted = self.directory.files.read(path) if later.staged else None
            return adopted == self.data or (adopted is None and self._has_final_name())
        return later.version > self.version and self._has_final_name()

    def _put_final(self) -> bool:
        return self.directory.files.put_own(self.directory.within(self.name), self.data)

    def _has_final_name(self) -> bool:
        return self.directory.files.read(self.directory.within(self.name)) == self.data


def prepare(table: TableEntry, staged: Staged) -> CatalogCommit:
    """Check all that can be checked before a version is committed; finish the one before it.

    Raises:
        ConcurrentModificationError: (14) the version exists, or is not the next one, or the table
            is held. Uncommitted manifests in the storage are quarantined.
        InvalidInputError: (13) the manifest does not exist, or is not of this version.
        ManagedElsewhereError: (19) another entry manages the versions.
        InvalidTableStateError: (19) the table refuses commits, because of such versions; or the
            record of a batch that it is part of is missing.
        UnsupportedOperationError: (0) metadata is given.
    """
    refuse_metadata(table.path, staged)
    require_scheme(table.path, staged, Scheme.V2)
    table = compare_and_set.wait_until_unlocked(batches.resolve_batch(table))
    mark.ensure(table)
    state = table.managed_state()
    directory = managed_directory(table, write=True)
    name = directory.name_of_staged(staged.manifest_path)
    path = directory.within(name)
    data = directory.files.read(path)
    new = State(staged.version, name)
    final = name_of(staged.version, Scheme.V2)

    def commit(content: bytes, *, exists: bool) -> CatalogCommit:
        return CatalogCommit(
            table.path,
            directory,
            staged.version,
            final,
            path,
            content,
            exists,
            table,
            state,
            new,
        )

    if new == state.without_pending() or _is_committed(directory, state, staged, data):
        # The same call again, after its reply was lost, is not a conflict.
        return commit(data or b"", exists=True)
    compare_and_set.require_unlocked(table)
    ready = out_of_band.prepare_commit(table, directory)
    if ready is not table:
        table, state = ready, ready.managed_state()
        directory = managed_directory(table, write=True)
        if _is_committed(directory, state, staged, data):  # adopted: its writer died before
            return commit(data or b"", exists=True)
    if staged.version > state.version + 1:
        out_of_band.quarantine(table)
    if staged.version != state.version + 1:
        raise version_conflict(table.path, staged.version, state.version + 1)
    checked = require_content(directory, path, staged, data)
    directory.finish()
    if directory.may_be_based_on_quarantined(path, checked):
        raise ConcurrentModificationError(
            f"Version {staged.version} of table '{table.name}' may be based on a version "
            f"{state.version} that bypassed the catalog: retry in a moment"
        )
    return commit(checked, exists=False)


def _is_committed(
    directory: ManagedDirectory, state: State, staged: Staged, data: bytes | None
) -> bool:
    if data is None or staged.version > state.version:
        return False
    final = directory.within(name_of(staged.version, Scheme.V2))
    return data == directory.files.read(final)


# -- a commit to several tables --------------------------------------------------------------------


def commit_batch(commits: Sequence[CatalogCommit]) -> list[Manifest]:
    """Commit versions of several tables, or none; return their manifests in the same order.

    Versions that an earlier attempt of the same request committed are kept.

    Args:
        commits: At most one for each table, checked by `prepare`.

    Raises:
        ConcurrentModificationError: (14) another client commits to one of the tables, or has
            aborted the batch because it took too long. Nothing is committed.
        OutcomeUnknownError: (17) the storage does not say whether the batch is committed; all of it
            is, or nothing.
        LanceNamespaceError: what the catalog or the storage raised. Nothing is committed.
    """
    new = sorted((each for each in commits if not each.exists), key=lambda each: each.path)
    if len(new) == 1:
        new[0].do()
    elif new:
        _Batch(new).commit()
    return [each.finish() for each in commits]


class _Batch:
    """One batch of this client. Its tables are sorted by path.

    So if two batches have several tables in common, one comes first in all of them.
    """

    def __init__(self, commits: Sequence[CatalogCommit]) -> None:
        self._commits = commits
        self._record = BatchRecord.new(commits[0].table)
        self._is_certain = True
        """Whether no change that was sent to an entry can still arrive."""

    def commit(self) -> None:
        """Commit the versions; see the function `commit_batch`."""
        self._record.write([each.path for each in self._commits])
        try:
            for each in self._commits:
                self._prepare(each)
        except LanceNamespaceError:
            self._abort()
            raise
        if self._decide() is not Outcome.COMMITTED:
            self._end(Outcome.ABORTED)
            raise concurrent_modification(self._commits[0].path)
        self._end(Outcome.COMMITTED)

    def _prepare(self, commit: CatalogCommit) -> None:
        prepared = self._record.prepared(commit.new.staged)
        try:
            compare_and_set.swap(commit.table, commit.old.prepare(prepared))
        except ConcurrentModificationError:
            raise
        except LanceNamespaceError:
            self._is_certain = False
            raise

    def _decide(self) -> Outcome | None:
        """Commit the batch, unless another client aborted it; return as `BatchRecord.decide`.

        Raises:
            OutcomeUnknownError: (17)
            LanceNamespaceError: what the storage raised; the batch is aborted.
        """
        try:
            return self._record.decide(Outcome.COMMITTED)
        except LanceNamespaceError as error:
            try:
                outcome = self._record.decide(Outcome.ABORTED)
            except LanceNamespaceError as unknown:
                raise OutcomeUnknownError(
                    f"Whether {self._record} is committed is unknown: {unknown}. Its tables show "
                    "it when the storage responds again"
                ) from error
            if outcome is Outcome.COMMITTED:
                return outcome
            self._is_certain = False
            self._end(Outcome.ABORTED)
            raise

    def _abort(self) -> None:
        """Abort the batch. If that fails, the next writer does it."""
        try:
            self._end(self._record.decide(Outcome.ABORTED) or Outcome.ABORTED)
        except LanceNamespaceError as error:
            logger.warning("%s stays undecided for a while: %s", self._record, error)

    def _end(self, outcome: Outcome) -> None:
        """Apply the outcome to all entries; last to the one that has the record.

        A failure does not change the outcome: the next writer continues.
        """
        connection = self._commits[0].table.connection
        first, *others = (each.path for each in self._commits)
        try:
            finish_entries(connection, others, self._record.id, outcome)
            finish_entries(connection, [first], self._record.id, outcome)
        except LanceNamespaceError as error:
            logger.warning("%s is %s, and not finished: %s", self._record, outcome.value, error)
            return
        if self._is_certain:
            self._record.remove()
