"""Versions in storage that were not committed through the catalog: list, adopt or discard them.

An adopted manifest is committed like any other: a copy of it is staged, and the compare-and-set of
the entry is the commit. So an earlier commit through the catalog wins, and the next client finishes
what a client that died has left.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
)

from ..dotted_names import first_names
from ..entry import EntryT, TableEntry
from ..errors import LatestVersionGoneError, ManagedElsewhereError, RowsOnlyHereError, invalid
from ..managed_state import State
from ..records import FOREIGN_COMMITS, ForeignCommits
from ..storage.lance_format import DATA, ManifestContent, parse_manifest, parse_transaction
from ..storage.manifests import Manifest, Scheme, name_of
from . import batches, compare_and_set, mark
from .batches import latest_state
from .unique_rows import find_unique_rows, has_rows_of, read_manifests
from .version_directory import (
    QUARANTINED,
    ManagedDirectory,
    UncommittedManifest,
    managed_directory,
    quarantined_version,
)

# -- adoption --------------------------------------------------------------------------------------


_TRANSACTION = re.compile(r"(\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.txn")

logger = logging.getLogger(__name__)


def adopt_next(table: EntryT) -> EntryT | None:
    """Commit the uncommitted manifest of the next version; return the updated table.

    Returns None if it is not based on the latest version.

    Raises:
        ConcurrentModificationError: (14) another client commits, or holds the table.
        InvalidTableStateError: (19) as `batches.resolve_batch`.
    """
    table = batches.resolve_batch(table)
    compare_and_set.require_unlocked(table)
    directory = managed_directory(table, write=True)
    directory.finish()
    version = directory.state.version + 1
    data = directory.read_final(version)
    if data is None:
        return table.reloaded()
    try:
        reason = _find_objection(directory, data)
    except ValueError as error:
        reason = str(error)
    if reason:
        logger.warning("version %s of %s is not adopted: %s", version, table.name, reason)
        return None
    # Named by its content, so all clients that adopt the manifest stage the same file.
    digest = uuid.UUID(bytes=hashlib.sha256(data).digest()[:16])
    staged = f"{name_of(version, Scheme.V2)}-{digest}"
    directory.files.put_own(directory.within(staged), data)
    adopted = compare_and_set.swap(table, State(version, staged))
    logger.info("version %s of %s, which bypassed the catalog, is adopted", version, table.name)
    return adopted


def _find_objection(directory: ManagedDirectory, data: bytes) -> str:
    """Return why a manifest of the next version cannot be based on the latest, or "".

    Lance bases a commit on the manifest of the previous version, and the name of its transaction
    begins with the version that its writer read. Its data files show which manifest of that number
    it was: they are the parent's, or new in its transaction.

    Raises:
        ValueError: The manifest or its transaction cannot be read.
    """
    latest, content = directory.state.version, parse_manifest(data)
    read = _TRANSACTION.fullmatch(content.transaction_file)
    if content.version != latest + 1 or content.branch:
        return f"its manifest is of version {content.version} {content.branch}".rstrip()
    if read is None or int(read[1]) > latest:
        return f"its transaction {content.transaction_file!r} is not based on version {latest}"
    transaction = directory.files.read(f"_transactions/{read[0]}")
    if transaction is None:
        return f"its transaction {read[0]} is missing"
    committed = directory.read_final(latest)
    parent = parse_manifest(committed).data_files if committed is not None else frozenset()
    if not _explains(directory, transaction, content, parent):
        return f"its data files are not those of version {latest} and of its transaction"
    missing = directory.missing_data_files(content, known=parent)
    if missing:
        return f"its data file {missing[0]} is missing"
    rivals = directory.conflicting()
    theirs = {name for each in rivals for name in parse_manifest(each).data_files}
    is_ambiguous = rivals and not content.data_files & (parent - theirs)
    reason = f"it may be based on another version {latest}, which is quarantined"
    return reason if is_ambiguous else ""


def _explains(
    directory: ManagedDirectory,
    transaction: bytes,
    content: ManifestContent,
    parent: frozenset[str],
) -> bool:
    """Return whether a transaction can produce a manifest's data files from its parent's."""
    operation = parse_transaction(transaction)
    if operation.is_append and not parent <= content.data_files:
        return False
    new = content.data_files - parent
    if operation.restored is not None:
        restored = directory.read_final(operation.restored)
        new -= parse_manifest(restored).data_files if restored is not None else frozenset()
    return all(name.encode() in transaction for name in new)


# -- versions that bypassed the catalog ------------------------------------------------------------


_NAMED = 5
_FILES = 20
"""Files of which the age is read."""
_RESTORE = (
    "restore the files of that version; or deregister the table and register its location, "
    "which takes the last version there"
)
_APPEND = (
    "append the rows that only these versions have with `lance-bridge managed adopt --append`; "
    "`lance-bridge managed discard` deletes versions without such rows"
)
DELETE = "delete these versions with `lance-bridge managed discard`, which loses no rows"
"""What to do with versions that have no rows of their own."""


@dataclass(frozen=True)
class OutOfBand:
    """The versions in a table's storage that were not committed through its catalog.

    Attributes:
        versions: Manifests that Lance would find as versions; they can be adopted.
        quarantined: File names of manifests that were moved aside for a commit. They can be
            adopted as long as no commit has taken their versions.
        writers: The libraries that wrote them, each with its version: ``lance 14.0.2``.
        unique: Those with rows that nothing else has: ``version 3 (1 data file, 2 rows)``.
    """

    versions: tuple[Manifest, ...]
    quarantined: tuple[str, ...]
    writers: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()

    @property
    def quarantined_versions(self) -> tuple[int | None, ...]:
        """The versions in the names of the quarantined manifests."""
        return tuple(map(quarantined_version, self.quarantined))


def inspect(table: TableEntry) -> OutOfBand:
    """Return the uncommitted versions. Raises InvalidInput (13) for a storage-managed table."""
    directory = managed_directory(table)
    # Versions found before the entry is read again may have been committed since.
    found = directory.uncommitted()
    latest = latest_state(table.reloaded()).version if found else 0
    left = tuple(each for each in found if each.version > latest)
    quarantined = tuple(directory.quarantined())
    manifests = [UncommittedManifest(each.version, each.name) for each in left]
    manifests += [UncommittedManifest(quarantined_version(each) or 0, each) for each in quarantined]
    writers = {
        content.writer for _, content in read_manifests(directory, manifests) if content is not None
    }
    unique = tuple(map(str, find_unique_rows(directory, manifests))) if manifests else ()
    return OutOfBand(left, quarantined, tuple(sorted(writers - {""})), unique)


def unprotected_since(table: TableEntry) -> float | None:
    """Implement `Table.unprotected_since`; changes nothing."""
    directory = managed_directory(table)
    state, files = directory.state, directory.files
    paths: list[str] = []
    manifests = directory.every_uncommitted()
    aside = [each for each in manifests if QUARANTINED in each.name]
    for each in find_unique_rows(directory, aside):
        paths += [f"{DATA}/{name}" for name in sorted(each.data_files)]
    if len(manifests) > len(aside):
        paths.append(directory.within(name_of(state.version, Scheme.V2)))
    staged = files.read(directory.within(state.staged)) if state.staged else None
    if staged is not None and directory.read_final(state.version) is None:
        with suppress(ValueError):
            paths += [f"{DATA}/{name}" for name in sorted(parse_manifest(staged).data_files)]
    heads = [files.head(path) for path in paths[:_FILES]]
    times = [meta["last_modified"].timestamp() for meta in heads if meta is not None]
    return min(times, default=None)


def require_decided(table: TableEntry) -> None:
    """Check that no uncommitted version needs files, before files are deleted that no version has.

    Lance's clean-up reads no quarantined manifest.

    Raises:
        InvalidTableStateError: (19) there are such versions.
    """
    found = inspect(table)
    names = [f"version {each.version}" for each in found.versions]
    names += [f"quarantined version {each}" for each in found.quarantined_versions]
    if names:
        raise InvalidTableStateError(
            f"Table '{table.name}' is not cleaned up: that could delete files of versions that "
            f"bypassed its catalog: {first_names(names, _NAMED)}. Make them part of the table with "
            "`lance-bridge managed adopt`, or delete them with `lance-bridge managed discard`"
        )


def adopt(table: TableEntry) -> int:
    """Commit the uncommitted versions; return the new latest version.

    If the latest version was deleted without the catalog, the last version that is left is
    committed: Lance's clean-up by path keeps the versions that have the rows of those it deletes.

    Raises:
        InvalidInputError: (13) there are none, or storage manages the table.
        InvalidTableStateError: (19) they do not continue the latest version, or lack a data file.
        ConcurrentModificationError: (14) another client commits.
    """
    mark.require_manager(table)
    table = batches.resolve_batch(table)
    _find_latest_adoptable(table)
    with compare_and_set.held(table) as held:  # else another client could quarantine them
        latest = _find_latest_adoptable(held)
        managed_directory(held, write=True).restore_quarantined()
        compare_and_set.swap(held, State(latest))
    return latest


def _find_latest_adoptable(table: TableEntry) -> int:
    """Return the latest of the versions that can be adopted. Raises as `adopt` does."""
    latest = table.managed_state().version
    directory = managed_directory(table, write=True)
    with suppress(LatestVersionGoneError):
        directory.latest()  # gets its final name
    present = directory.uncommitted()
    found = [(each.version, each.name) for each in present]
    found = found or list(directory.quarantined_after_latest())
    if not found:
        directory.latest()  # raises if it is gone, and only older versions are left
        aside = f" after version {latest}: {_remedy(directory)}" if directory.quarantined() else ""
        raise invalid(f"Table '{table.name}' has no version that was not committed{aside}")
    versions = [version for version, _ in found]
    version, name = found[-1]
    is_next = versions == list(range(latest + 1, latest + 1 + len(found)))
    rivals = directory.conflicting()
    content, defect = _find_defect(directory, name)
    is_gone = bool(rivals or defect or not is_next) and _is_latest_gone(directory)
    is_one = versions.count(version) == 1 and all(each.scheme is Scheme.V2 for each in present)
    contains = content is not None and _contains_latest(directory, content, rivals)
    if not is_one or not (is_next or is_gone or contains):
        raise InvalidTableStateError(
            f"Versions {', '.join(map(str, versions))} do not continue version {latest} of table "
            f"'{table.name}': {_remedy(directory, is_gone=is_gone)}"
        )
    if rivals and (is_gone or not contains):
        raise InvalidTableStateError(
            f"Another version {latest} of table '{table.name}' is quarantined, and the uncommitted "
            "versions may be based on that, without the rows of the one committed: "
            f"{_remedy(directory, is_gone=is_gone)}"
        )
    if defect:
        raise InvalidTableStateError(
            f"Version {version} of table '{table.name}' cannot be adopted: {defect}. Restore it, "
            f"or {_remedy(directory, is_gone=is_gone)}"
        )
    return version


def _find_defect(directory: ManagedDirectory, name: str) -> tuple[ManifestContent | None, str]:
    """Return a manifest, and why its version cannot be read, as far as its files show, or ""."""
    data = directory.files.read(directory.within(name))
    try:
        content = parse_manifest(data or b"")
    except ValueError as error:
        return None, str(error)
    missing = directory.missing_data_files(content)
    return content, f"its data file {missing[0]} is missing" if missing else ""


def _contains_latest(
    directory: ManagedDirectory, content: ManifestContent, rivals: Sequence[bytes]
) -> bool:
    """Return whether a version has the rows of the latest committed one, and not a rival's."""
    data = directory.read_latest()
    if data is None:
        return directory.state.version == 0
    try:
        latest = parse_manifest(data)
        theirs = {name for each in rivals for name in parse_manifest(each).data_files}
    except ValueError:
        return False
    if rivals and not content.data_files & (latest.data_files - theirs):
        return False
    return has_rows_of(directory, content, latest)


