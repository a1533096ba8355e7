"""Committing a version through the catalog: the entry is compared and set, and that is the commit.

Then the manifest gets its final name. Whatever happens after the entry was set, the version is
there: who comes next finishes what is left to do.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from ..catalog import TableRecord
from ..connection import Connection
from ..errors import concurrent_modification, display
from ..managed_state import State, own_state, state_of, with_state
from ..storage import staging
from ..storage.manifests import Manifest, Scheme, name_of
from ..storage.staging import Staged
from . import compare_and_set as entry
from . import out_of_band as foreign
from .versions import ManagedDirectory, directory_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CatalogCommit(staging.Commit):
    """A version that was checked and can be committed through the catalog."""

    connection: Connection
    old: State
    new: State

    def do(self) -> Manifest:
        """Also see the base class.

        Raises:
            ConcurrentModificationError: (14)
            OutcomeUnknownError: (17) whether it is committed could not be found out.
        """
        if not self.is_there:
            entry.swap(self.connection, self.record, self.new, self._is_under)
        return self._finished()

    def _finished(self) -> Manifest:
        """Return the new version's manifest, under its final name if storage lets that be done.

        What storage does cannot undo the commit any more, and must not look as if it did.
        """
        try:
            manifest = ManagedDirectory(self.directory.files, self.new).latest()
        except LanceNamespaceError as error:
            if not self.data:
                raise
            logger.warning("%s is committed, and not finished: %s", self, error)
            manifest = None
        if manifest is not None:
            return manifest
        if not self.data:
            raise concurrent_modification(self.record.path)
        name, millis = self.new.staged, time.time_ns() // 1_000_000
        path = f"{self.directory.path}/{name}"
        return Manifest(self.version, Scheme.V2, name, path, len(self.data), None, millis)

    def _is_under(self, later: State) -> bool:
        """Return whether a later state stands on this version, and not on another's of its number.

        Nobody commits a version before the one below has its final name.
        """
        if later.free() == self.new:
            return True
        return later.version > self.version and self._has_final_name()

    def _has_final_name(self) -> bool:
        return self.directory.files.read(self.directory.within(self.name)) == self.data

    def take_back(self) -> None:
        """Also see the base class."""
        if self.is_there:
            return
        record = entry.reload(self.connection, self.record)
        found = state_of(record)
        if found is None or found.free() != self.new:
            # Another's commit, or none, is not this one's to take back.
            if (found is None or found.version > self.version) and self._has_final_name():
                raise self.stays()
            return
        self.directory.files.put_new(self.staged, self.data)
        back = self.old.hold()  # nobody commits until the manifest is out of the way
        try:
            entry.require_free(self.connection, record, found)
            entry.swap(self.connection, record, back)
        except ConcurrentModificationError as error:
            raise self.stays() from error
        held = with_state(record, back)
        try:
            if self._has_final_name():
                entry.require_held(self.connection, held)
                ManagedDirectory(self.directory.files, self.old).withdraw(self.name)
        finally:
            entry.release(self.connection, held)


def prepare(connection: Connection, record: TableRecord, staged: Staged) -> CatalogCommit:
    """Check all that can be checked before a version is committed; finish the one before it.

    Raises:
        ConcurrentModificationError: (14) the version is there, or is not the next one, or the
            table is held. What lies in the storage without having been committed is set aside.
        InvalidInputError: (13) the manifest is not there, or is not of this version.
        UnsupportedOperationError: (0) metadata is given.
    """
    staging.refuse_metadata(record, staged)
    staging.require_scheme(record, staged, Scheme.V2)
    record = entry.await_free(connection, record)
    state = own_state(record)
    directory = directory_of(connection, record, state, write=True)
    name = directory.name_of_staged(staged.manifest_path)
    path = directory.within(name)
    data = directory.files.read(path)
    new = State(staged.version, name)
    final = name_of(staged.version, Scheme.V2)

    def commit(content: bytes, *, is_there: bool) -> CatalogCommit:
        return CatalogCommit(
            record,
            directory,
            staged.version,
            final,
            path,
            content,
            is_there,
            connection,
            state,
            new,
        )

    if new == state.free() or _is_committed(directory, state, staged, data):
        # The same call again, after its reply was lost, is not a conflict.
        return commit(data or b"", is_there=True)
    entry.require_free(connection, record, state)
    if staged.version > state.version + 1:
        foreign.clear(connection, record)
    if staged.version != state.version + 1:
        raise staging.conflict(record, staged.version, state.version + 1)
    checked = staging.require_content(directory, path, staged, data)
    directory.finish()
    if directory.may_stand_on_rival(path, checked):
        raise ConcurrentModificationError(
            f"Version {staged.version} of table '{display(record.path)}' may have been built on "
            f"what was written past the catalog as version {state.version}: repeat it in a moment"
        )
    return commit(checked, is_there=False)


def _is_committed(
    directory: ManagedDirectory, state: State, staged: Staged, data: bytes | None
) -> bool:
    if data is None or staged.version > state.version:
        return False
    final = directory.within(name_of(staged.version, Scheme.V2))
    return data == directory.files.read(final)
