"""Committing a version through the catalog: the compare-and-set of the entry is the commit.

The manifest gets its final name afterwards. Once the entry is set, the version exists: the next
client finishes what is left to do.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from ..entry import TableEntry
from ..errors import OutcomeUnknownError, concurrent_modification
from ..managed_state import State
from ..records import MARK, ForeignCommits
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
from . import batch_recovery, compare_and_set, mark, out_of_band
from .versions import ManagedDirectory, managed_directory

logger = logging.getLogger(__name__)


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
            table = batch_recovery.resolve_batch(now)
            if table.managed != self.old.without_pending():
                raise
            compare_and_set.swap(table, self.new, self._precedes)

    def _set_entry(self) -> None:
        """Compare and set the entry; wait once for a client that quarantines manifests."""
        try:
            compare_and_set.swap(self.table, self.new, self._precedes)
        except ConcurrentModificationError:
            table = compare_and_set.wait_until_unlocked(
                batch_recovery.resolve_batch(self.table.reloaded())
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
    table = compare_and_set.wait_until_unlocked(batch_recovery.resolve_batch(table))
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