def _remedy(directory: ManagedDirectory, *, is_gone: bool = False) -> str:
    """Return what to do with versions that cannot be adopted; nothing of it loses rows."""
    if is_gone:
        return _RESTORE
    return _APPEND if find_unique_rows(directory, directory.every_uncommitted()) else DELETE


def _is_latest_gone(directory: ManagedDirectory) -> bool:
    try:
        directory.require_intact()
    except LatestVersionGoneError:
        return True
    return False


def discard(table: TableEntry, versions: Sequence[int] | None = None) -> int:
    """Delete the manifests that were not committed, also quarantined ones; return their number.

    The data files that only they name are deleted by Lance's clean-up.

    Args:
        versions: Delete only these versions, also if nothing else has their rows.

    Raises:
        InvalidInputError: (13) storage manages the table, or it has no such uncommitted version.
        ConcurrentModificationError: (14) another client commits.
        LatestVersionGoneError: (19) they may be all that is left of the table's rows.
        RowsOnlyHereError: (19) nothing else has their rows, and they are not named.
    """
    mark.require_manager(table)
    directory = managed_directory(table, write=True)
    directory.require_intact()
    _choose_discarded(table, directory, versions)
    quarantine(table)
    directory = managed_directory(table.reloaded(), write=True)
    names = [each.name for each in _choose_discarded(table, directory, versions)]
    directory.files.remove([directory.within(name) for name in names])
    return len(names)


