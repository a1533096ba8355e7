"""Files that a clean-up must keep, though no version of the table names them.

Lance's clean-up reads the manifests of versions, tags and branches. It reads neither the manifests
of shallow clones, which are at other locations, nor those that were staged for a version which is
not committed yet, or quarantined.
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
from ..managed.versions import ManagedDirectory, managed_directory
from ..managed_state import State
from ..storage.manifest_content import parse_manifest
from ..storage.manifests import VersionDirectory
from ..storage.table_files import TableFiles
from ..table import Table
from ..tables.overlap import LocationIndex

_ABANDON = "It no longer counts once another version is committed"
_DECIDE = (
    "Make the table managed with `lance-bridge managed begin`, and adopt or discard the version"
)


@dataclass(frozen=True)
class Protection:
    """The files that some manifests name.

    Attributes:
        owner: What needs the files, for messages.
        way_out: What to do so that it no longer needs them.
        stems: The names of data files and deletion files, without endings.
        manifests: The manifests; an index is named in them by the bytes of its UUID.
    """

    owner: str
    way_out: str
    stems: frozenset[str]
    manifests: tuple[bytes, ...]

    @classmethod
    def of(cls, owner: str, way_out: str, manifests: Iterable[bytes]) -> Protection:
        """Return what manifests protect; one that cannot be read protects nothing by itself."""
        kept, stems = tuple(manifests), set()
        for data in kept:
            with suppress(ValueError):
                content = parse_manifest(data)
                stems |= {_stem(each) for each in content.data_files}
                stems |= {each.deletion_file for each in content.fragments if each.deletion_file}
        return cls(owner, way_out, frozenset(stems), kept)

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
    found = list(_uncommitted(table))
    try:
        clones, unread = _clones(table)
    except LanceNamespaceError as error:
        return found, [str(error)]
    return [*found, *clones], unread


def _uncommitted(table: Table) -> Iterator[Protection]:
    """Yield what a writer has staged, and may still commit, and what was quarantined before.

    Storage manages a table again that has been released or deregistered since then.
    """
    managed = table.managed is not None
    directory = managed_directory(table) if managed else ManagedDirectory(table.files(), State(0))
    found = [(name, _ABANDON) for _, name in directory.staged_after_latest()] if managed else []
    found += [(name, _DECIDE) for name in directory.quarantined()] if not managed else []
    for name, way_out in found:
        data = directory.files.read(directory.within(name))
        if data is not None:
            yield Protection.of(f"the manifest {name}", way_out, [data])


def _clones(table: Table) -> tuple[list[Protection], list[str]]:
    if table.connection.config.drop_check == "entries":
        return [], []
    index = LocationIndex(table.connection, [table.record])
    found, unread = index.find_clones(table.record)
    clones = [
        Protection.of(
            f"the shallow clone '{display(path)}'",
            "Drop the clone first",
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
