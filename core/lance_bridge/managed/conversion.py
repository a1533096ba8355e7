"""Making a table implementation-managed, returning it to its storage, and commits that are late.

A late commit is one to the storage of a table that the catalog has begun to manage meanwhile, by a
writer that opened the table before. It reads the entry again after each commit, and does what is
left: its version becomes the next one in the catalog, or is withdrawn before the writer fails. So a
commit that succeeds is never lost, and one that fails never appears.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)

from .. import locations
from ..catalog import GUARD, IMPLEMENTATION, MANAGED_BY, TableRecord
from ..entry import EntryT, TableEntry
from ..errors import (
    OutcomeUnknownError,
    concurrent_modification,
    display,
    invalid,
    retry_after_readback,
)
from ..managed_state import State, as_managed, as_second, as_unmanaged, parse_state
from ..records import FOREIGN_COMMITS, MARK, ForeignCommits
from ..storage import MAIN
from ..storage.lance_format import parse_manifest, parse_origin
from ..storage.manifests import Manifest, VersionDirectory
from ..transaction_versions import manifest_message
from . import batches, compare_and_set, mark, out_of_band
from .version_directory import ManagedDirectory, managed_directory

logger = logging.getLogger(__name__)

# -- removal ---------------------------------------------------------------------------------------


_ATTEMPTS = 5


def resolve_batch_before_removal(table: EntryT) -> EntryT:
    """Do as `resolve_batch` before a removal, which a missing record does not prevent.

    Raises:
        ServiceUnavailableError: (17) or another error: the version that a batch has prepared would
            be lost with the entry.
    """
    try:
        return batches.resolve_batch(table)
    except InvalidTableStateError as error:
        logger.warning("%s is removed without a version of a batch: %s", table.name, error)
        return table


@contextmanager
def held_for_removal(table: EntryT) -> Iterator[EntryT]:
    """End the batch that a table is part of, and hold the table while its entry is removed.

    Otherwise a commit in between would be lost with the entry, and a batch would lose its record
    with the files. Another client's hold does not prevent a removal. If the removal fails, the
    entry is as before. Does nothing for a storage-managed table.

    Raises:
        ConcurrentModificationError: (14) other clients keep committing.
        ServiceUnavailableError: (17) or another error, as `resolve_batch_before_removal`.
    """
    before, held = _hold(resolve_batch_before_removal(table))
    try:
        yield held
    except LanceNamespaceError:
        _restore(held, before)
        raise


def _hold(table: EntryT) -> tuple[EntryT, EntryT]:
    """Hold a table; return it as it was right before, with others' latest commit, and as held."""
    for _ in range(_ATTEMPTS):
        try:
            state = table.managed
        except InvalidTableStateError:
            return table, table  # an entry that cannot be read takes no commit
        if state is None:
            return table, table
        try:
            return table, compare_and_set.swap(table, state.hold(state.other)).reloaded()
        except ConcurrentModificationError:
            table = resolve_batch_before_removal(table.reloaded())
        except PermissionDeniedError as error:
            logger.info("%s is removed without a hold: %s", table.name, error)
            return table, table
    raise concurrent_modification(table.path)


def _restore(held: TableEntry, before: TableEntry) -> None:
    """Restore the entry as before the hold, unless it is missing or was changed."""
    try:
        now = held.reloaded()
        if now.managed == held.managed != before.managed and before.managed is not None:
            compare_and_set.swap(now, before.managed)
    except (TableNotFoundError, NamespaceNotFoundError):
        return
    except LanceNamespaceError as error:
        logger.warning("%s remains held until the hold expires: %s", held.name, error)


# -- conversion ------------------------------------------------------------------------------------


def begin(table: EntryT, *, force: bool = False) -> EntryT:
    """Implement `Table.manage`."""
    table.connection.require_manageable(f"Table '{table.name}'")
    if not force:
        return _begin(table)
    with _former_manager(table) as former:
        table = _begin(table, force=True)
        if former is not None:
            make_second(former, table)
    return table


