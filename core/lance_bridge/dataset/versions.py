"""Versions of a table: list, describe, create, restore and delete; and append uncommitted rows.

Only this module decides whether the storage or the catalog manages a table's versions. A version's
record is its manifest. Deleting it keeps the data files: Lance's cleanup deletes those that no
other version uses. Uncommitted rows are those of versions that bypassed the catalog, and that
cannot be adopted as they are.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableBranchNotFoundError,
    TableVersionNotFoundError,
)

from ..dotted_names import first_names
from ..errors import (
    LANCE_ERRORS,
    concurrent_modification,
    first_line,
    invalid,
    panics_as_errors,
    translate_lance_errors,
)
from ..managed import commits, out_of_band
from ..managed.unique_rows import RowsToAppend, UniqueRows
from ..managed.version_directory import ManagedDirectory, managed_directory
from ..paging import PageRequest
from ..records import ForeignCommits
from ..requests import LATEST, Ref
from ..storage.manifests import (
    MAIN,
    Commit,
    Manifest,
    Staged,
    VersionDirectory,
    prepare_commit,
    sorting_key,
)
from ..storage.store import discard
from ..table import Table, transaction_id
from ..transaction_versions import latest_version
from .batch_sizes import scan_limits
from .insert import InsertMode, insert
from .rows import Rows

logger = logging.getLogger(__name__)

# -- references ------------------------------------------------------------------------------------


_ATTEMPTS = 10
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_NAME = 200
"""Each name becomes a file name. File systems allow 255 characters. Lance adds 44 while it writes,
and a `/` takes four more (``%252F``)."""
_LANCE_DIRECTORIES = {
    "_versions", "data", "_deletions", "_indices", "_transactions", "_refs", "tree", "_mem_wal",
    "_blobs", "_computed",
}  # fmt: skip


def check_tag_name(name: str) -> str:
    """Return the name of a tag. Raises InvalidInput (13) if it is not valid.

    Lance accepts letters of any alphabet, but then cannot list any tag of the table.
    """
    if _is_plain(name) and not name.startswith(".") and not name.endswith("."):
        return name
    raise invalid(
        f"Tag name {name[:60]!r} must have 1 to {_LONGEST_NAME} letters (A-Z), digits, '.', "
        "'-' and '_', not begin or end with '.', and not contain '..' or end with '.lock'"
    )


def check_branch_name(name: str) -> str:
    """Return the name of a branch other than main. Raises InvalidInput (13)."""
    if name == MAIN:
        raise invalid(f"'{MAIN}' is the branch that every table has: use another name")
    if is_branch_name(name):
        return name
    raise invalid(
        f"Branch name {name[:60]!r} must consist of letters (A-Z), digits, '.', '-' and '_', in "
        "segments separated by '/'. No segment may be '.', contain '..', end with '.lock' or be a "
        f"directory of Lance, and the name may not be longer than {_LONGEST_NAME} (a '/' counts 5)"
    )


def is_branch_name(name: str) -> bool:
    """Return whether a name is valid for a branch other than main.

    A branch's files are in a directory of its name, possibly inside that of another branch.
    """
    segments = name.split("/")
    return (
        name != MAIN
        and all(_is_plain(each) and each != "." for each in segments)
        and not _LANCE_DIRECTORIES.intersection(segments)
        and len(name) + 4 * name.count("/") <= _LONGEST_NAME
    )


def _is_plain(name: str) -> bool:
    fits = _SEGMENT.fullmatch(name) and len(name) <= _LONGEST_NAME
    return bool(fits) and ".." not in name and not name.endswith(".lock")


def tags_of(dataset: lance.LanceDataset) -> dict[str, Any]:
    """Return all tags of a table, in pylance's form. Raises ServiceUnavailable (17)."""
    return _list_retrying(dataset, dataset.tags.list)


def branches_of(dataset: lance.LanceDataset) -> dict[str, Any]:
    """Return all branches of a table except main. Raises ServiceUnavailable (17)."""
    return _list_retrying(dataset, dataset.branches.list)


def _list_retrying(dataset: lance.LanceDataset, list_names: Callable[[], Any]) -> dict[str, Any]:
    """List tags or branches; retry if one was deleted between Lance's listing and reading it."""
    for _ in range(_ATTEMPTS - 1):
        try:
            with panics_as_errors():
                return dict(list_names())
        except LANCE_ERRORS as error:
            logger.debug("tags or branches at %s: %s", dataset.uri, first_line(error))
    with translate_lance_errors(f"Tags or branches at {dataset.uri} could not be read"):
        return dict(list_names())


