"""Versions of a table: list, describe, create and restore. `pruning` deletes them.

Whether its storage manages a table or its catalog does is decided here, and nowhere below.
"""

from __future__ import annotations

from lance_namespace.errors import TableBranchNotFoundError, TableVersionNotFoundError

from ...managed import commits
from ...managed.versions import managed_directory
from ...paging import PageRequest
from ...ref import Ref
from ...storage import staging
from ...storage.manifests import MAIN, Manifest, TableFiles, VersionDirectory, sorting_key
from ...storage.staging import Commit, Staged
from ...table import Table, transaction_id
from .references import branches_of, is_branch_name


def directory_of(
    table: Table, branch: str | None = None, *, write: bool = False
) -> VersionDirectory:
    """Return where the versions of a table, or of one of its branches, are recorded.

    Raises:
        UnsupportedOperationError: (0) another implementation manages the table's versions.
        TableBranchNotFoundError: (22)
    """
    table.require_own_versions()
    if table.managed is not None:
        table.require_main_branch(branch)
        return managed_directory(table, write=write)
    name = None if branch in (None, MAIN) else branch
    if name is not None:
        _require_branch(table, name, write=write)
    files = TableFiles(table.storage(write=write), table.location)
    return VersionDirectory(files, name)


def _require_branch(table: Table, name: str, *, write: bool) -> None:
    """Raise TableBranchNotFound (22) unless there is a branch: its name becomes part of a path."""
    if is_branch_name(name):
        table.open(Ref.of(branch=name), write=write)
        return
    dataset = table.open(write=write)
    if name not in branches_of(dataset):
        raise TableBranchNotFoundError(f"Table '{table.name}' has no branch {name[:60]!r}")


def is_for_latest(page: PageRequest, *, descending: bool) -> bool:
    """Return whether only the latest is asked for, as Lance does before it opens a table."""
    return descending and page.limit == 1 and page.after is None


def list_page(
    directory: VersionDirectory, page: PageRequest, *, descending: bool
) -> tuple[list[Manifest], str | None]:
    """Return one page of the versions, oldest first unless ``descending``, and the next's token."""
    for_latest = is_for_latest(page, descending=descending)
    present = (directory.last_two() if for_latest else None) or directory.list()
    found = {sorting_key(each.version, descending=descending): each for each in present}
    keys, token = page.cut_names(list(found))
    return [found[key] for key in keys], token


def describe(table: Table, directory: VersionDirectory, version: int | None) -> Manifest:
    """Return one version, or the latest.

    Raises:
        TableVersionNotFoundError: (11) also where the table holds no data yet.
        InvalidInputError: (13) the version is below 1.
    """
    ref = Ref.of(version)
    manifest = directory.latest() if version is None else directory.find(version)
    if manifest is None:
        raise TableVersionNotFoundError(f"Table '{table.name}' has no {ref}")
    return manifest


def restore(table: Table, ref: Ref) -> str | None:
    """Make a version's state the latest, as a new version; return its transaction's id.

    Raises:
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        ConcurrentModificationError: (14) another writer committed meanwhile.
        InvalidTableStateError: (19) the table holds no data yet.
    """
    dataset = table.open(ref, write=True)
    with table.committing(dataset, f"{ref} was not restored"):
        dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types
    return transaction_id(dataset, table)


def create(table: Table, staged: Staged) -> Manifest:
    """Make a staged manifest the next version, if no other has come first.

    Raises:
        ConcurrentModificationError: (14) the version is there, or is not the next one.
        InvalidInputError: (13) the manifest is not there, or is not of this version, or would be
            named unlike those of the table.
        UnsupportedOperationError: (0) metadata is given: a manifest has no place for it.
    """
    return prepare(table, staged).do()


def prepare(table: Table, staged: Staged) -> Commit:
    """Check all that can be checked before a version is created. Raises as `create` does."""
    Ref.of(staged.version)
    if table.managed is not None:
        table.require_main_branch(staged.branch)
        return commits.prepare(table, staged)
    directory = directory_of(table, staged.branch, write=True)
    return staging.prepare(table.path, directory, staged)
