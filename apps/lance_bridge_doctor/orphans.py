"""Lance tables in storage that have no entry in the catalog.

What the catalog lists is not all that it has: it may leave out what the user has no right to list.
So before data counts as orphaned, the entry is asked for that its directory names.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import obstore
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)

from lance_bridge import locations
from lance_bridge.catalog import NameRule, Path
from lance_bridge.catalog_scan import entries_named_by
from lance_bridge.dotted_names import written
from lance_bridge.entry import TableEntry
from lance_bridge.storage import TableFiles, TableStorage, VersionDirectory, store_errors
from lance_bridge.tables import Tables

from .checks import TableChecks, storage_finding
from .findings import Finding, Kind

_PROBE = "lance_bridge_doctor"
"""The name of a table that does not exist, to get credentials for a location."""
_DEFAULT = "default"
_INVALID = re.compile(r"[^A-Za-z0-9_]")
_THREADS = 8

Key = tuple[str, ...]
"""A location, as `location.key` returns it."""


@dataclass(frozen=True)
class OccupiedLocations:
    """The locations and names of all entries of a catalog: other locations have no entry.

    A single unreadable entry may be for any location, so all of them must be readable.
    """

    namespaces: frozenset[Path]
    names: frozenset[Path]
    locations: frozenset[Key]
    parents: frozenset[Key]
    """Directories that contain a location, without the location itself."""
    repeated: tuple[tuple[TableEntry, ...], ...] = ()
    """Entries that have one name."""

    @classmethod
    def read(cls, tables: Tables) -> OccupiedLocations:
        """Read every entry, Lance or not.

        Raises:
            LanceNamespaceError: some of them cannot be read.
        """
        named = list(tables.namespaces())
        with ThreadPoolExecutor(_THREADS) as threads:
            pages = list(threads.map(lambda each: _scan(tables, each), named))
        found = {path: page for path, page in zip(named, pages, strict=True) if page is not None}
        entries = [entry for page in found.values() for entry in page]
        _require_readable(entries)
        by_name: dict[Path, list[TableEntry]] = {}
        for entry in entries:
            by_name.setdefault(entry.path, []).append(entry)
        occupied = locations.keys_of(
            each for entry in entries for each in entry.record.all_locations
        )
        return cls(
            frozenset(found),
            frozenset(by_name),
            frozenset(occupied),
            frozenset(key[:end] for key in occupied for end in range(1, len(key))),
            tuple(each for each in map(tuple, by_name.values()) if len(each) > 1),
        )

    def covers(self, key: Key) -> bool:
        """Return whether a location, or a directory that contains it, has an entry."""
        return any(key[:end] in self.locations for end in range(1, len(key) + 1))


def _scan(tables: Tables, namespace: Path) -> list[TableEntry] | None:
    """Return the entries of a namespace; None if it does not exist, or no longer."""
    try:
        return list(tables.scan(namespace))
    except NamespaceNotFoundError:
        return None


def _require_readable(entries: Iterable[TableEntry]) -> None:
    unreadable = [entry.name for entry in entries if not entry.record.is_readable]
    if unreadable:
        raise InvalidTableStateError(f"These entries cannot be read: {', '.join(unreadable)}")


@dataclass(frozen=True)
class UnlistedNamespaces:
    """The entries of namespaces that no listing shows, each read once."""

    tables: Tables
    _known: dict[Path, list[TableEntry] | LanceNamespaceError | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def entries(self, namespace: Path) -> list[TableEntry] | None:
        """Return the entries of a namespace; None if it does not exist.

        Raises:
            LanceNamespaceError: it cannot be read, or one of its entries.
        """
        with self._lock:
            if namespace not in self._known:
                try:
                    self._known[namespace] = self._read(namespace)
                except LanceNamespaceError as error:
                    self._known[namespace] = error
            found = self._known[namespace]
        if isinstance(found, LanceNamespaceError):
            raise found
        return found

    def _read(self, namespace: Path) -> list[TableEntry] | None:
        try:
            # A listing of a namespace that the user may not see can be empty.
            self.tables.connection.catalog.load_namespace(namespace)
        except NamespaceNotFoundError:
            return None
        found = _scan(self.tables, namespace) or []
        _require_readable(found)
        return found


@dataclass(frozen=True)
class TableDirectory:
    """A directory that has tables at some depth.

    ``namespace`` is the namespace of the tables directly in it; None if its subdirectories are the
    namespaces.
    """

    location: str
    depth: int
    storage: TableStorage = field(repr=False)
    namespace: Path | None = None


@dataclass(frozen=True)
class Candidate:
    """A directory without an entry; ``names`` is the path to it below ``parent``."""

    parent: TableDirectory
    names: tuple[str, ...]

    @property
    def location(self) -> str:
        """The location in pylance's form."""
        return locations.for_lance(locations.join(self.parent.location, *self.names))

    @property
    def key(self) -> Key:
        """The key of the location, equal for all its spellings."""
        return locations.key(self.location)