def _choose_discarded(
    table: TableEntry, directory: ManagedDirectory, versions: Sequence[int] | None
) -> Sequence[UncommittedManifest]:
    """Return the manifests to delete. Raises as `discard`."""
    found = directory.every_uncommitted()
    if versions is not None:
        unknown = sorted(set(versions) - {each.version for each in found})
        if unknown:
            raise invalid(
                f"Table '{table.name}' has no version {unknown[0]} that was not committed"
            )
        return [each for each in found if each.version in versions]
    unique = find_unique_rows(directory, found)
    if unique:
        count, names = len(unique), [str(each) for each in unique]
        raise RowsOnlyHereError(
            f"No version of table '{table.name}' is discarded, because nothing else has the rows "
            f"of {'this one' if count == 1 else 'these'}: {first_names(names, _NAMED)}",
            sorted({each.version for each in found}),
            can_adopt=_is_adoptable(table),
        )
    return found


def _is_adoptable(table: TableEntry) -> bool:
    try:
        _find_latest_adoptable(table)
    except (InvalidInputError, InvalidTableStateError):
        return False
    return True


def clear_next_version(table: EntryT) -> EntryT:
    """Adopt or quarantine a manifest with the next version's name; return the updated table.

    Otherwise Lance would find it while it commits, and base its commit on it. Waits for another
    client that does the same.

    Raises:
        ConcurrentModificationError: (14) another client commits, or holds the table.
        InvalidTableStateError: (19) the table refuses commits while such a manifest exists.
    """
    ends = time.monotonic() + compare_and_set.WAIT_SECONDS
    while managed_directory(table, write=True).has_next():
        # It may have been committed since the entry was read.
        now = table.reloaded()
        if latest_state(now).version == latest_state(table).version:
            try:
                now = _handle_next_version(now)
            except ConcurrentModificationError:
                now = now.reloaded()
                if time.monotonic() > ends or now.managed_state().is_held_for_long:
                    raise
                time.sleep(compare_and_set.POLL_SECONDS)
        table = now
    return table


