"""Lance tables in storage that no entry is for."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import obstore
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.catalog import NameRule, Path, TableRecord
from lance_bridge.names import written
from lance_bridge.storage import TableStorage, store_errors
from lance_bridge.tables.history.manifests import TableFiles, VersionDirectory

from .connection import of_storage
from .findings import Commands, Finding, Kind, both
from .taken import Key, Taken

_ENDING, _NAMESPACE_ENDING = ".lance", ".db"
_PROBE = "lance_bridge_doctor"
"""The name of a table that is not there, to ask a catalog for credentials of a place."""
_DEFAULT = "default"
_ODD = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True)
class Place:
    """A directory that has tables at some depth.

    ``namespace`` is whose tables are directly in it, or None where directories tell that.
    """

    location: str
    depth: int
    storage: TableStorage = field(repr=False)
    namespace: Path | None = None


@dataclass(frozen=True)
class Candidate:
    """A directory that no entry is for; ``names`` lead to it from its place."""

    place: Place
    names: tuple[str, ...]

    @property
    def location(self) -> str:
        """As pylance spells it."""
        return locations.for_lance(locations.join(self.place.location, *self.names))

    @property
    def key(self) -> Key:
        """Equal for every spelling of the location."""
        return locations.key(self.location)


@dataclass(frozen=True)
class Orphans:
    """Looks for data without an entry, and changes nothing. ``idle`` is in seconds."""

    bridge: Bridge
    commands: Commands
    idle: float
    taken: Taken

    def candidates(self) -> tuple[list[Candidate], list[Finding]]:
        """Return the directories that no entry is for, sorted, and what could not be listed."""
        found: dict[Key, Candidate] = {}
        failed: list[Finding] = []
        for place in self._places(failed):
            try:
                for each in self._inside(place, ()):
                    found.setdefault(each.key, each)
            except LanceNamespaceError as error:
                failed.append(of_storage(error, place.location, place.location, self.commands))
        return sorted(found.values(), key=lambda each: each.location), failed

    def _places(self, failed: list[Finding]) -> Iterator[Place]:
        """Yield where tables go: the namespaces' own places first, which say whose they are."""
        for namespace in sorted(self.taken.namespaces):
            try:
                record = self.bridge.catalog.load_namespace(namespace)
                location = self.bridge.catalog.place_for_tables(record)
                if location and locations.is_supported(location):
                    yield Place(location, 1, self._storage(namespace, location), namespace)
            except LanceNamespaceError as error:
                name = written(namespace)
                command = self.commands.on_catalog(["ns", "describe"], name)
                failed.append(Finding(Kind.CATALOG, name, str(error), command))
        root = self.bridge.config.root
        if root is not None:
            levels = self.bridge.capabilities.levels
            yield Place(root, levels + 1, TableStorage(self.bridge.config.storage))

    def _storage(self, namespace: Path, location: str) -> TableStorage:
        return self.bridge.storage(TableRecord((*namespace, _PROBE), location))

    def _inside(self, place: Place, names: tuple[str, ...]) -> Iterator[Candidate]:
        for name in directories(place.storage, locations.join(place.location, *names)):
            each = Candidate(place, (*names, name))
            if self.taken.covers(each.key):
                continue
            if len(each.names) < place.depth and not name.endswith(_ENDING):
                yield from self._inside(place, each.names)
            elif each.key not in self.taken.above:
                yield each

    def of_candidate(self, candidate: Candidate) -> list[Finding]:
        """Return that a directory is a Lance table without an entry, if that is what it is."""
        location, storage = candidate.location, candidate.place.storage
        try:
            if not storage.has_dataset(location):
                return []
            latest = VersionDirectory(TableFiles(storage, location)).latest()
        except LanceNamespaceError as error:
            return [of_storage(error, location, location, self.commands)]
        if latest is None or time.time() - latest.timestamp_millis / 1000 < self.idle:
            return []
        path = self._path(candidate)
        message = (
            f"It is a Lance table with version {latest.version}, and no entry of the catalog is "
            "for it: give it a name, or delete its directory"
        )
        return [Finding(Kind.ORPHANED_DATA, location, message, self._register(path, location))]

    def _register(self, path: Path, location: str) -> str:
        register = self.commands.on_table("register", written(path), location)
        namespace = path[:-1]
        if namespace in self.taken.namespaces:
            return register
        made = [
            self.commands.on_catalog(["ns", "create"], written(namespace[:end]), "--exist-ok")
            for end in range(1, len(namespace) + 1)
            if not any(known[:end] == namespace[:end] for known in self.taken.namespaces)
        ]
        return both(*made, register)

    def _path(self, candidate: Candidate) -> Path:
        """Return a name for a table that is as near to its directory's as the catalog takes."""
        able = self.bridge.capabilities
        *outer, last = candidate.names
        namespace = candidate.place.namespace
        if namespace is None:
            told = [name.removesuffix(_NAMESPACE_ENDING) for name in outer]
            told += [_DEFAULT] * (able.levels - len(told))
            rules = able.namespace_levels
            namespace = tuple(map(self._fitting, told, rules))
        table = self._fitting(last.removesuffix(_ENDING), able.table_rule)
        free, number = table, 1
        while (*namespace, free) in self.taken.names:
            number += 1
            free = f"{table}_{number}"
        return (*namespace, free)

    def _fitting(self, name: str, rule: NameRule) -> str:
        folded = name.lower() if self.bridge.capabilities.folds_case else name
        if rule.pattern.fullmatch(folded) and len(folded) <= rule.max_length:
            return folded
        return _ODD.sub("_", folded)[: rule.max_length - 4].strip("_") or rule.noun


def directories(storage: TableStorage, location: str) -> list[str]:
    """Return the names of the directories in a place, sorted; none where there is no such place.

    Raises:
        LanceNamespaceError: the storage does not answer.
    """
    with store_errors(location):
        if not locations.is_local(location):
            found = obstore.list_with_delimiter(storage.store_at(location))["common_prefixes"]
            return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found)
        try:
            with os.scandir(locations.for_lance(location)) as entries:
                return sorted(each.name for each in entries if each.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