@dataclass(frozen=True)
class Orphans:
    """Finds data without an entry, and changes nothing."""

    checks: TableChecks
    occupied: OccupiedLocations
    unlisted: UnlistedNamespaces

    def candidates(self) -> tuple[list[Candidate], list[Finding]]:
        """Return the directories without an entry, sorted, and findings for failed listings."""
        found: dict[Key, Candidate] = {}
        failed: list[Finding] = []
        for parent in self._table_directories(failed):
            try:
                for each in self._list(parent, ()):
                    found.setdefault(each.key, each)
            except LanceNamespaceError as error:
                failed.append(storage_finding(error, parent.location, self.checks.commands))
        return sorted(found.values(), key=lambda each: each.location), failed

    def _table_directories(self, failed: list[Finding]) -> Iterator[TableDirectory]:
        """Yield the directories where tables are created, those of known namespaces first."""
        connection = self.checks.tables.connection
        for namespace in sorted(self.occupied.namespaces):
            try:
                record = connection.catalog.load_namespace(namespace)
                location = connection.catalog.location_for_tables(record)
                if location and locations.is_supported(location):
                    storage = self.checks.tables.at((*namespace, _PROBE), location).storage()
                    yield TableDirectory(location, 1, storage, namespace)
            except LanceNamespaceError as error:
                name = written(namespace)
                command = self.checks.commands.on_catalog("ns describe", name)
                failed.append(Finding(Kind.CATALOG, name, str(error), command))
        root = connection.config.root
        if root is not None:
            depth = connection.capabilities.levels + 1
            yield TableDirectory(root, depth, TableStorage(connection.secrets.config.storage))

    def _list(self, parent: TableDirectory, names: tuple[str, ...]) -> Iterator[Candidate]:
        for name in list_directories(parent.storage, locations.join(parent.location, *names)):
            each = Candidate(parent, (*names, name))
            if self.occupied.covers(each.key):
                continue
            if len(each.names) < parent.depth and not name.endswith(locations.TABLE_ENDING):
                yield from self._list(parent, each.names)
            elif each.key not in self.occupied.parents:
                yield each

    def check(self, candidate: Candidate) -> list[Finding]:
        """Return a finding if a directory is a Lance table."""
        location, storage = candidate.location, candidate.parent.storage
        try:
            if not storage.has_dataset(location):
                return []
            latest = VersionDirectory(TableFiles(storage, location)).latest()
        except LanceNamespaceError as error:
            return [storage_finding(error, location, self.checks.commands)]
        if latest is None or time.time() - latest.timestamp_millis / 1000 < self.checks.idle:
            return []
        return self._judge(candidate, f"It is a Lance table with version {latest.version}")

    def _judge(self, candidate: Candidate, what: str) -> list[Finding]:
        """Return a finding unless the catalog has an entry that it does not list.

        An entry that may not be read exists. The problems of one that can be read are returned.
        """
        connection = self.checks.tables.connection
        paths = entries_named_by(
            candidate.location,
            candidate.parent.namespace or (),
            connection.capabilities,
            connection.config.root,
        )
        found: list[TableEntry] = []
        existing: set[Path] = set()
        try:
            for path in paths:
                try:
                    entry = self.checks.tables.find(path)
                except PermissionDeniedError:
                    return []
                found += [entry] if entry is not None else []
            for namespace in {path[:-1] for path in paths} - self.occupied.namespaces:
                entries = self.unlisted.entries(namespace)
                if entries is not None:
                    existing.add(namespace)
                    found += entries
        except LanceNamespaceError as error:
            return [self._unknown(candidate, what, error)]
        for entry in found:
            places = locations.keys_of(entry.record.all_locations)
            if any(locations.overlap(candidate.key, place) for place in places):
                return self.checks.check([entry]) if entry.record.is_lance else []
        path = self._choose_name(candidate, self.occupied.names | {each.path for each in found})
        message = (
            f"{what}, and no entry that the catalog shows to this user is for it: register it, or "
            "delete its directory if no other user needs it"
        )
        command = self._register_command(path, candidate.location, existing)
        return [Finding(Kind.ORPHANED_DATA, candidate.location, message, command)]

    def _unknown(self, candidate: Candidate, what: str, error: LanceNamespaceError) -> Finding:
        message = (
            f"{what}, and whether the catalog has an entry for it is unknown: {error}. Check it as "
            "a user who may see all entries, and leave it where it is until then"
        )
        again = self.checks.commands.on_catalog("doctor")
        return Finding(Kind.UNKNOWN_DATA, candidate.location, message, again)

    def _register_command(self, path: Path, location: str, existing: Collection[Path]) -> str:
        register = self.checks.commands.on_catalog("table register", written(path), location)
        namespace, namespaces = path[:-1], self.occupied.namespaces.union(existing)
        if namespace in namespaces:
            return register
        create = [
            self.checks.commands.on_catalog("ns create", written(namespace[:end]), "--exist-ok")
            for end in range(1, len(namespace) + 1)
            if not any(known[:end] == namespace[:end] for known in namespaces)
        ]
        return " && ".join([*create, register])

    def _choose_name(self, candidate: Candidate, taken: Collection[Path]) -> Path:
        """Return a free table name, as close to the directory's name as the catalog allows."""
        capabilities = self.checks.tables.connection.capabilities
        *outer, last = candidate.names
        namespace = candidate.parent.namespace
        if namespace is None:
            names = [name.removesuffix(locations.NAMESPACE_ENDING) for name in outer]
            names += [_DEFAULT] * (capabilities.levels - len(names))
            namespace = tuple(map(self._valid_name, names, capabilities.namespace_levels))
        table = self._valid_name(last.removesuffix(locations.TABLE_ENDING), capabilities.table_rule)
        free, number = table, 1
        while (*namespace, free) in taken:
            number += 1
            free = f"{table}_{number}"
        return (*namespace, free)

    def _valid_name(self, name: str, rule: NameRule) -> str:
        folded = name.lower() if self.checks.tables.connection.capabilities.folds_case else name
        if rule.pattern.fullmatch(folded) and len(folded) <= rule.max_length:
            return folded
        return _INVALID.sub("_", folded)[: rule.max_length - 4].strip("_") or rule.noun


def list_directories(storage: TableStorage, location: str) -> list[str]:
    """Return the names of the directories in a location, sorted; none if it does not exist.

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
