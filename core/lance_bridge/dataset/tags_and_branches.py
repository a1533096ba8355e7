"""Tags and branches of a table: list, look up, create, move and delete.

Lance writes a branch's first manifest, and then the file that makes it a branch. If two clients
create a branch from different versions, both can write a manifest, and one of them remains in the
branch of the other client. Lance deletes a branch in the opposite order: a branch that is created
again too early loses its manifests. So clients that create or delete the same branch take turns, by
a lock: a file that only one client can create.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)
from lance_namespace_urllib3_client.models import BranchContents, TagContents

from ..errors import (
    LANCE_ERRORS,
    TableNotWrittenError,
    as_namespace_error,
    invalid,
    panics_as_errors,
    translate_lance_errors,
    unsupported,
)
from ..requests import Ref
from ..storage.manifests import VersionDirectory
from ..storage.store import TableFiles, discard
from ..table import Table
from .versions import branches_of, check_branch_name, check_tag_name, directory_of, tags_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tagged:
    """The version that a tag points to; ``branch`` is None for main."""

    version: int
    branch: str | None = None

    @property
    def pair(self) -> tuple[str | None, int]:
        """The form that pylance takes."""
        return self.branch, self.version


def list_tags(table: Table) -> dict[str, TagContents]:
    """Return all tags; none if the table has no data yet."""
    try:
        dataset = table.open()
    except TableNotWrittenError:
        return {}
    return {
        name: TagContents(
            branch=tag["branch"], version=tag["version"], manifestSize=tag["manifest_size"]
        )
        for name, tag in tags_of(dataset).items()
    }


def get_tag(table: Table, name: str) -> Tagged:
    """Return the version that a tag points to.

    Raises:
        TableTagNotFoundError: (8)
        InvalidInputError: (13) the name is not valid.
    """
    found = _read_tag(table, check_tag_name(name))
    if found is None:
        raise _tag_not_found(table, name)
    return found


def create_tag(table: Table, name: str, ref: Ref) -> None:
    """Tag a version. Only one concurrent creator of a tag succeeds.

    Raises:
        TableTagAlreadyExistsError: (9)
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) the name is not valid.
    """
    check_tag_name(name)
    dataset, wanted = _target_of_tag(table, ref)
    if _read_tag(table, name) is not None:
        raise _tag_exists(table, name)
    try:
        with panics_as_errors():
            dataset.tags.create(name, wanted.pair)
    except LANCE_ERRORS as error:
        if _read_tag(table, name) is not None:
            raise _tag_exists(table, name) from error
        raise _to_tag_error(table, ref, f"Tag '{name}' could not be created", error) from error
    if not _version_exists(table, wanted):
        with translate_lance_errors(
            f"Tag '{name}' points to a version that was deleted: delete it"
        ):
            dataset.tags.delete(name)
        raise _version_deleted(table, ref)


def update_tag(table: Table, name: str, ref: Ref) -> None:
    """Move a tag to another version.

    Raises:
        TableTagNotFoundError: (8)
        TableVersionNotFoundError: (11) the tag is unchanged.
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) the name is not valid.
    """
    before = get_tag(table, name)
    dataset, wanted = _target_of_tag(table, ref)
    try:
        with panics_as_errors():
            dataset.tags.update(name, wanted.pair)
    except LANCE_ERRORS as error:
        if _read_tag(table, name) is None:
            raise _tag_not_found(table, name) from error
        raise _to_tag_error(table, ref, f"Tag '{name}' could not be moved", error) from error
    if not _version_exists(table, wanted):
        with translate_lance_errors(
            f"Tag '{name}' points to a version that was deleted: move it back"
        ):
            dataset.tags.update(name, before.pair)
        raise _version_deleted(table, ref)


def delete_tag(table: Table, name: str) -> None:
    """Delete a tag and keep its version.

    Raises:
        TableTagNotFoundError: (8)
        InvalidInputError: (13) the name is not valid.
    """
    get_tag(table, name)
    dataset = table.open(write=True)
    try:
        with panics_as_errors():
            dataset.tags.delete(name)
    except LANCE_ERRORS as error:
        if _read_tag(table, name) is None:
            raise _tag_not_found(table, name) from error
        what = f"Tag '{name}' of '{table.name}' could not be deleted"
        raise as_namespace_error(what, error) from error


def _target_of_tag(table: Table, ref: Ref) -> tuple[lance.LanceDataset, Tagged]:
    """Open the version to tag. Raises what `Table.open` raises."""
    dataset = table.open(ref, write=True)
    return dataset, Tagged(dataset.version, ref.branch)


def _read_tag(table: Table, name: str) -> Tagged | None:
    """Return the version that a tag points to, read from the tag's file, or None without a file."""
    files = table.files()
    content = files.read(f"_refs/tags/{name}.json")
    if content is None:
        return None
    what = f"Tag '{name}' of '{table.name}' could not be read"
    with translate_lance_errors(what):
        found = json.loads(content)
    try:
        return Tagged(int(found["version"]), found.get("branch"))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ServiceUnavailableError(f"{what}: its file is not a tag of Lance") from error


