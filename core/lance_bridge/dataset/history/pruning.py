"""Deleting versions of a table, and never one that is needed.

A version's record is its manifest. Its data files stay: Lance's clean-up deletes those that no
other version has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from ...errors import invalid
from ...storage.manifests import MAIN, Manifest, VersionDirectory
from ...table import Table
from .references import needed_versions
from .versions import directory_of

_CHUNK_BYTES = 32 * 1024 * 1024
_CHUNK_FILES = 500
_READERS = 8
_UP_TO_LATEST = -1


@dataclass(frozen=True)
class Pruning:
    """Versions that were checked and can be deleted."""

    table: Table
    branch: str | None
    directory: VersionDirectory
    doomed: Sequence[Manifest]


def check_ranges(ranges: Iterable[tuple[int, int]]) -> list[range]:
    """Return ranges of versions from a start up to an end, or -1 for up to the latest and with it.

    Raises:
        InvalidInputError: (13) a bound is negative, or the end comes before the start.
    """
    checked = []
    for start, end in ranges:
        if start < 0 or end < _UP_TO_LATEST or (end != _UP_TO_LATEST and end < start):
            raise invalid(f"There is no range of versions from {start} to {end}")
        checked.append(range(start, 2**64 if end == _UP_TO_LATEST else end))
    return checked


def prepare(table: Table, branch: str | None, ranges: Sequence[range]) -> Pruning:
    """Check that every version in the ranges can be deleted; those that are not there can.

    Raises:
        InvalidInputError: (13) a range holds the latest version, or one that a tag or a branch
            refers to.
        TableBranchNotFoundError: (22)
    """
    own_branch = None if branch == MAIN else branch
    directory = directory_of(table, own_branch, write=True)
    present = directory.list()
    doomed = [each for each in present if any(each.version in part for part in ranges)]
    planned = Pruning(table, own_branch, directory, doomed)
    if doomed:
        if doomed[-1] is present[-1]:
            raise invalid(
                f"Version {doomed[-1].version} is the latest of table '{table.name}', "
                "whose storage holds no other record of it: to delete all, drop the table"
            )
        in_the_way = _needed(planned, doomed)
        if in_the_way:
            raise invalid(f"{in_the_way}: delete that first, or leave the version out")
    return planned


def execute(planned: Pruning) -> int:
    """Delete versions that were checked, and return how many there were.

    Raises:
        ConcurrentModificationError: (14) somebody tagged one meanwhile, or made a branch of it.
            It was put back, with those that were deleted together with it.
    """
    for chunk in _chunks(planned.doomed):
        _delete(planned, chunk)
    return len(planned.doomed)


def missing(planned: Pruning) -> int:
    """Return how many of the versions are not there any more."""
    present = {each.version for each in planned.directory.list()}
    return sum(each.version not in present for each in planned.doomed)


def _delete(planned: Pruning, chunk: Sequence[Manifest]) -> None:
    directory, files = planned.directory, planned.directory.files
    paths = [directory.within(each.name) for each in chunk]
    with ThreadPoolExecutor(_READERS) as readers:
        kept = dict(zip(paths, readers.map(files.read, paths), strict=True))
    files.remove(paths)
    # Whoever tags a version looks for it once more afterwards: one of the two sees the other.
    try:
        in_the_way = _needed(planned, chunk)
        if in_the_way:
            raise ConcurrentModificationError(f"{in_the_way} since a moment: it was put back")
    except LanceNamespaceError:
        for path, data in kept.items():
            if data is not None:
                files.put_new(path, data)
        raise


def _needed(planned: Pruning, doomed: Sequence[Manifest]) -> str:
    """Return which of these versions something refers to, or an empty string."""
    dataset = planned.table.open(write=True)
    needed = needed_versions(dataset, planned.branch)
    for each in doomed:
        if each.version in needed:
            name = planned.table.name
            return f"Version {each.version} of table '{name}' is needed by {needed[each.version]}"
    return ""


def _chunks(doomed: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """Yield the manifests in parts that fit into memory."""
    chunk: list[Manifest] = []
    for each in doomed:
        total = sum(other.size for other in chunk) + each.size
        if chunk and (total > _CHUNK_BYTES or len(chunk) == _CHUNK_FILES):
            yield chunk
            chunk = []
        chunk.append(each)
    if chunk:
        yield chunk
