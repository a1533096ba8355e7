"""Manifests of a table: their names, paths and directories; and versions made of staged manifests.

A staged manifest is written, but not a version yet. A storage-managed table has one version per
manifest in ``_versions``. Lance commits by writing the manifest only if it does not exist, and so
does this module. Source: the Lance table format, sections "Manifest" and "Manifest naming schemes".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lance_namespace import CreateTableVersionRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    ServiceUnavailableError,
)
from lance_namespace_urllib3_client.models import CreateTableVersionEntry, TableVersion

from .. import locations
from ..catalog import Path
from ..errors import concurrent_modification, display, invalid, unsupported
from .lance_format import LARGEST_VERSION, V2_DIGITS, VERSIONS, parse_manifest, version_inside
from .store import TableFiles, TableStorage, discard

logger = logging.getLogger(__name__)

MAIN = "main"
"""The name of the branch that every table has."""

_ENDING = ".manifest"


class Scheme(str, Enum):
    """How the manifests of a table are named; one scheme per table."""

    V1 = "V1"
    V2 = "V2"

    @classmethod
    def parse(cls, text: str | None) -> Scheme | None:
        """Return the scheme that a request names. Raises InvalidInput (13)."""
        if text is None:
            return None
        try:
            return cls(text)
        except ValueError:
            raise invalid(f"naming_scheme must be V1 or V2, not {text[:60]!r}") from None


def sorting_key(version: int, *, descending: bool = False) -> str:
    """Return digits that sort like versions, or in reverse order."""
    return f"{LARGEST_VERSION - version if descending else version:0{V2_DIGITS}d}"


def name_of(version: int, scheme: Scheme) -> str:
    """Return the file name of a version's manifest."""
    if scheme is Scheme.V1:
        return f"{version}{_ENDING}"
    return sorting_key(version, descending=True) + _ENDING


def parse_name(name: str) -> tuple[int, Scheme] | None:
    """Return the version and scheme in a manifest's file name, or None for another file name.

    Staged manifests and manifests of detached versions have other file names.
    """
    digits = name.removesuffix(_ENDING)
    if digits == name or not (digits.isascii() and digits.isdigit()):
        return None
    if len(digits) == V2_DIGITS:
        return LARGEST_VERSION - int(digits), Scheme.V2
    return int(digits), Scheme.V1


@dataclass(frozen=True)
class Manifest:
    """One version in storage. ``path`` is relative to the store's root, as in Lance."""

    version: int
    scheme: Scheme
    name: str
    path: str
    size: int
    e_tag: str | None
    timestamp_millis: int

    def to_table_version(self) -> TableVersion:
        """Return the API's model of the version."""
        return TableVersion(
            version=self.version,
            manifest_path=self.path,
            manifest_size=self.size,
            e_tag=self.e_tag,
            timestamp_millis=self.timestamp_millis,
        )