def _version_exists(table: Table, tagged: Tagged) -> bool:
    """Return whether a tagged version exists: it may have been deleted before it was tagged."""
    directory = directory_of(table, tagged.branch)
    return directory.find(tagged.version) is not None


def _to_tag_error(table: Table, ref: Ref, what: str, error: Exception) -> LanceNamespaceError:
    """Raise TableVersionNotFound or TableBranchNotFound, or return the error for another cause."""
    table.open(ref, write=True)
    return as_namespace_error(f"{what} on '{table.name}'", error)


def _version_deleted(table: Table, ref: Ref) -> TableVersionNotFoundError:
    return TableVersionNotFoundError(
        f"Table '{table.name}' no longer has {ref}: it was deleted concurrently"
    )


def _tag_exists(table: Table, name: str) -> TableTagAlreadyExistsError:
    return TableTagAlreadyExistsError(
        f"Table '{table.name}' already has a tag '{name}': move it with UpdateTableTag"
    )


def _tag_not_found(table: Table, name: str) -> TableTagNotFoundError:
    return TableTagNotFoundError(f"Table '{table.name}' has no tag '{name}'")


# -- branches --------------------------------------------------------------------------------------

_UNFINISHED_WAIT = 3.0
"""Seconds to wait for a client without locks to finish creating the same branch."""
_POLL_SECONDS = 0.05

LOCK_WAIT = 10.0
"""Seconds after which a client gives up waiting for the lock."""
LOCK_STALE = 300.0
"""Seconds after which a lock counts as abandoned by its owner."""


def list_branches(table: Table) -> dict[str, BranchContents]:
    """Return all branches except main; none if the table has no data yet."""
    try:
        found = branches_of(table.open())
    except TableNotWrittenError:
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


def create_branch(table: Table, name: str, source: Ref) -> None:
    """Create a branch from a version, or from the latest. Only one concurrent creator succeeds.

    Raises:
        TableBranchAlreadyExistsError: (23)
        TableBranchNotFoundError: (22) the source branch does not exist.
        TableVersionNotFoundError: (11) the source has no such version.
        InvalidInputError: (13) the name is not valid.
        UnsupportedOperationError: (0) its storage does not manage the versions.
        InvalidTableStateError: (19) the table holds no data yet.
        ConcurrentModificationError: (14) files of such a branch exist, but the branch does not.
    """
    check_branch_name(name)
    table.require_own_versions()
    if table.managed is not None:
        raise unsupported(
            f"Table '{table.name}' cannot have branches: its versions are managed by its "
            "catalog, and Lance creates branches only in storage"
        )
    dataset = table.open(source, write=True)

    def exists() -> bool:
        return name in branches_of(dataset)

    with _hold_lock(table.files(write=True), name, exists) as is_held:
        if not is_held or exists():
            raise _branch_exists(table, name)
        try:
            _create_branch(table, name, source, dataset)
        except ConcurrentModificationError:
            if not _drop_unfinished(table, name):
                raise
            _create_branch(table, name, source, dataset)
        _require_source(table, name, source, dataset)


def _create_branch(table: Table, name: str, source: Ref, dataset: lance.LanceDataset) -> None:
    try:
        with panics_as_errors():
            dataset.create_branch(name, (source.branch, dataset.version))
    except LANCE_ERRORS as error:
        raise _creation_error(table, name, dataset, error) from error


