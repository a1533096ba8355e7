"""Rows that only uncommitted versions have: these versions are not deleted without being named.

Rows are in fragments. A fragment has rows that nothing else has if none of its data files is in a
version that stays. A version that only deletes rows, or adds columns to old rows, has no such
fragment; nor has a compaction of rows that other versions have, by its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from ..storage.manifest_content import Fragment, ManifestContent, parse_manifest
from .versions import ManagedDirectory, UncommittedManifest

_THREADS = 16


@dataclass(frozen=True)
class UniqueRows:
    """What a manifest has that nothing else has.

    Attributes:
        manifest: The manifest.
        content: Its content; None if it cannot be read, and may have any rows.
        fragments: The fragments with such rows.
    """

    manifest: UncommittedManifest
    content: ManifestContent | None
    fragments: tuple[Fragment, ...]

    @property
    def data_files(self) -> frozenset[str]:
        """The data files of these fragments."""
        return frozenset(name for each in self.fragments for name in each.data_files)

    def __str__(self) -> str:
        name = f"version {self.manifest.version}"
        if self.content is None:
            return f"{name} (its manifest cannot be read)"
        files, rows = len(self.data_files), sum(each.rows for each in self.fragments)
        return f"{name} ({_count(files, 'data file')}, {_count(rows, 'row')})"


def find_unique_rows(
    directory: ManagedDirectory,
    manifests: Sequence[UncommittedManifest],
    *,
    newest_first: bool = False,
) -> list[UniqueRows]:
    """Return the manifests that have rows which no committed version has, the first version first.

    A fragment that several of them have counts for the first one. Fragments whose data files are
    all missing have no rows.

    Args:
        newest_first: Return the last version first; a fragment then counts for the last one.
    """
    ordered = sorted(manifests, key=lambda each: (each.version, each.name), reverse=newest_first)
    contents = read_manifests(directory, ordered)
    wanted = {name for _, each in contents if each is not None for name in each.data_files}
    found = _committed_data_files(directory, wanted)
    left = wanted - found
    with_bases = {
        name for _, each in contents if each and each.base_paths for name in each.data_files
    }
    missing = set(directory.missing_of(left - with_bases))
    unique = []
    for manifest, content in contents:
        fragments = _without(content.fragments if content else (), found, missing)
        if fragments and content is not None:
            rewrites = [each for each in directory.rewrites_of(content) if each.old <= found]
            moved = {name for each in rewrites for name in each.new}
            fragments = _without(fragments, moved, missing)
        found |= {name for each in fragments for name in each.data_files}
        if fragments or content is None:
            unique.append(UniqueRows(manifest, content, fragments))
    return unique


def _without(
    fragments: Sequence[Fragment], found: Set[str], missing: Set[str]
) -> tuple[Fragment, ...]:
    """Return the fragments of which no data file was found, and not all are missing."""
    return tuple(
        each
        for each in fragments
        if each.data_files and not each.data_files & found and not each.data_files <= missing
    )


def has_rows_of(directory: ManagedDirectory, content: ManifestContent, of: ManifestContent) -> bool:
    """Return whether a version has all rows of another one, as its files and transaction show.

    A compaction writes rows into new data files; its transaction names the old ones.
    """
    missing = of.data_files - content.data_files
    if not missing:
        return True
    rewrites = directory.rewrites_of(content)
    moved = {name for each in rewrites if each.new <= content.data_files for name in each.old}
    return missing <= moved


def read_manifests(
    directory: ManagedDirectory, manifests: Sequence[UncommittedManifest]
) -> list[tuple[UncommittedManifest, ManifestContent | None]]:
    """Return the manifests that exist, each with its content, or None if it cannot be read."""
    found = [(each, directory.files.read(directory.within(each.name))) for each in manifests]
    return [(each, _parse(data)) for each, data in found if data is not None]


def _committed_data_files(directory: ManagedDirectory, wanted: set[str]) -> set[str]:
    """Return the data files of committed versions; stops when all wanted ones are found."""
    found: set[str] = set()
    committed = iter(directory.committed_paths())
    with ThreadPoolExecutor(_THREADS) as threads:
        while not wanted <= found and (paths := list(islice(committed, _THREADS))):
            for data in threads.map(directory.files.read, paths):
                content = _parse(data)
                found |= content.data_files if content is not None else set()
    return found


def _parse(data: bytes | None) -> ManifestContent | None:
    try:
        return parse_manifest(data or b"")
    except ValueError:
        return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
