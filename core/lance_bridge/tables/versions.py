"""Versions of a table: list, describe, create and restore. `pruning` deletes them.

A table that its storage manages has a version exactly where a manifest lies in ``_versions``:
Lance commits by writing it if it is not there, and so does `create`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    TableBranchNotFoundError,
    TableVersionNotFoundError,
)

from ..bridge import Bridge
from ..catalog import MANAGED_BY, STORAGE, TableRecord
from ..errors import concurrent_modification, display, invalid, unsupported
from ..paging import PageRequest
from .commits import committing, transaction_id
from .dataset import MAIN, Ref, open_dataset
from .manifests import (
    Manifest,
    Scheme,
    TableFiles,
    VersionDirectory,
    discard,
    name_of,
    sorting_key,
    version_inside,
)
from .references import branches_of, is_branch_name


def directory_of(
    bridge: Bridge, record: TableRecord, branch: str | None = None, *, write: bool = False
) -> VersionDirectory:
    """Return where the versions of a table, or of one of its branches, are recorded.

    Tables whose versions the catalog holds are told apart here.

    Raises:
        UnsupportedOperationError: (0) another implementation manages the table's versions.
        TableBranchNotFoundError: (22)
    """
    manager = record.properties.get(MANAGED_BY, STORAGE)
    if manager.lower() == "impl":
        raise unsupported(
            f"The versions of table '{display(record.path)}' are managed by an implementation "
            f"({MANAGED_BY}={manager}), and not by its storage"
        )
    name = None if branch in (None, MAIN) else branch
    if name is not None:
        _require_branch(bridge, record, name, write=write)
    files = TableFiles(bridge.storage(record, write=write), record.location or "")
    return VersionDirectory(files, name)


def _require_branch(bridge: Bridge, record: TableRecord, name: str, *, write: bool) -> None:
    """Raise TableBranchNotFound (22) unless there is a branch: its name becomes part of a path."""
    if is_branch_name(name):
        open_dataset(bridge, record, Ref.of(branch=name), write=write)
        return
    dataset = open_dataset(bridge, record, write=write)
    if name not in branches_of(dataset):
        raise TableBranchNotFoundError(
            f"Table '{display(record.path)}' has no branch {name[:60]!r}"
        )


def list_page(
    directory: VersionDirectory, page: PageRequest, *, descending: bool
) -> tuple[list[Manifest], str | None]:
    """Return one page of the versions, oldest first unless ``descending``, and the next's token."""
    found = {sorting_key(each.version, descending=descending): each for each in directory.list()}
    keys, token = page.cut_names(list(found))
    return [found[key] for key in keys], token


def describe(record: TableRecord, directory: VersionDirectory, version: int | None) -> Manifest:
    """Return one version, or the latest.

    Raises:
        TableVersionNotFoundError: (11) also where the table holds no data yet.
        InvalidInputError: (13) the version is below 1.
    """
    ref = Ref.of(version)
    if version is not None:
        manifest = directory.find(version)
    else:
        manifest = next(reversed(directory.list()), None)
    if manifest is None:
        raise TableVersionNotFoundError(f"Table '{display(record.path)}' has no {ref}")
    return manifest


def restore(bridge: Bridge, record: TableRecord, ref: Ref) -> str | None:
    """Make a version's state the latest, as a new version; return its transaction's id.

    Raises:
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        ConcurrentModificationError: (14) another writer committed meanwhile.
        InvalidTableStateError: (19) the table holds no data yet.
    """
    dataset = open_dataset(bridge, record, ref, write=True)
    with committing(record, f"{ref} was not restored"):
        dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types
    return transaction_id(dataset, record)


# -- creating ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """A version to be, as a request names it: a manifest that is written but is no version yet."""

    version: int
    manifest_path: str
    branch: str | None = None
    manifest_size: int | None = None
    e_tag: str | None = None
    naming_scheme: str | None = None
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Commit:
    """A version that was checked and can be created."""

    record: TableRecord
    directory: VersionDirectory
    version: int
    name: str
    staged: str
    data: bytes
    is_there: bool
    """An earlier attempt of the same has succeeded."""

    def __str__(self) -> str:
        """Return what a message calls it."""
        return f"Version {self.version} of table '{display(self.record.path)}'"


