"""Files that a clean-up must keep, though no version of the table names them.

Lance's clean-up reads the manifests of versions, tags and branches. It reads neither the manifests
of shallow clones, which are at other locations, nor those that were staged for a version which is
not committed yet.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath

from lance_namespace.errors import LanceNamespaceError

from ..errors import display
from ..managed.versions import managed_directory
from ..storage.manifest_content import parse_manifest
from ..storage.manifests import VersionDirectory
from ..storage.table_files import TableFiles
from ..table import Table
from ..tables.overlap import LocationIndex


@dataclass(frozen=True)
class Protection:
    """The files that some manifests name.

    Attributes:
        owner: What needs the files, for messages.
        stems: The names of data files and deletion files, without endings.
        manifests: The manifests; an index is named in them by the bytes of its UUID.
    """

    owner: str
    stems: frozenset[str]
    manifests: tuple[bytes, ...]

    @classmethod
    def of(cls, owner: str, manifests: Iterable[bytes]) -> Protection:
        """Return what manifests protect; one that cannot be read protects nothing by itself."""
        kept, stems = tuple(manifests), set()
        for data in kept:
            with suppress(ValueError):
                content = parse_manifest(data)
                stems |= {_stem(each) for each in content.data_files}
                stems |= {each.deletion_file for each in content.fragments if each.deletion_file}
        return cls(owner, frozenset(stems), kept)

    def needs(self, path: str) -> bool:
        """Return whether one of the manifests names a file, or the directory that it is in."""
        parts = PurePosixPath(path).parts[-3:]
        return any(_stem(part) in self.stems or self._has_index(part) for part in parts)

    def _has_index(self, name: str) -> bool:
        try:
            wanted = uuid.UUID(name).bytes
        except ValueError:
            return False
        return any(wanted in data for data in self.manifests)


def find_protections(table: Table) -> tuple[list[Protection], list[str]]:
    """Return what protects files of a table, and what could not be read and may need some.

    Whether other entries are read, to find clones, is set by `drop.check-sharing`.
    """
    found = list(_staged(table))
    try:
        clones, unread = _clones(table)
    except LanceNamespaceError as error:
        return found, [str(error)]
    return [*found, *clones], unread


def _staged(table: Table) -> Iterator[Protection]:
    """Yield what a writer has staged, and may still commit."""
    if table.managed is None:
        return
    directory = managed_directory(table)
    for version, name in directory.staged_after_latest():
        data = directory.files.read(directory.within(name))
        if data is not None:
            yield Protection.of(f"the staged manifest {name} of version {version}", [data])


def _clones(table: Table) -> tuple[list[Protection], list[str]]:
    if table.connection.config.drop_check == "entries":
        return [], []
    index = LocationIndex(table.connection, [table.record])
    found, unread = index.find_clones(table.record)
    clones = [
        Protection.of(
            f"the shallow clone '{display(path)}'",
            chain.from_iterable(_manifests(each) for each in places),
        )
        for path, places in found
    ]
    return clones, [f"'{display(path)}': {error}" for path, error in unread]


def _manifests(files: TableFiles) -> Iterator[bytes]:
    directory = VersionDirectory(files)
    for each in directory.list():
        data = files.read(directory.within(each.name))
        if data is not None:
            yield data


def first_needed(
    protections: Sequence[Protection], paths: Sequence[str]
) -> tuple[Protection, str] | None:
    """Return a file that is needed, and by what, or None."""
    for each in protections:
        path = next(filter(each.needs, paths), None)
        if path is not None:
            return each, path
    return None


def _stem(name: str) -> str:
    return name.partition(".")[0]
