"""Rows that only uncommitted versions have: these versions are not deleted without being named.

Rows are in fragments. A fragment has rows that nothing else has if none of its data files is in a
version that stays. A version that only deletes rows, or adds columns to old rows, has no such
fragment; nor has a compaction of rows that other versions have, by its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

from lance_namespace.errors import InvalidTableStateError

from ..storage.lance_format import Fragment, ManifestContent, Rewrite, parse_manifest
from .version_directory import ManagedDirectory, UncommittedManifest

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
    directory: ManagedDirectory, manifests: Sequence[UncommittedManifest]
) -> list[UniqueRows]:
    """Return the manifests that have rows which no committed version has, the first version first.

    A fragment that several of them have counts for the first one. Fragments whose data files are
    all missing have no rows.
    """
    sources = _Sources.read(directory, manifests)
    found, unique = set(sources.committed), []
    for manifest, content in sources.contents:
        found |= sources.moved_from(found)
        fragments = _without(content.fragments if content else (), found, sources.missing)
        found |= {name for each in fragments for name in each.data_files}
        if fragments or content is None:
            unique.append(UniqueRows(manifest, content, fragments))
    return unique


@dataclass(frozen=True)
class RowsToAppend:
    """The rows that only uncommitted versions have, each as the last version has it.

    Attributes:
        unique: The manifests to read them from, the last version first.
        left: Manifests with rows of committed versions that no longer exist. The committed versions
            after these have deleted or replaced them, so that they are not appended.
    """

    unique: Sequence[UniqueRows]
    left: Sequence[UniqueRows]
    _sources: _Sources

    @classmethod
    def of(
        cls, directory: ManagedDirectory, manifests: Sequence[UncommittedManifest]
    ) -> RowsToAppend:
        """Read manifests. One that cannot be read is left out.

        Raises:
            InvalidTableStateError: (19) a compaction has rows of committed versions and others in
                one data file, and nothing else has the others.
        """
        sources = _Sources.read(directory, manifests)
        # Rows are read from where they were before a compaction, if any manifest has them there.
        found = sources.committed | sources.moved_from(sources.committed | sources.names)
        mixed = {
            name
            for each in sources.rewrites
            if each.old & sources.committed and not each.new <= found
            for name in each.new
        }
        unique, left = [], []
        for manifest, content in reversed(sources.contents):
            fragments = _without(content.fragments if content else (), found, sources.missing)
            rows = UniqueRows(manifest, content, fragments)
            if rows.data_files & mixed:
                raise InvalidTableStateError(
                    f"The rows of {rows} cannot be appended: a compaction has joined them with "
                    "rows of the table"
                )
            found |= rows.data_files
            old = tuple(each for each in fragments if each.data_files & sources.outlived)
            if old:
                left.append(replace(rows, fragments=old))
            if len(old) < len(fragments):
                new = tuple(each for each in fragments if each not in old)
                unique.append(replace(rows, fragments=new))
        return cls(unique, left, sources)

    def without_others(self, appended: Set[str]) -> list[UncommittedManifest]:
        """Return the manifests that are not needed, once the rows of some data files are committed.

        The rows of `left` are not needed.
        """
        left = {name for each in self.left for name in each.data_files}
        done = left | appended | self._sources.committed
        done |= self._sources.moved_from(done)
        had_rows = left | {name for each in self.unique for name in each.data_files}
        had_rows |= self._sources.moved_from(had_rows | self._sources.committed)
        had_rows -= self._sources.committed
        return [
            manifest
            for manifest, content in self._sources.contents
            if content is not None
            and content.data_files & had_rows
            and content.data_files & had_rows <= done
        ]


@dataclass(frozen=True)
class _Sources:
    """Uncommitted manifests, and what decides where else their rows are."""

    contents: Sequence[tuple[UncommittedManifest, ManifestContent | None]]
    """The first version first; None for a manifest that cannot be read."""
    rewrites: Sequence[Rewrite]
    committed: frozenset[str]
    missing: frozenset[str]
    outlived: frozenset[str]
    """Data files of committed versions that are gone, as far as these manifests have them."""

    @classmethod
    def read(
        cls, directory: ManagedDirectory, manifests: Sequence[UncommittedManifest]
    ) -> _Sources:
        ordered = sorted(manifests, key=lambda each: (each.version, each.name))
        contents = read_manifests(directory, ordered)
        parsed = [each for _, each in contents if each is not None]
        wanted = {name for each in parsed for name in each.data_files}
        rewrites = [rewrite for each in parsed for rewrite in directory.rewrites_of(each)]
        old = {name for each in rewrites for name in each.old}
        committed = _committed_data_files(directory, wanted | old)
        elsewhere = {name for each in parsed if each.base_paths for name in each.data_files}
        missing = directory.missing_of(wanted - committed - elsewhere)
        outlived = _outlived(directory, [each for each in parsed if each.data_files - committed])
        return cls(contents, rewrites, frozenset(committed), frozenset(missing), outlived)

    @property
    def names(self) -> frozenset[str]:
        """The data files of all these manifests."""
        return frozenset(name for _, each in self.contents if each for name in each.data_files)

    def moved_from(self, found: Set[str]) -> set[str]:
        """Return the data files to which compactions moved only rows of others."""
        moved: set[str] = set()
        for _ in self.rewrites:  # one may have moved what another one had moved
            moved |= {
                name for each in self.rewrites if each.old <= found | moved for name in each.new
            }
        return moved


def _outlived(directory: ManagedDirectory, contents: Sequence[ManifestContent]) -> frozenset[str]:
    """Return data files that versions have from a committed one before them that is gone.

    A version beside a committed one is based on the one before it. If that is gone, and was not
    written past the catalog as well, all that its transaction did not add was committed.
    """
    versions = {each.version for each in contents}
    found: set[str] = set()
    for content in contents:
        before = content.version - 1
        is_beside = 0 < before < directory.state.version and before not in versions
        if is_beside and directory.read_final(before) is None:
            added = directory.files_added_by(content)
            found |= content.data_files - added if added is not None else set()
    return frozenset(found)


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