def needed_versions(dataset: lance.LanceDataset, branch: str | None) -> dict[int, str]:
    """Return the versions of a branch that tags and other branches refer to, with one referrer.

    Args:
        dataset: The table at any version.
        branch: None for main.
    """
    needed = {}
    for name, child in branches_of(dataset).items():
        if child["parent_branch"] == branch:
            needed[int(child["parent_version"])] = f"branch '{name}'"
    for name, tag in tags_of(dataset).items():
        if tag["branch"] == branch:
            needed[int(tag["version"])] = f"tag '{name}'"
    return needed


# -- versions --------------------------------------------------------------------------------------


_CHUNK_BYTES = 32 * 1024 * 1024
_CHUNK_FILES = 500
_READERS = 8
_UP_TO_LATEST = -1


def directory_of(
    table: Table, branch: str | None = None, *, write: bool = False
) -> VersionDirectory:
    """Return the directory that records the versions of a table, or of one of its branches.

    Raises:
        ManagedElsewhereError: (19) another entry manages the table's versions, and ``write``.
        UnsupportedOperationError: (0) another implementation manages them.
        TableBranchNotFoundError: (22)
    """
    if write or not table.manager:
        table.require_own_versions()
    if table.managed is not None:
        table.require_main_branch(branch)
        return managed_directory(table, write=write)
    name = None if branch in (None, MAIN) else branch
    if name is not None:
        _require_branch(table, name, write=write)
    return VersionDirectory(table.files(write=write), name)


def _require_branch(table: Table, name: str, *, write: bool) -> None:
    """Raise TableBranchNotFound (22) for a missing branch: its name becomes part of a path."""
    if is_branch_name(name):
        table.open(Ref.of(branch=name), write=write)
        return
    dataset = table.open(write=write)
    if name not in branches_of(dataset):
        raise TableBranchNotFoundError(f"Table '{table.name}' has no branch {name[:60]!r}")


def is_for_latest(page: PageRequest, *, descending: bool) -> bool:
    """Return whether a request is for the latest version only, as when Lance opens a table."""
    return descending and page.limit == 1 and page.after is None


def list_page(
    directory: VersionDirectory, page: PageRequest, *, descending: bool
) -> tuple[list[Manifest], str | None]:
    """Return a page of versions, oldest first unless ``descending``, and the next page's token."""
    for_latest = is_for_latest(page, descending=descending)
    present = (directory.last_two() if for_latest else None) or directory.list()
    found = {sorting_key(each.version, descending=descending): each for each in present}
    keys, token = page.cut_names(list(found))
    return [found[key] for key in keys], token


def describe(table: Table, directory: VersionDirectory, version: int | None) -> Manifest:
    """Return one version, or the latest.

    Raises:
        TableVersionNotFoundError: (11) also if the table holds no data yet.
        InvalidTableStateError: (19) the data of the table is missing.
        InvalidInputError: (13) the version is below 1.
    """
    ref = Ref.of(version)
    manifest = directory.latest() if version is None else directory.find(version)
    if manifest is None:
        table.require_not_missing()
        raise TableVersionNotFoundError(f"Table '{table.name}' has no {ref}")
    return manifest


def restore(table: Table, ref: Ref) -> str | None:
    """Restore a version's state as a new version; return its transaction's id.

    Raises:
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        ConcurrentModificationError: (14) another writer committed concurrently.
        InvalidTableStateError: (19) the table holds no data yet.
    """
    dataset = table.open(ref, write=True)
    latest = latest_version(dataset)
    with table.committing(dataset, f"{ref} was not restored", latest=latest):
        dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types
    return transaction_id(dataset, table)


def create(table: Table, staged: Staged) -> Manifest:
    """Make a staged manifest the next version, if no other writer was first.

    Raises:
        ConcurrentModificationError: (14) the version exists, or is not the next one.
        InvalidInputError: (13) the manifest does not exist, is of another version, or would be
            named in another scheme than those of the table.
        UnsupportedOperationError: (0) metadata is given, which a manifest cannot hold.
        TableNotFoundError: (4), OutcomeUnknownError: (17) as `Table.require_part`.
    """
    prepared = prepare_creation(table, staged)
    made = prepared.do()
    table.require_part(made.version, prepared.data, staged.branch)
    table.publish_after_commit()
    return made


