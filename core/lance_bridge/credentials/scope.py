"""The scope of credentials: a prefix in a store, its roots, and no location that others share.

Prefixes are compared by segments, decoded as Lance decodes them, so that neither ``t`` contains
``t2`` nor a spelling hides a segment.

No other entry of the catalog may share a table's location. Otherwise a user who may register a
table at any location could read other tables' files, with a location that contains theirs or is
inside it. All entries count, Lance's or not. Reading them takes
a scan of the catalog, so the result is kept for a minute, or for twenty times the duration of the
scan if that is longer. An entry that seems to share a location is loaded again before anything is
refused.

What the table's entry and its location name is read by its name, if no listing has it.

The scan misses entries that are added or moved later. Before a principal of a server gets
credentials for such an entry, the catalog is read again, so that the entry is compared with all
older ones; except for an entry at its default location, which no user has chosen. Partitions that
are outside of their entry's location count for such a principal, too, and are read as seldom.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from urllib.parse import unquote

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from .. import locations
from ..catalog import Catalog, Path, TableRecord
from ..catalog_scan import Named, Scan, error_of_check, scan_locations
from ..errors import OF_ONE_OBJECT, display, invalid, marking_other_entries
from ..forks import restart_in_children
from ..records import ENTRY_ID

# -- prefixes and roots ----------------------------------------------------------------------------


@dataclass(frozen=True)
class StoragePrefix:
    """A directory of an object store."""

    store: str
    """As in `Vendor.stores`."""
    bucket: str
    segments: tuple[str, ...]
    account: str | None = None
    """The storage account, if the location names it."""

    @property
    def prefix(self) -> str:
        """The common prefix of its objects' keys, without the slash."""
        return "/".join(self.segments)

    def contains(self, other: StoragePrefix) -> bool:
        """Return whether another one is inside this one, and not the same."""
        depth = len(self.segments)
        return (
            (self.store, self.bucket) == (other.store, other.bucket)
            and self.account in (None, other.account)
            and depth < len(other.segments)
            and self.segments == other.segments[:depth]
        )


@lru_cache(4096)
def storage_prefix(location: str) -> StoragePrefix:
    """Return the directory that Lance uses for a table's location.

    Raises:
        InvalidInputError: (13) `lance_bridge.locations.check` refuses it, it is local, names no
            bucket of its own (an access point), or is not UTF-8.
    """
    return _parse(location, locations.check(location))


def _parse(text: str, location: str) -> StoragePrefix:
    store, bucket, *segments = locations.key(location)
    if locations.is_local(location) or bucket == locations.ANY:
        raise invalid(f"{text[:120]!r} is in no bucket of an object store")
    try:
        unquote(location, errors="strict")
    except UnicodeDecodeError:
        raise invalid(f"{text[:120]!r} is not UTF-8") from None
    authority = location.partition("://")[2].partition("/")[0]
    account = authority.partition("@")[2].partition(".")[0] or None
    return StoragePrefix(store, bucket, tuple(segments), account)


@dataclass(frozen=True)
class Roots:
    """Directories that tables must be inside for credentials to be vended."""

    prefixes: tuple[StoragePrefix, ...]

    def contain(self, directory: StoragePrefix) -> bool:
        """Return whether a table's directory is inside one of them."""
        return any(each.contains(directory) for each in self.prefixes)


def parse_root(text: str) -> StoragePrefix:
    """Return the directory or bucket that a URI names. Raises InvalidInput (13)."""
    probe = locations.check(locations.join(text.strip(), "table"))
    found = _parse(text, probe)
    return StoragePrefix(found.store, found.bucket, found.segments[:-1], found.account)


# -- shared locations ------------------------------------------------------------------------------


