"""Branches of a table: list, create and delete.

Lance writes a branch's first manifest, and then the file that makes it a branch. Of two creators
that start from different versions, both get so far, and the second leaves its manifest in the
branch of the first. So creators of one branch take turns, by a lock: a file that only one can
create.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    TableVersionNotFoundError,
)
from lance_namespace_urllib3_client.models import BranchContents

from ...errors import invalid, unsupported
from ...lance_errors import (
    LANCE_ERRORS,
    as_namespace_error,
    panics_as_errors,
    translate_lance_errors,
)
from ...ref import Ref
from ...storage.manifests import TableFiles, VersionDirectory, discard
from ...table import Table
from .references import branches_of, check_branch_name, tags_of
from .versions import directory_of

_UNFINISHED_WAIT = 3.0
"""Seconds until a creator that knows no locks must have finished the same branch."""
_POLL_SECONDS = 0.05

LOCK_WAIT = 10.0
"""Seconds until a creator gives up waiting for its turn."""
LOCK_STALE = 300.0
"""Seconds after which a lock counts as abandoned by its owner."""

logger = logging.getLogger(__name__)


def list_all(table: Table) -> dict[str, BranchContents]:
    """Return all branches but main; none where the table holds no data yet."""
    try:
        found = branches_of(table.open())
    except InvalidTableStateError:
        return {}
    return {
        name: BranchContents(
            parentBranch=branch["parent_branch"],
            parentVersion=branch["parent_version"],
            createAt=branch["create_at"],
            manifestSize=branch["manifest_size"],
            metadata=branch["metadata"] or None,
        )
        for name, branch in found.items()
    }


def create(table: Table, name: str, source: Ref) -> None:
    """Make a branch of a version, or of the latest. Of several creators of one branch, one wins.

    Raises:
        TableBranchAlreadyExistsError: (23)
        TableBranchNotFoundError: (22) there is no source branch.
        TableVersionNotFoundError: (11) the source has no such version.
        InvalidInputError: (13) no branch can have the name.
        InvalidTableStateError: (19) the table holds no data yet.
        ConcurrentModificationError: (14) files of such a branch are there, and not the branch.
    """
    check_branch_name(name)
    table.require_own_versions()
    if table.managed is not None:
        raise unsupported(
            f"Table '{table.name}' cannot have branches: its versions are managed by its "
            "catalog, and Lance makes branches in the storage only"
        )
    dataset = table.open(source, write=True)

    def is_there() -> bool:
        return name in branches_of(dataset)

    files = _directory(table, name).files
    with _hold_lock(files, f"_refs/branches/{quote(name, safe='')}.lock", is_there) as is_held:
        if not is_held or is_there():
            raise _already_exists(table, name)
        try:
            _create(table, name, source, dataset)
        except ConcurrentModificationError:
            if not _drop_unfinished(table, name):
                raise
            _create(table, name, source, dataset)
    _require_source(table, name, source, dataset)


def _create(table: Table, name: str, source: Ref, dataset: lance.LanceDataset) -> None:
    try:
        with panics_as_errors():
            dataset.create_branch(name, (source.branch, dataset.version))
    except LANCE_ERRORS as error:
        raise _why_not_created(table, name, dataset, error) from error


def _require_source(table: Table, name: str, source: Ref, dataset: lance.LanceDataset) -> None:
    """Look once more for a branch's first version: somebody may have deleted it meanwhile."""
    if directory_of(table, source.branch, write=True).find(dataset.version) is None:
        with translate_lance_errors(f"Branch '{name}' is of a version that was deleted: delete it"):
            dataset.branches.delete(name)
        raise TableVersionNotFoundError(
            f"Version {dataset.version} of table '{table.name}' was deleted meanwhile"
        )


def _why_not_created(
    table: Table,
    name: str,
    dataset: lance.LanceDataset,
    error: Exception,
) -> LanceNamespaceError:
    """Find out by looking. Lance writes a branch's manifest first, then what makes it a branch."""
    directory = _directory(table, name)
    until = time.monotonic() + _UNFINISHED_WAIT
    while name not in branches_of(dataset):
        if not directory.list():
            what = f"Branch '{name}' of '{table.name}' could not be created"
            return as_namespace_error(what, error)
        if time.monotonic() > until:
            return ConcurrentModificationError(
                f"Branch '{name}' of '{table.name}' is being created by somebody else, "
                f"or was left unfinished, with files in {directory.path}: repeat it later"
            )
        time.sleep(_POLL_SECONDS)
    return _already_exists(table, name)