def prepare_creation(table: Table, staged: Staged) -> Commit:
    """Return a checked commit of a version, without making it. Raises what `create` raises."""
    Ref.of(staged.version)
    if table.managed is not None:
        table.require_main_branch(staged.branch)
        return commits.prepare(table, staged)
    if staged.version == 1:
        table.require_not_missing()
    directory = directory_of(table, staged.branch, write=True)
    return prepare_commit(table.path, directory, staged)


# -- deleting --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deletion:
    """Versions that were checked and can be deleted."""

    table: Table
    branch: str | None
    directory: VersionDirectory
    manifests: Sequence[Manifest]


def check_ranges(ranges: Iterable[tuple[int, int]]) -> list[range]:
    """Return half-open ranges of versions; an end of -1 includes the latest.

    Raises:
        InvalidInputError: (13) a bound is negative, or the end comes before the start.
    """
    checked = []
    for start, end in ranges:
        if start < 0 or end < _UP_TO_LATEST or (end != _UP_TO_LATEST and end < start):
            raise invalid(f"Versions from {start} to {end} are not a range")
        checked.append(range(start, 2**64 if end == _UP_TO_LATEST else end))
    return checked


def prepare_deletion(table: Table, branch: str | None, ranges: Sequence[range]) -> Deletion:
    """Check that every existing version in the ranges can be deleted.

    Raises:
        InvalidInputError: (13) a range holds the latest version, or one that a tag or a branch
            refers to.
        TableBranchNotFoundError: (22)
    """
    own_branch = None if branch == MAIN else branch
    directory = directory_of(table, own_branch, write=True)
    present = directory.list()
    manifests = [each for each in present if any(each.version in part for part in ranges)]
    planned = Deletion(table, own_branch, directory, manifests)
    if manifests:
        if manifests[-1] is present[-1]:
            raise invalid(
                f"Version {manifests[-1].version} is the latest of table '{table.name}', "
                "which would be lost with it: to delete all versions, drop the table"
            )
        reference = _find_reference(planned, manifests)
        if reference:
            raise invalid(f"{reference}: delete that first, or exclude the version")
    return planned


def delete(planned: Deletion) -> int:
    """Delete versions that were checked, and return their number.

    Raises:
        ConcurrentModificationError: (14) another client tagged one, or created a branch from
            it. It was restored, with those that were deleted in the same step.
        ServiceUnavailableError: (17) or another error of the storage. Those that were deleted in
            the same step were restored, if the storage allowed that.
    """
    for chunk in _split_into_chunks(planned.manifests):
        _delete_chunk(planned, chunk)
    return len(planned.manifests)


def _delete_chunk(planned: Deletion, chunk: Sequence[Manifest]) -> None:
    directory, files = planned.directory, planned.directory.files
    paths = [directory.within(each.name) for each in chunk]
    with ThreadPoolExecutor(_READERS) as readers:
        kept = dict(zip(paths, readers.map(files.read, paths), strict=True))
    # A client that tags a version checks afterwards that it exists: one of the two sees the other.
    # So a version stays deleted only after this check.
    try:
        files.remove(paths)
        reference = _find_reference(planned, chunk)
        if reference:
            raise ConcurrentModificationError(
                f"{reference}, created concurrently: the version was restored"
            )
    except LanceNamespaceError:
        for path, data in kept.items():
            if data is not None and files.head(path) is None:
                files.put_new(path, data)
        raise


def _find_reference(planned: Deletion, manifests: Sequence[Manifest]) -> str:
    """Return a message about the first of these versions that a tag or a branch needs, or ""."""
    dataset = planned.table.open(write=True)
    needed = needed_versions(dataset, planned.branch)
    for each in manifests:
        if each.version in needed:
            name = planned.table.name
            return f"Version {each.version} of table '{name}' is needed by {needed[each.version]}"
    return ""