def _require_source(table: Table, name: str, source: Ref, dataset: lance.LanceDataset) -> None:
    """Check again that a branch's source exists: another client may have deleted it."""
    if directory_of(table, source.branch, write=True).find(dataset.version) is None:
        with translate_lance_errors(
            f"Branch '{name}' is of a version that was deleted: delete the branch"
        ):
            dataset.branches.delete(name)
        raise TableVersionNotFoundError(
            f"Version {dataset.version} of table '{table.name}' was deleted concurrently"
        )


def _creation_error(
    table: Table,
    name: str,
    dataset: lance.LanceDataset,
    error: Exception,
) -> LanceNamespaceError:
    """Return the error for a failed creation, from what exists of the branch."""
    directory = _directory(table, name)
    until = time.monotonic() + _UNFINISHED_WAIT
    while name not in branches_of(dataset):
        if not directory.list():
            what = f"Branch '{name}' of '{table.name}' could not be created"
            return as_namespace_error(what, error)
        if time.monotonic() > until:
            return ConcurrentModificationError(
                f"Branch '{name}' of '{table.name}' is being created by another client, "
                f"or was left unfinished, with files in {directory.path}; retry later"
            )
        time.sleep(_POLL_SECONDS)
    return _branch_exists(table, name)


def _drop_unfinished(table: Table, name: str) -> bool:
    """Delete the one manifest that an interrupted creation left, if it is old enough.

    A branch with more versions is kept, because Lance also writes to unfinished branches.
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
    return VersionDirectory(table.files(write=True), name)


def delete_branch(table: Table, name: str) -> None:
    """Delete a branch with its versions. Lance refuses if something refers to them.

    Raises:
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) it is main, or a tag or another branch refers to it.
        InvalidTableStateError: (19) the table holds no data yet.
        ConcurrentModificationError: (14) another client creates or deletes it for too long.
    """
    dataset = table.open(write=True)

    def is_missing() -> bool:
        return name not in branches_of(dataset)

    if is_missing():
        check_branch_name(name)
        raise _branch_not_found(table, name)
    with _hold_lock(table.files(write=True), name, is_missing) as is_held:
        if not is_held or is_missing():
            raise _branch_not_found(table, name)
        _delete_branch(table, name, dataset)


def _delete_branch(table: Table, name: str, dataset: lance.LanceDataset) -> None:
    try:
        with panics_as_errors():
            dataset.branches.delete(name)
    except LANCE_ERRORS as error:
        raise _deletion_error(table, name, dataset, error) from error
    # Lance leaves the manifests if another branch is inside the directory. They would keep a branch
    # of this name from being created.
    directory = _directory(table, name)
    left = directory.list()
    if left:
        directory.files.remove([directory.within(each.name) for each in left])


def _deletion_error(
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


def _branch_exists(table: Table, name: str) -> TableBranchAlreadyExistsError:
    return TableBranchAlreadyExistsError(f"Table '{table.name}' already has a branch '{name}'")


def _branch_not_found(table: Table, name: str) -> TableBranchNotFoundError:
    return TableBranchNotFoundError(f"Table '{table.name}' has no branch '{name}'")


# -- locks -----------------------------------------------------------------------------------------


@contextmanager
def _hold_lock(files: TableFiles, name: str, is_done: Callable[[], bool]) -> Iterator[bool]:
    """Hold the lock of a branch, to create or to delete it.

    Args:
        is_done: Whether another client has finished what the lock protects.

    Yields:
        Whether the lock is held; False if another client has finished.

    Raises:
        ConcurrentModificationError: (14) another client holds the lock for too long.
    """
    path, token = f"_refs/branches/{quote(name, safe='')}.lock", uuid.uuid4().bytes
    if not _acquire(files, path, token, is_done):
        yield False
        return
    try:
        yield True
    finally:
        _release(files, path, token)


def _release(files: TableFiles, path: str, token: bytes) -> None:
    """Delete the lock if it still has this token. A failure is only logged."""
    try:
        if files.read(path) == token:
            files.remove([path])
    except LanceNamespaceError as error:
        logger.warning("lock %s in %s remains: %s", path, files.location, error)


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