def _drop_unfinished(table: Table, name: str) -> bool:
    """Delete the one manifest that an interrupted creation left, if it is not a fresh one.

    Lance writes to branches that are not finished, too: one with more versions is left alone.
    """
    directory = _directory(table, name)
    found = directory.list()
    if len(found) != 1:
        return False
    age = time.time() - found[0].timestamp_millis / 1000
    if age < table.connection.config.declare_grace:
        return False
    directory.files.remove([directory.within(found[0].name)])
    return True


def _directory(table: Table, name: str) -> VersionDirectory:
    return VersionDirectory(TableFiles(table.storage(write=True), table.location), name)


def delete(table: Table, name: str) -> None:
    """Delete a branch with its versions. Lance refuses where something refers to them.

    Raises:
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) it is main, or a tag or another branch refers to it.
        InvalidTableStateError: (19) the table holds no data yet.
    """
    dataset = table.open(write=True)
    if name not in branches_of(dataset):
        check_branch_name(name)
        raise _not_found(table, name)
    try:
        with panics_as_errors():
            dataset.branches.delete(name)
    except LANCE_ERRORS as error:
        raise _why_not_deleted(table, name, dataset, error) from error
    _drop_versions(_directory(table, name))


def _drop_versions(directory: VersionDirectory) -> None:
    """Delete what Lance leaves of a branch while there is another inside its directory.

    Otherwise no branch of that name could be made any more.
    """
    left = directory.list()
    if left:
        directory.files.remove([directory.within(each.name) for each in left])


def _why_not_deleted(
    table: Table, name: str, dataset: lance.LanceDataset, error: Exception
) -> LanceNamespaceError:
    what = f"Branch '{name}' of '{table.name}'"
    branches = branches_of(dataset)
    if name not in branches:
        return as_namespace_error(f"{what} is deleted, but files are left", error)
    users = [f"branch '{n}'" for n, each in branches.items() if each["parent_branch"] == name]
    users += [f"tag '{n}'" for n, each in tags_of(dataset).items() if each["branch"] == name]
    if users:
        return invalid(f"{what} cannot be deleted before {', '.join(sorted(users)[:5])}")
    return as_namespace_error(f"{what} could not be deleted", error)


def _already_exists(table: Table, name: str) -> TableBranchAlreadyExistsError:
    return TableBranchAlreadyExistsError(f"Table '{table.name}' already has a branch '{name}'")


def _not_found(table: Table, name: str) -> TableBranchNotFoundError:
    return TableBranchNotFoundError(f"Table '{table.name}' has no branch '{name}'")


# -- locks -----------------------------------------------------------------------------------------


@contextmanager
def _hold_lock(files: TableFiles, path: str, is_done: Callable[[], bool]) -> Iterator[bool]:
    """Keep others from what the lock at ``path`` is for.

    Args:
        is_done: Whether another has done by now what the lock is wanted for.

    Yields:
        False, and no lock, where that is so.

    Raises:
        ConcurrentModificationError: (14) another holds the lock, and does not get done.
    """
    token = uuid.uuid4().bytes
    if not _acquire(files, path, token, is_done):
        yield False
        return
    try:
        yield True
    finally:
        _release(files, path, token)


def _release(files: TableFiles, path: str, token: bytes) -> None:
    """Delete the lock if it is still the own one; what was done under it stays done."""
    try:
        if files.read(path) == token:
            files.remove([path])
    except LanceNamespaceError as error:
        logger.warning("lock %s in %s stays: %s", path, files.location, error)


def _acquire(files: TableFiles, path: str, token: bytes, is_done: Callable[[], bool]) -> bool:
    until = time.monotonic() + LOCK_WAIT
    while not files.put_own(path, token):
        if is_done():
            return False
        meta = files.head(path)
        if meta is not None and time.time() - meta["last_modified"].timestamp() > LOCK_STALE:
            discard(files, path)
        elif time.monotonic() > until:
            raise ConcurrentModificationError(
                f"Another client has held the lock {path} of the table at {files.location} for "
                f"{LOCK_WAIT:.0f} s; retry later"
            )
        else:
            time.sleep(_POLL_SECONDS)
    return True