_KEPT_SECONDS = 60.0
_KEPT_TIMES = 20
_MOST_KEPT = 4096
"""Of results, before those that have expired are removed."""
_HINT = "With credentials.check-sharing=namespace, only the table's own namespace is read"
_PARTITIONS_HINT = "With credentials.check-sharing=entries, partitions are not read"
_THREADS = 8
"""Entries whose partitions are read at once."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class _Owner:
    """An entry that has a location."""

    path: Path
    entry_id: str | None
    can_load: bool
    """False for an entry of the server that this catalog does not list."""


class _Index:
    """The entries that one scan found, by location."""

    def __init__(self, scan: Scan, begun: float) -> None:
        self.begun = begun
        """When the scan began; each entry was read at that time or later."""
        self.namespaces = scan.namespaces
        """The namespaces that were read."""
        self.paths = frozenset(record.path for record, _ in scan.records)
        self.unreadable: list[Path] = []
        found: list[tuple[Key, _Owner]] = []
        self._anywhere: list[tuple[Key, _Owner]] = []
        for record, can_load in scan.records:
            path = record.link_path or record.path
            if not record.is_readable:
                self.unreadable.append(path)
            owner = _Owner(path, record.properties.get(ENTRY_ID), can_load)
            for key in locations.keys_of(record.all_locations):
                (self._anywhere if locations.ANY in key[:2] else found).append((key, owner))
        found.sort(key=lambda each: each[0])
        self._keys = [key for key, _ in found]
        self._owners = [owner for _, owner in found]
        self._partitioned = [
            record for record, _ in scan.records if record.is_partitioned and not record.link_to
        ]
        self._partitions: list[tuple[Key, Path]] | None = None

    def partitions(self, catalog: Catalog) -> list[tuple[Key, Path]]:
        """Return the partitions outside of their entry's location, with the entry; read once.

        Raises:
            InvalidTableStateError: (19) those of an entry cannot be read, and others can.
            PermissionDeniedError: (15) those of an entry may not be read.
        """
        if self._partitions is None:
            with ThreadPoolExecutor(_THREADS) as threads:
                read = partial(_partitions_of, catalog)
                self._partitions = list(chain(*threads.map(read, self._partitioned)))
        return self._partitions

    def overlapping(self, own: Key) -> Iterator[_Owner]:
        """Yield the entries whose location is, contains or is inside a location."""
        for depth in range(1, len(own)):
            yield from self._with(own[:depth], exact=True)
        yield from self._with(own, exact=False)
        for key, owner in self._anywhere:
            if locations.overlap(own, key):
                yield owner

    def has(self, path: Path, key: Key) -> bool:
        """Return whether the scan found an entry at a location."""
        return any(owner.path == path for owner in self._with(key, exact=True))

    def _with(self, start: Key, *, exact: bool) -> Iterator[_Owner]:
        for at in range(bisect_left(self._keys, start), len(self._keys)):
            key = self._keys[at]
            if key[: len(start)] != start or (exact and key != start):
                return
            yield self._owners[at]


def _partitions_of(catalog: Catalog, entry: TableRecord) -> list[tuple[Key, Path]]:
    own = [key for key in locations.keys_of(entry.all_locations) if locations.ANY not in key[:2]]
    try:
        return [
            (key, entry.path)
            for location in catalog.partition_locations(entry)
            for key in locations.possible_keys(location)
            if not any(key[: len(each)] == each for each in own)
        ]
    except OF_ONE_OBJECT as error:
        message = (
            f"No credentials: '{display(entry.path)}' may have a partition at the same location, "
            f"and its partitions cannot be read: {error}. {_PARTITIONS_HINT}"
        )
        raise error_of_check(error, message) from error


class SharingCheck:
    """Finds the entries that share a table's location. Safe to share between threads."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        everywhere: bool,
        partitions: bool,
        root: str | None,
        named: Collection[Path] = (),
    ) -> None:
        """Create a check for a catalog.

        Args:
            everywhere: Whether to read the whole catalog, or the table's own namespace.
            partitions: Whether to read partitions where a user may have chosen a location.
            root: The directory of default locations, if one is configured.
            named: Namespaces of the whole catalog to read even if it does not list them.
        """
        self._catalog = catalog
        self._everywhere = everywhere
        self._has_partitions = partitions and catalog.capabilities.has_partitions
        self._root = root
        self._named = Named(frozenset(named if everywhere else ()))
        self._kept: dict[Named | None, tuple[_Index, float]] = {}
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`."""
        self._lock = threading.Lock()

    @marking_other_entries()
    def refuse_shared(self, record: TableRecord, *, chosen: bool) -> None:
        """Check that no other entry's location is, contains or is inside a table's location.

        Args:
            chosen: Whether a user who may not read other tables may have chosen the location.

        Raises:
            InvalidTableStateError: (19) one does, or an entry or a namespace cannot be read and
                may do so.
            PermissionDeniedError: (15) a namespace may not be read.
            LanceNamespaceError: Like these two, it is marked by `marking_other_entries`.
        """
        asked = time.monotonic()
        own_path = record.link_path or record.path
        own, entry_id = locations.key(record.location or "/"), record.properties.get(ENTRY_ID)
        indexes = self._indexes(record)
        is_known = any(index.has(own_path, own) for index in indexes)
        is_chosen = chosen and not self._is_default(record.path, own)
        if is_chosen and not is_known:
            indexes = self._indexes(record, begun_after=asked)
        what = f"No credentials for table '{display(record.path)}'"
        for path in (path for index in indexes for path in index.unreadable):
            if path != own_path:
                raise InvalidTableStateError(
                    f"{what}: the entry '{display(path)}' cannot be read, and may be for the same "
                    f"location. {_HINT}"
                )
        for owner in (owner for index in indexes for owner in index.overlapping(own)):
            is_same = owner.path == own_path or (entry_id and owner.entry_id == entry_id)
            if not is_same and (not owner.can_load or self._overlaps_now(owner, own)):
                raise InvalidTableStateError(
                    f"{what}: its location {record.location} overlaps that of "
                    f"'{display(owner.path)}'. Move one of them"
                )
        if is_chosen and self._has_partitions:
            self._refuse_partitions(record, indexes)

    def _refuse_partitions(self, record: TableRecord, indexes: list[_Index]) -> None:
        own_path, own = record.link_path or record.path, locations.key(record.location or "/")
        for index in indexes:
            with self._lock:
                partitions = index.partitions(self._catalog)
            for key, path in partitions:
                if path != own_path and locations.overlap(own, key):
                    raise InvalidTableStateError(
                        f"No credentials for table '{display(record.path)}': its location "
                        f"{record.location} overlaps that of a partition of '{display(path)}'. "
                        "Move one of them"
                    )

    def _indexes(self, record: TableRecord, begun_after: float | None = None) -> list[_Index]:
        """Return the catalog's entries, and then what the record names and no listing has."""
        named = Named.of(record, self._catalog.capabilities, self._root)
        known: list[_Index] = []
        if self._everywhere:
            known.append(self._index(None, begun_after))
        else:
            named = named.within([record.path[:-1]])
        for path in sorted(named.namespaces):
            if not any(path in index.namespaces for index in known):
                known.append(self._index(Named(frozenset([path])), begun_after))
        for path in sorted(named.entries):
            if not any(path in index.paths for index in known):
                known.append(self._index(Named(entries=frozenset([path])), begun_after))
        return known

    def _overlaps_now(self, owner: _Owner, own: Key) -> bool:
        try:
            found = self._catalog.load_table(owner.path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return False
        return any(locations.overlap(own, key) for key in locations.keys_of(found.all_locations))

    def _is_default(self, path: Path, own: Key) -> bool:
        if self._root is None:
            return False
        return own == locations.key(locations.default_below(self._root, path))

    def _index(self, named: Named | None, begun_after: float | None = None) -> _Index:
        """Return the entries that are named, or those of the whole catalog, read lately."""
        with self._lock:
            index, until = self._kept.get(named, (None, 0.0))
            if index is not None and (
                time.monotonic() < until if begun_after is None else index.begun > begun_after
            ):
                return index
            begun = time.monotonic()
            scan = scan_locations(
                self._catalog, named or self._named, _explain, everywhere=named is None
            )
            index, end = _Index(scan, begun), time.monotonic()
            until = end + max(_KEPT_SECONDS, _KEPT_TIMES * (end - begun))
            if len(self._kept) > _MOST_KEPT:
                self._kept = {key: kept for key, kept in self._kept.items() if kept[1] > end}
            self._kept[named] = index, until
            return index


def _explain(what: str, error: LanceNamespaceError) -> str:
    return (
        f"No credentials: {what} may hold a table at the same location, and cannot be read: "
        f"{error}. {_HINT}"
    )