def _split_into_chunks(manifests: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """Yield the manifests in chunks that fit into memory."""
    chunk: list[Manifest] = []
    for each in manifests:
        total = sum(other.size for other in chunk) + each.size
        if chunk and (total > _CHUNK_BYTES or len(chunk) == _CHUNK_FILES):
            yield chunk
            chunk = []
        chunk.append(each)
    if chunk:
        yield chunk


# -- rows of uncommitted versions ------------------------------------------------------------------

_NAMED = 5
_DETACHED = 1 << 63
"""The bit of the numbers that Lance gives to detached versions: no listing has them."""


def append_uncommitted_rows(table: Table, versions: Sequence[int] = ()) -> int:
    """Append the rows that only uncommitted versions have; return the latest version.

    The last of several versions that build on each other has the rows of all of them. A version is
    deleted once its rows are committed. If this process dies in between, a repetition appends the
    same rows again.

    Args:
        versions: Versions to delete although they have other rows, which were committed in a
            version that is gone: committed versions have deleted or replaced these.

    Raises:
        InvalidInputError: (13) there are no such rows, or storage manages the table.
        ConcurrentModificationError: (14) another client commits.
        LatestVersionGoneError: (19) there is no version to append to.
        InvalidTableStateError: (19) a compaction has joined such rows with others; or a version has
            other rows, and is not named.
        TableSchemaValidationError: (20) the rows of a version do not fit the table's schema; that
            version stays, and all before it.
    """
    managed_directory(table, write=True).require_intact()
    out_of_band.quarantine(table)
    directory = managed_directory(table.reloaded(), write=True)
    uncommitted = directory.every_uncommitted()
    found = RowsToAppend.of(directory, uncommitted)
    _require_named(table, found, versions)
    if not (found.unique or found.left):
        remedy = f": {out_of_band.DELETE}" if uncommitted else ""
        raise invalid(
            f"Table '{table.name}' has no rows that only uncommitted versions have{remedy}"
        )
    version = directory.state.version
    appended: set[str] = set()
    _delete_uncommitted(directory, found, appended)
    for each in found.unique:
        rows = Rows.from_data(_read_unique_rows(table, directory, each))
        target = _Accepting(table.connection, table.record).reloaded()
        version = insert(target, rows, InsertMode.APPEND, LATEST).version
        appended |= each.data_files
        _delete_uncommitted(directory, found, appended)
    return version


def _require_named(table: Table, found: RowsToAppend, versions: Sequence[int]) -> None:
    """Check that versions with rows that are not appended are named."""
    left = [each for each in found.left if each.manifest.version not in versions]
    if left:
        numbers = ",".join(sorted({str(each.manifest.version) for each in found.left}))
        raise InvalidTableStateError(
            f"No row is appended to table '{table.name}': nothing else has some rows of "
            f"{first_names(list(map(str, left)), _NAMED)} that committed versions have deleted or "
            "replaced. To append the others, and delete these: `lance-bridge managed adopt "
            f"--append --versions {numbers}`"
        )


def _delete_uncommitted(
    directory: ManagedDirectory, found: RowsToAppend, appended: Set[str]
) -> None:
    done = found.without_others(appended)
    directory.files.remove([directory.within(each.name) for each in done])


def _read_unique_rows(table: Table, directory: ManagedDirectory, unique: UniqueRows) -> Any:
    """Return a reader of the rows that only one manifest has.

    Lance opens the manifest under a name that no version has. Given a namespace that names the
    manifest, Lance would copy it to the name of its version, over a committed one.
    """
    data = directory.files.read(directory.within(unique.manifest.name))
    if data is None:
        raise concurrent_modification(table.path)
    number = _DETACHED | secrets.randbits(62)
    path = directory.within(f"d{number}.manifest")
    directory.files.put_new(path, data)
    try:
        with translate_lance_errors(f"{unique} of table '{table.name}' could not be read"):
            storage = lance.dataset(table.uri, storage_options=table.storage_options())
            dataset = storage.checkout_version(number)
            wanted = {each.id for each in unique.fragments}
            fragments = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
            limits = scan_limits(dataset, fragments=fragments)
            return dataset.scanner(fragments=fragments, **limits).to_reader()
    finally:
        discard(directory.files, path)


class _Accepting(Table):
    """Accepts commits while versions are not decided on: their rows are being committed."""

    @property
    def foreign_commits(self) -> ForeignCommits:
        """How versions that bypassed the catalog are handled by this commit."""
        policy = super().foreign_commits
        return ForeignCommits.HIDE if policy is ForeignCommits.REFUSE else policy