def _handle_next_version(table: EntryT) -> EntryT:
    """Handle the next version's uncommitted manifest as the table's property says."""
    mark.require_manager(table)
    if table.foreign_commits is ForeignCommits.REFUSE:
        _require_no_foreign_versions(table, managed_directory(table))
        return table.reloaded()
    if table.foreign_commits is ForeignCommits.ADOPT:
        adopted = adopt_next(table)
        if adopted is not None:
            return adopted
    quarantine(table)
    return table


def prepare_commit(table: EntryT, directory: ManagedDirectory) -> EntryT:
    """Adopt versions that bypassed the catalog, or refuse a commit, as the table's property says.

    Raises:
        ConcurrentModificationError: (14) another client commits, or holds the table.
        InvalidTableStateError: (19) the table refuses commits.
    """
    policy = table.foreign_commits
    if policy is ForeignCommits.REFUSE:
        _require_no_foreign_versions(table, directory)
    if policy is ForeignCommits.ADOPT and directory.has_next():
        return clear_next_version(table)
    return table


def _require_no_foreign_versions(table: TableEntry, directory: ManagedDirectory) -> None:
    """Check that no version after or beside the latest one has bypassed the catalog.

    Raises:
        InvalidTableStateError: (19)
    """
    following = directory.state.version + 1
    if directory.has_next() or directory.has_quarantined(following) or directory.conflicting():
        found = _foreign_versions(table.reloaded())  # it may have been committed since then
        if found:
            raise InvalidTableStateError(
                f"Table '{table.name}' accepts no commit while versions that bypassed the "
                f"catalog are neither adopted nor discarded ({FOREIGN_COMMITS}="
                f"{table.foreign_commits.value}): {first_names(found, _NAMED)}. Use "
                "`lance-bridge managed adopt` or `lance-bridge managed discard`"
            )