class VersionDirectory:
    """The manifests of a table's main branch, or of another branch."""

    def __init__(self, files: TableFiles, branch: str | None = None) -> None:
        self.files = files
        self.inside = f"tree/{branch}/{VERSIONS}" if branch else VERSIONS

    @property
    def path(self) -> str:
        """The path of the directory, relative to the store's root, as in pylance."""
        uri = locations.for_lance(self.files.location)
        local = locations.is_local(uri)
        root = uri.strip("/") if local else "/".join(locations.key(uri)[2:])
        return f"{root}/{self.inside}"

    def list(self) -> list[Manifest]:
        """Return the manifests of all versions, the first version first.

        Raises:
            InvalidTableStateError: (19) they are named in two schemes, which Lance cannot open.
        """
        prefix = f"{self.inside}/"
        metas = self.files.list(self.inside)
        named = [(meta, meta["path"].removeprefix(prefix)) for meta in metas]
        found = [made for meta, name in named if (made := self._manifest(meta, name))]
        if len({each.scheme for each in found}) > 1:
            raise InvalidTableStateError(
                f"The manifests in {self.path} are named in two schemes: remove what is not Lance's"
            )
        return sorted(found, key=lambda each: each.version)

    def latest(self) -> Manifest | None:
        """Return the latest version's manifest, or None without versions."""
        return next(reversed(self.list()), None)

    def last_two(self) -> Sequence[Manifest] | None:
        """Return the two latest versions if that needs no full listing, or else None."""
        return None

    def find(self, version: int) -> Manifest | None:
        """Return one version's manifest, or None if it does not exist."""
        if not 0 < version <= LARGEST_VERSION:
            return None
        for scheme in (Scheme.V2, Scheme.V1):
            name = name_of(version, scheme)
            meta = self.files.head(self.within(name))
            if meta is not None:
                return self._manifest(meta, name)
        return None

    def within(self, name: str) -> str:
        """Return the path of a file in this directory, relative to the table's location."""
        return f"{self.inside}/{name}"

    def name_of_staged(self, path: str) -> str:
        """Return the file name of a staged manifest that a request names by its path.

        Raises:
            InvalidInputError: (13) it is not in this directory, or is the manifest of a version.
        """
        directory, _, name = path.rpartition("/")
        if not name or not self._is_this(directory):
            raise invalid(f"manifest_path {path[:300]!r} is not a file in {self.path}")
        if parse_name(name) is not None:
            raise invalid(f"manifest_path {path[:300]!r} is a version already, not a staged one")
        return name

    def _is_this(self, directory: str) -> bool:
        uri = locations.for_lance(self.files.location)
        if not locations.is_local(uri):
            return directory.strip("/") == self.path
        absolute = f"/{directory.lstrip('/')}"
        return locations.key(absolute) == locations.key(f"/{self.path}")

    def _manifest(self, meta: Any, name: str) -> Manifest | None:
        parsed = parse_name(name)
        return None if parsed is None else self._of(meta, *parsed, name)

    def _of(self, meta: Any, version: int, scheme: Scheme, name: str) -> Manifest:
        path, millis = f"{self.path}/{name}", int(meta["last_modified"].timestamp() * 1000)
        return Manifest(version, scheme, name, path, meta["size"], meta["e_tag"], millis)


class BaseLocations:
    """The locations of other tables whose files shallow clones use.

    A manifest never changes, so its content is cached by its path and ETag.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {}

    def of_latest(self, storage: TableStorage, location: str) -> tuple[str, ...]:
        """Return the base paths of a table's latest version.

        Lists the manifests, and reads the latest one unless it is cached. A table that Lance cannot
        open needs no files of other tables.

        Raises:
            PermissionDeniedError: (15), or another error of the storage.
            ServiceUnavailableError: (17) the latest manifest was removed while it was read.
        """
        directory = VersionDirectory(TableFiles(storage, location))
        try:
            latest = directory.latest()
            if latest is None:
                return ()
            manifest, known = (latest.path, latest.e_tag or ""), self._known.get(location)
            if known is not None and known[0] == manifest:
                return known[1]
            data = directory.files.read(directory.within(latest.name))
            if data is None:  # a later version may exist, and use files of other tables
                raise ServiceUnavailableError(
                    f"The latest manifest of {location} was removed while it was read; retry"
                )
            found = parse_manifest(data).base_paths
        except (ValueError, InvalidTableStateError) as error:
            logger.debug("%s cannot be opened: %s", location, error)
            return ()
        if latest.e_tag:
            self._known[location] = (manifest, found)
        return found


# -- versions of staged manifests ------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """A version to create, as in a request."""

    version: int
    manifest_path: str
    branch: str | None = None
    manifest_size: int | None = None
    e_tag: str | None = None
    naming_scheme: str | None = None
    metadata: Mapping[str, str] | None = None

    @classmethod
    def from_request(cls, request: CreateTableVersionRequest | CreateTableVersionEntry) -> Staged:
        """Return the version that a request is for."""
        return cls(
            request.version,
            request.manifest_path,
            request.branch,
            request.manifest_size,
            request.e_tag,
            request.naming_scheme,
            request.metadata,
        )


@dataclass(frozen=True)
class Commit:
    """A checked version that can be created: by its storage, or as a subclass defines."""

    path: Path
    """The path of the table."""
    directory: VersionDirectory
    version: int
    name: str
    """The file name of the version's manifest."""
    staged: str
    """The path of the staged manifest, relative to the table's location."""
    data: bytes
    exists: bool
    """Whether an earlier attempt of the same request succeeded."""

    def __str__(self) -> str:
        """Return the version's name for messages."""
        return f"Version {self.version} of table '{display(self.path)}'"

    def do(self) -> Manifest:
        """Create the version. Raises ConcurrentModification (14)."""
        files, path = self.directory.files, self.directory.within(self.name)
        if not self.exists and not files.put_own(path, self.data):
            raise version_conflict(self.path, self.version, self.version + 1)
        discard(files, self.staged)
        manifest = self.directory.find(self.version)
        if manifest is None:
            raise concurrent_modification(self.path)
        return manifest


