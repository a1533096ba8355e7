"""Whether the data of a table exists: one decision, from what the catalog and the storage say.

"Nothing was found" has several causes: a table may be declared, its files may be lost, or its
storage may be out of reach. Each state but UNDECIDED needs evidence of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError

from .. import locations
from .deletion import is_directory
from .lance_files import MARK_FILE, RESERVED_FILE, VERSIONS
from .store import TableStorage, store_errors

_OF_LATER_VERSIONS = re.compile(
    r"_transactions/[1-9]\d*-.*\.txn"  # begins with the version that the transaction read
    r"|(?:_deletions|_indices|_refs|tree)/.*"
    r"|_versions/latest_version_hint\.json"
    r"|_versions/\d+\.manifest-foreign.*"
    r"|_latest\.manifest"
)
"""Files that no first write leaves behind if it fails: the table had a version."""


class DataState(str, Enum):
    """The state of a table's data."""

    DECLARED = "declared"
    """It was never written."""
    PRESENT = "present"
    """There is a version."""
    MISSING = "missing"
    """There was something, and it is gone."""
    UNREACHABLE = "unreachable"
    """The storage does not say."""
    UNDECIDED = "undecided"
    """There is no version, and nothing says whether there ever was one."""


@dataclass(frozen=True)
class Claims:
    """What the catalog says of a table's data.

    Attributes:
        version: The latest version that the catalog holds; None if the storage manages the table.
        staged: The file name of that version's manifest until it has its final name.
        was_reserved: Whether its location held `RESERVED_FILE` when the entry was created.
        is_registered: Whether the entry was created for data that existed.
        has_directory: Whether the catalog created the location's directory, if that is local.
    """

    version: int | None = None
    staged: str = ""
    was_reserved: bool = False
    is_registered: bool = False
    has_directory: bool = False


@dataclass(frozen=True)
class Presence:
    """The state of a table's data, and why.

    Attributes:
        reason: What was found, for messages; it continues "There is no version at LOCATION".
        error: The storage's error if the state is UNREACHABLE.
        has_files: Whether the location has files other than `RESERVED_FILE` and `MARK_FILE`.
    """

    state: DataState
    reason: str = ""
    error: LanceNamespaceError | None = None
    has_files: bool = False

    @classmethod
    def unreachable(cls, error: LanceNamespaceError) -> Presence:
        """Return the presence of data whose storage cannot be used."""
        return cls(DataState.UNREACHABLE, str(error), error)


def find_presence(storage: TableStorage, location: str, claims: Claims) -> Presence:
    """Decide the state of the data at a location. Lists once if it is present."""
    try:
        return _decide(storage, location, claims)
    except LanceNamespaceError as error:
        return Presence.unreachable(error)


def _decide(storage: TableStorage, location: str, claims: Claims) -> Presence:
    if _has_version(storage, location, claims):
        return Presence(DataState.PRESENT)
    found = _Found.of(storage.names(location))
    reason = _reason_to_expect_data(claims, location, found)
    if not found.is_reserved and not found.has_files and (reason or claims.was_reserved):
        _require_parent(location)
    if reason:
        # What gives the reason may be newer than the first look: version 1 was written in between.
        if _has_version(storage, location, claims):
            return Presence(DataState.PRESENT)
        return Presence(DataState.MISSING, reason, has_files=found.has_files)
    if found.is_reserved or claims.version == 0:
        return Presence(DataState.DECLARED, has_files=found.has_files)
    if claims.was_reserved:
        reason = f"also {RESERVED_FILE} is gone, which was written there before the entry"
        return Presence(DataState.MISSING, reason, has_files=found.has_files)
    return Presence(DataState.UNDECIDED, has_files=found.has_files)


def _has_version(storage: TableStorage, location: str, claims: Claims) -> bool:
    if claims.version == 0:
        return False  # manifests that are found were written without the catalog
    return any(
        name.endswith(".manifest") or (bool(claims.staged) and name.endswith(claims.staged))
        for name in storage.names(location, VERSIONS)
    )


@dataclass(frozen=True)
class _Found:
    """The files at a location without versions."""

    is_reserved: bool = False
    has_files: bool = False
    had_version: bool = False

    @classmethod
    def of(cls, names: Iterator[str]) -> _Found:
        is_reserved = has_files = False
        for name in names:
            if name == RESERVED_FILE:
                is_reserved = True
                continue
            if name == MARK_FILE:
                continue  # a declared table can have it
            has_files = True
            if _OF_LATER_VERSIONS.fullmatch(name):
                return cls(is_reserved, has_files, had_version=True)
        return cls(is_reserved, has_files)


def _reason_to_expect_data(claims: Claims, location: str, found: _Found) -> str:
    """Return how it is known that a location without a version had data; empty if it is not."""
    if claims.version is not None:
        return f"but its entry in the catalog has version {claims.version}" * bool(claims.version)
    if found.had_version:
        return "but there are files that only a table with versions has"
    if found.is_reserved:
        return ""
    if claims.is_registered:
        return "but it was registered as a table that exists"
    if claims.has_directory and _is_missing_directory(location):
        return "and the directory that the catalog created for it is gone"
    return ""


def _is_missing_directory(location: str) -> bool:
    uri = locations.for_lance(location)
    with store_errors(location):
        return locations.is_local(uri) and is_directory(uri) is None


def _require_parent(location: str) -> None:
    """Raise ServiceUnavailable (17) if a local location is below a directory that is gone.

    Then more than this table is missing: the disk may not be mounted.
    """
    if not _is_missing_directory(location):
        return
    parent = Path(locations.for_lance(location)).parent
    with store_errors(location):
        if is_directory(parent):
            return
    raise ServiceUnavailableError(
        f"Storage at {locations.for_lance(location)} could not be used (there is no directory "
        f"{parent}): check that its disk is mounted, or restore that directory"
    )