def _foreign_versions(table: TableEntry) -> list[str]:
    """Return the numbers of uncommitted versions after or beside the latest one."""
    directory = managed_directory(table)
    found = {each.version for each in directory.uncommitted()}
    found |= {version for version, _ in directory.quarantined_after_latest()}
    if directory.conflicting():
        found.add(directory.state.version)
    return [str(version) for version in sorted(found)]


def adopt_if_allowed(table: EntryT) -> EntryT:
    """Adopt versions that bypassed the catalog, for a reader, if the table's property says so."""
    if table.record.properties.get(FOREIGN_COMMITS, "").lower() != ForeignCommits.ADOPT.value:
        return table
    return clear_next_version_if_allowed(table)


def clear_next_version_if_allowed(table: EntryT) -> EntryT:
    """Do the same as `clear_next_version` if that is possible; return the updated table.

    pylance requests the latest version before it writes, and its request looks like a reader's. A
    client that may only read continues as if the manifest did not exist.

    Raises:
        ManagedElsewhereError: (19) another entry has committed it.
    """
    if table.managed is None or not managed_directory(table).has_next():
        return table
    try:
        return clear_next_version(table)
    except ManagedElsewhereError:
        raise  # this entry lacks what the other one has committed
    except LanceNamespaceError as error:
        logger.info("an uncommitted version of %s is not quarantined: %s", table.name, error)
        return table


def quarantine(table: TableEntry) -> None:
    """Move manifests that were not committed aside, so that the next version can be committed.

    Raises:
        ConcurrentModificationError: (14) another client commits.
        LatestVersionGoneError: (19) they may be all that is left of the table's rows.
        InvalidTableStateError: (19) as `batches.resolve_batch`.
    """
    now = batches.resolve_batch(table.reloaded())
    mark.require_manager(now)
    directory = managed_directory(now, write=True)
    directory.latest()  # raises if it is gone
    # Fails if the storage is read-only, before it makes other clients wait.
    directory.copy_to_quarantine([each.name for each in directory.uncommitted()])
    with compare_and_set.held(now, brief=True) as held:
        directory = managed_directory(held, write=True)
        directory.finish()
        directory.latest()
        found = directory.uncommitted()
        compare_and_set.require_held(held)
        directory.quarantine(found)
