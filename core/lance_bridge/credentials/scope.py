"""The scope of credentials: a location's prefix in its store, and the roots that contain it.

Prefixes are compared by segments, decoded as Lance decodes them, so that neither ``t`` contains
``t2`` nor a spelling hides a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from .. import locations
from ..errors import invalid


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
