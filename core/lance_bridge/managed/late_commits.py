"""Late commits: those to the storage of a table that the catalog has begun to manage meanwhile.

A writer that opened the table before commits to the storage. It reads the entry again after each
commit, and does what is left: its version becomes the next one in the catalog, or is withdrawn
before the writer fails. So a commit that succeeds is never lost, and one that fails never appears.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import lance
from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from .. import locations
from ..catalog import TableRecord
from ..dataset_versions import manifest_message
from ..entry import EntryT, TableEntry
from ..errors import OutcomeUnknownError
from ..records import ForeignCommits
from ..storage import MAIN
from ..storage.manifest_content import parse_manifest, parse_origin
from ..storage.manifests import Manifest, VersionDirectory
from . import batch_recovery, compare_and_set, out_of_band
from .versions import managed_directory

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 5.0
"""How long a writer looks again while other clients hold the table, or may adopt the version before
its own."""


Made = lance.LanceDataset | str | bytes
"""What identifies a version: the dataset at it, its transaction's identifier, or its manifest."""


@dataclass(frozen=True)
class LateCommit:
    """A version that was committed to the storage."""

    version: int
    made: str | bytes
    branch: str | None = None

    @classmethod
    def of(cls, version: int, made: Made, branch: str | None) -> LateCommit:
        """Return a commit; arguments as of `Table.note_commit`."""
        if isinstance(made, lance.LanceDataset):
            file, branch = parse_origin(manifest_message(made))
            made = _identifier(file)
        return cls(version, made, None if branch in ("", MAIN) else branch)

    def find(self, directory: VersionDirectory) -> Manifest | None:
        """Return the manifest of its version, or None if that is missing or another writer's."""
        found = VersionDirectory.find(directory, self.version)
        data = None if found is None else directory.files.read(directory.within(found.name))
        return found if data is not None and self._is_in(data) else None

    def _is_in(self, manifest: bytes) -> bool:
        if isinstance(self.made, bytes):
            return self.made == manifest
        try:
            return self.made == _identifier(parse_manifest(manifest).transaction_file)
        except ValueError:
            return False


def _identifier(transaction_file: str) -> str:
    return transaction_file.partition("-")[2].removesuffix(".txn")


def require_part(table: EntryT, commit: LateCommit) -> None:
    """Check that a commit is part of the table; make it so, or withdraw it.

    Args:
        table: The table as it is after the commit.

    Raises:
        ConcurrentModificationError: (14) it is not, and will not be.
        OutcomeUnknownError: (17) it is not known.
        TableNotFoundError: (4) as `TableEntry.reread_after_commit`.
    """
    if not commit.made:
        raise _unknown(table, commit, "its transaction has no name")
    ends = time.monotonic() + _WAIT_SECONDS
    while True:
        is_last = time.monotonic() > ends
        try:
            if _is_part(table, commit, is_last=is_last):
                return
        except _WithdrawnError as error:
            raise ConcurrentModificationError(str(error)) from error
        except LanceNamespaceError as error:
            table = table.reread_after_commit(commit.version)  # raises if it was dropped
            # Another client commits, or holds the table: while it becomes managed, for example.
            if is_last or not isinstance(error, ConcurrentModificationError):
                raise _unknown(table, commit, error) from error
        time.sleep(compare_and_set.POLL_SECONDS)
        table = table.reread_after_commit(commit.version)


def remove_from_new_table(table: TableEntry, found: TableRecord, commit: LateCommit) -> None:
    """Remove a commit's manifest from a table that was created again at the same location.

    It names files of the table that was dropped, and would make the new one unreadable. A manifest
    on which another one is based stays; so does one in a table whose versions the catalog holds,
    which does not adopt it.
    """
    if found.is_managed or locations.key(found.location or "/") != locations.key(table.location):
        return
    directory = VersionDirectory(table.files(write=True), commit.branch)
    try:
        own, latest = commit.find(directory), directory.latest()
        if own is not None and latest is not None and latest.version == own.version:
            directory.files.remove([directory.within(own.name)])
    except LanceNamespaceError as error:
        logger.warning(
            "version %s of the table that was dropped stays in %s, which was created again: %s",
            commit.version,
            table.name,
            error,
        )


class _WithdrawnError(ConcurrentModificationError):
    """The commit is no version of the table, and does not become one."""


def _is_part(table: EntryT, commit: LateCommit, *, is_last: bool) -> bool:
    """Return whether a commit is part of the table; False: its writer is to look again.

    Raises:
        _WithdrawnError: It is not, and does not become so by itself.
        ConcurrentModificationError: (14) another client commits, or holds the table.
    """
    if not table.record.is_managed:
        return _is_in_storage(table, commit)
    table.require_own_versions()
    table = batch_recovery.resolve_batch(table)
    directory = managed_directory(table, write=True)
    directory.finish()
    is_there = commit.find(directory) is not None
    if table.managed_state().version >= commit.version:
        if is_there:
            return True
        if not directory.has_quarantined(commit.version):
            raise OutcomeUnknownError(f"there is no version {commit.version} any more")
    if not is_there:
        raise _withdrawn(table, commit)
    if table.managed_state().version == commit.version - 1:
        adopted = out_of_band.adopt_next(table)
        if adopted is not None:
            return _is_part(adopted, commit, is_last=is_last)
        _withdraw(table, commit)
    elif table.foreign_commits is ForeignCommits.ADOPT:
        out_of_band.clear_next_version(table)
    elif is_last:  # till then, the writer of the version before may adopt that one
        _withdraw(table, commit)
    return False


def _is_in_storage(table: TableEntry, commit: LateCommit) -> bool:
    """Return True if the storage has the commit: the catalog may have had the versions before."""
    if commit.find(VersionDirectory(table.files(), commit.branch)) is None:
        raise _withdrawn(table, commit)
    return True


def _withdraw(table: EntryT, commit: LateCommit) -> None:
    """Quarantine the commit's manifest, if it is not part of the table by now.

    Raises:
        _WithdrawnError: It is withdrawn.
        ConcurrentModificationError: (14) another client commits, or holds the table.
    """
    with compare_and_set.held(table, brief=True) as held:
        directory = managed_directory(held, write=True)
        found = commit.find(directory)
        if found is not None and directory.state.version >= commit.version:
            return
        if found is not None:
            compare_and_set.require_held(held)
            directory.quarantine([found])
    raise _withdrawn(table, commit)


def _withdrawn(table: TableEntry, commit: LateCommit) -> _WithdrawnError:
    return _WithdrawnError(
        f"Table '{table.name}' was made managed by its catalog, or released, while it was written: "
        f"version {commit.version} of this write is not part of it, and nothing of it is visible. "
        "Reload the table and retry"
    )


def _unknown(table: TableEntry, commit: LateCommit, error: object) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Table '{table.name}' was made managed by its catalog while it was written, and whether "
        f"version {commit.version} of this write becomes part of it is not known: {error}"
    )