def make_second(entry: TableEntry, manager: TableEntry) -> None:
    """Have an entry only read a table whose versions another entry manages."""
    second = as_second(entry.record, str(mark.Mark.of(manager)))
    entry.connection.catalog.alter_table(second)


def _begin(table: EntryT, *, force: bool = False) -> EntryT:
    for _ in range(_ATTEMPTS):
        if not (force and table.manager):
            table.require_own_versions()
        if table.record.revision is None:
            # A record that was just created has no revision that the catalog could compare.
            table = table.reloaded()
        if table.managed is not None:
            return _take_back(table) if force else _require_manager(table)
        _finish_staged(table)
        guard = table.record.properties.get(GUARD) or table.connection.catalog.commit_guard(
            table.record
        )
        table, state = _with_inherited_policy(table), None
        with suppress(ConcurrentModificationError), _marked(table, force=force) as own:
            # Held, until the versions are adopted that were committed before the entry was changed.
            state = batches.begin_conversion(table.latest_in_storage())
            _alter(table.with_record(as_managed(table.record, state, guard, own)))
        table = table.reloaded()
        if state is not None and table.managed == state:
            return _finish_conversion(table)
    raise concurrent_modification(table.path)


def _require_manager(table: EntryT) -> EntryT:
    mark.require_manager(table)
    return table


@contextmanager
def _former_manager(table: TableEntry) -> Iterator[TableEntry | None]:
    """Hold the entry of this catalog that another one takes the versions from; yield it.

    Its latest version gets its final name. None if there is no such entry, or it is in another
    catalog.
    """
    former = mark.find_former(table)
    if former is None:
        yield None
        return
    with compare_and_set.held(batches.resolve_batch(former)) as held:
        managed_directory(held, write=True).finish()
        yield held


def _take_back(table: EntryT) -> EntryT:
    """Return the versions to an entry that managed them before another one did.

    Those that the other one committed become versions of this entry.
    """
    with compare_and_set.held(batches.resolve_batch(table)) as held:
        own = {MARK: mark.place(held, force=True)}
        managed_directory(held, write=True).finish()
        latest = max(held.managed_state().version, held.latest_in_storage())
        marked = held.record.with_properties({**held.record.properties, **own})
        compare_and_set.swap(held.with_record(marked), State(latest))
    return table.reloaded()


@contextmanager
def _marked(table: TableEntry, *, force: bool) -> Iterator[str]:
    """Place the table's mark, and remove it if the entry does not become managed; yield its id."""
    own = mark.place(table, force=force)
    try:
        yield own
    except OutcomeUnknownError:
        raise
    except LanceNamespaceError:
        with suppress(LanceNamespaceError):
            if table.reloaded().managed is None:
                mark.remove(table, own)
        raise


def _finish_staged(table: TableEntry) -> None:
    """Give the latest version its final name if the table was managed before.

    Another tool may have changed who manages the table while only the entry had the manifest's
    name. A version that has been written to the storage since then is not replaced.
    """
    record = table.record.with_properties({**table.record.properties, MANAGED_BY: IMPLEMENTATION})
    with suppress(InvalidTableStateError):  # its latest version is not known
        state = parse_state(record)
        if state is not None and state.staged:
            files = table.files(write=True)
            if VersionDirectory(files).find(state.version) is None:
                ManagedDirectory(files, state).finish()


def _with_inherited_policy(table: EntryT) -> EntryT:
    """Return the table with its namespace's `FOREIGN_COMMITS`, unless it has its own."""
    own = table.record.properties
    if FOREIGN_COMMITS in own:
        return table
    namespace = table.connection.catalog.load_namespace(table.path[:-1])
    value = namespace.properties.get(FOREIGN_COMMITS)
    if value is None:
        return table
    try:
        policy = ForeignCommits.parse(value).value
    except InvalidInputError as error:
        raise invalid(f"Namespace '{display(table.path[:-1])}': {error}") from error
    return table.with_record(table.record.with_properties({**own, FOREIGN_COMMITS: policy}))