def create(bridge: Bridge, record: TableRecord, staged: Staged) -> Manifest:
    """Make a staged manifest the next version, if no other has come first.

    Raises:
        ConcurrentModificationError: (14) the version is there, or is not the next one.
        InvalidInputError: (13) the manifest is not there, or is not of this version, or would be
            named unlike those of the table.
        UnsupportedOperationError: (0) metadata is given: storage has no place for it.
    """
    return commit(prepare(bridge, record, staged))


def prepare(bridge: Bridge, record: TableRecord, staged: Staged) -> Commit:
    """Check all that can be checked before a version is created. Raises as `create` does."""
    if staged.metadata:
        raise unsupported(
            f"Metadata of a version of '{display(record.path)}' cannot be kept: its storage "
            "manages the table, and a manifest has no place for it. Leave `metadata` out"
        )
    Ref.of(staged.version)
    wanted = Scheme.parse(staged.naming_scheme)
    directory = directory_of(bridge, record, staged.branch, write=True)
    staged_name = directory.name_of_staged(staged.manifest_path)
    present = directory.list()
    latest = present[-1] if present else None
    scheme = latest.scheme if latest else wanted or Scheme.V2
    if wanted not in (None, scheme):
        raise invalid(
            f"The manifests of '{display(record.path)}' are named in scheme {scheme.value}: one in "
            f"scheme {staged.naming_scheme} would make the table unreadable"
        )
    path = directory.within(staged_name)
    data = directory.files.read(path)
    name = name_of(staged.version, scheme)
    is_there = any(each.version == staged.version for each in present)
    expected = latest.version + 1 if latest else 1
    if staged.version != expected:
        # The same call again, after its reply was lost, is not a conflict.
        is_same = is_there and data == directory.files.read(directory.within(name))
        if data is None or not is_same:
            raise _conflict(record, staged.version, expected)
    if data is None:
        raise invalid(f"There is no staged manifest at {staged.manifest_path[:300]!r}")
    _check_content(directory, path, staged, data)
    return Commit(record, directory, staged.version, name, path, data, is_there)


def _check_content(directory: VersionDirectory, path: str, staged: Staged, data: bytes) -> None:
    what = f"The manifest at {staged.manifest_path[:300]!r}"
    found = version_inside(data)
    if found != staged.version:
        is_of = "not a Lance manifest" if found is None else f"of version {found}"
        raise invalid(f"{what} is {is_of}, and not of version {staged.version}")
    if staged.manifest_size not in (None, len(data)):
        raise invalid(f"{what} has {len(data)} bytes, not {staged.manifest_size}")
    if staged.e_tag is not None:
        meta = directory.files.head(path)
        if meta is None or _plain(meta["e_tag"]) != _plain(staged.e_tag):
            raise invalid(f"{what} is not the one that the request's e_tag is of")


def _plain(e_tag: str | None) -> str:
    """Return an ETag without what some stores put around it."""
    return (e_tag or "").removeprefix("W/").strip('"')


def commit(planned: Commit) -> Manifest:
    """Create a version that was checked. Raises ConcurrentModification (14)."""
    files, path = planned.directory.files, planned.directory.within(planned.name)
    if not planned.is_there and not files.put_own(path, planned.data):
        raise _conflict(planned.record, planned.version, planned.version + 1)
    discard(files, planned.staged)
    manifest = planned.directory.find(planned.version)
    if manifest is None:
        raise concurrent_modification(planned.record.path)
    return manifest


def take_back(planned: Commit) -> None:
    """Undo `commit`, if it has had an effect and nobody has built on the version.

    Raises:
        InternalError: (18) a later version is there: this one stays.
    """
    directory, files = planned.directory, planned.directory.files
    path = directory.within(planned.name)
    if planned.is_there or files.read(path) != planned.data:
        return
    files.put_new(planned.staged, planned.data)
    if not _has_later(planned):
        files.remove([path])
        if not _has_later(planned):
            return
        files.put_new(path, planned.data)
    discard(files, planned.staged)
    raise InternalError(f"{planned} stays: another writer has built on it")


def _has_later(planned: Commit) -> bool:
    return planned.directory.find(planned.version + 1) is not None


def _conflict(record: TableRecord, version: int, expected: int) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"Version {version} of table '{display(record.path)}' cannot be created: the next version "
        f"is {expected}"
    )