def prepare_commit(table: Path, directory: VersionDirectory, staged: Staged) -> Commit:
    """Check all that can be checked before a version is created by the storage.

    Raises:
        ConcurrentModificationError: (14) the version exists, or is not the next one.
        InvalidInputError: (13) the manifest does not exist, is of another version, or would be
            named in another scheme than those of the table.
        UnsupportedOperationError: (0) metadata is given, which a manifest cannot hold.
    """
    refuse_metadata(table, staged)
    wanted = Scheme.parse(staged.naming_scheme)
    staged_name = directory.name_of_staged(staged.manifest_path)
    present = directory.list()
    latest = present[-1] if present else None
    scheme = latest.scheme if latest else wanted or Scheme.V2
    require_scheme(table, staged, scheme)
    path = directory.within(staged_name)
    data = directory.files.read(path)
    name = name_of(staged.version, scheme)
    exists = any(each.version == staged.version for each in present)
    expected = latest.version + 1 if latest else 1
    if staged.version != expected:
        # A repeated call whose first reply was lost is not a conflict.
        is_same = exists and data == directory.files.read(directory.within(name))
        if data is None or not is_same:
            raise version_conflict(table, staged.version, expected)
    checked = require_content(directory, path, staged, data)
    return Commit(table, directory, staged.version, name, path, checked, exists)


def refuse_metadata(table: Path, staged: Staged) -> None:
    """Raise UnsupportedOperation (0) for a version with metadata."""
    if staged.metadata:
        raise unsupported(
            f"Metadata of a version of '{display(table)}' cannot be kept: a manifest has no "
            "place for it. Leave `metadata` out"
        )


def require_scheme(table: Path, staged: Staged, scheme: Scheme) -> None:
    """Raise InvalidInput (13) for a manifest in another naming scheme than those of its table."""
    if Scheme.parse(staged.naming_scheme) not in (None, scheme):
        raise invalid(
            f"The manifests of '{display(table)}' are named in scheme {scheme.value}: one in "
            f"scheme {staged.naming_scheme} would make the table unreadable"
        )


def require_content(
    directory: VersionDirectory, path: str, staged: Staged, data: bytes | None
) -> bytes:
    """Return the content of a staged manifest.

    Raises:
        InvalidInputError: (13) it does not exist, or differs from the request.
    """
    if data is None:
        raise invalid(f"There is no staged manifest at {staged.manifest_path[:300]!r}")
    what = f"The manifest at {staged.manifest_path[:300]!r}"
    found = version_inside(data)
    if found != staged.version:
        is_of = "not a Lance manifest" if found is None else f"of version {found}"
        raise invalid(f"{what} is {is_of}, and not of version {staged.version}")
    if staged.manifest_size not in (None, len(data)):
        raise invalid(f"{what} has {len(data)} bytes, not {staged.manifest_size}")
    if staged.e_tag is not None:
        meta = directory.files.head(path)
        if meta is None or _normalize_e_tag(meta["e_tag"]) != _normalize_e_tag(staged.e_tag):
            raise invalid(f"{what} does not have the request's e_tag")
    return data


def _normalize_e_tag(e_tag: str | None) -> str:
    """Return an ETag without the prefix and quotes that some stores add."""
    return (e_tag or "").removeprefix("W/").strip('"')


def version_conflict(table: Path, version: int, expected: int) -> ConcurrentModificationError:
    """Return the error for a version that is not the next one."""
    return ConcurrentModificationError(
        f"Version {version} of table '{display(table)}' cannot be created: the next version "
        f"is {expected}"
    )