def _finish_conversion(table: EntryT) -> EntryT:
    """Adopt the versions that were committed to the storage before the entry was changed.

    Their writers have read the entry before it was changed: those that read it later adopt their
    versions themselves. If that fails, the table is returned to its storage.
    """
    try:
        return batches.finish_conversion(table)
    except LanceNamespaceError:
        with suppress(LanceNamespaceError):  # the hold ends, and the next writer finishes it
            _alter(table.with_record(as_unmanaged(table.record)))
            mark.remove(table)
        raise


@contextmanager
def finished_for_removal(table: EntryT) -> Iterator[EntryT]:
    """Implement `Table.finished_for_removal`, for any entry."""
    with held_for_removal(table) as held:
        _finish_before_removal(held)
        yield held
    if MARK in held.record.properties:
        mark.remove(held)


def _finish_before_removal(table: TableEntry) -> None:
    """Give the latest version its final name: only the entry has the name of a staged manifest.

    A table that cannot be opened is removed all the same.

    Raises:
        ServiceUnavailableError: (17) or another error of the storage: with the entry, the latest
            version would be lost.
    """
    try:
        _finish_latest(table)
    except (InvalidInputError, InvalidTableStateError) as error:
        _warn_of_staged(table, error)
    except LanceNamespaceError as error:
        raise type(error)(
            f"The entry of table '{table.name}' is kept, because the latest version may not have "
            f"its final name yet, and would be lost with the entry: {error}"
        ) from error


def finish_latest(table: TableEntry) -> None:
    """Give the latest version its final name, so that it is found without the entry.

    A failure is logged.
    """
    try:
        _finish_latest(table)
    except LanceNamespaceError as error:
        _warn_of_staged(table, error)


def require_finished(table: EntryT) -> EntryT:
    """End the batch that a table is part of, and give its latest version the final name.

    Before files are deleted that no version names: Lance reads no staged manifest. Returns the
    updated table.

    Raises:
        PermissionDeniedError: (15) or another error of the storage.
    """
    table = batches.resolve_batch(table.reloaded())
    directory = managed_directory(table, write=True)
    directory.latest()  # raises if it is gone
    directory.finish()
    return table


def _finish_latest(table: TableEntry) -> None:
    if table.managed is not None:
        directory = managed_directory(table, write=True)
        directory.latest()  # raises if it is gone
        directory.finish()


def _warn_of_staged(table: TableEntry, error: LanceNamespaceError) -> None:
    logger.warning("the latest version of %s may stay staged: %s", table.name, error)


def end(table: EntryT, holder: str = "") -> EntryT:
    """Implement `Table.release`."""
    table = batches.resolve_batch(table)
    with compare_and_set.held(table, holder=holder) as held:
        directory = managed_directory(held, write=True)
        directory.latest()  # raises if it is gone, and nothing else has its rows
        directory.finish()
        for each in directory.uncommitted():
            raise InvalidTableStateError(
                f"Version {each.version} of table '{held.name}' was not committed through the "
                "catalog, and would become visible: adopt or discard it first"
            )
        _alter(held.with_record(as_unmanaged(held.record)))
        mark.remove(held)
    return table.reloaded()


def _alter(changed: TableEntry) -> None:
    def has_happened() -> bool:
        found = changed.reloaded().record.properties
        wanted = changed.record.properties
        return all(found.get(key) == wanted.get(key) for key in (MANAGED_BY, GUARD))

    retry_after_readback(
        lambda: changed.connection.catalog.alter_table(changed.record), has_happened
    )


# -- late commits ----------------------------------------------------------------------------------

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
    table = batches.resolve_batch(table)
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
