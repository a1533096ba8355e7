"""Manifests of a table: their names, their paths, and the directories that contain them.

Source: the Lance table format, sections "Manifest" and "Manifest naming schemes".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lance_namespace.errors import InvalidTableStateError, ServiceUnavailableError
from lance_namespace_urllib3_client.models import TableVersion

from .. import locations
from ..errors import invalid
from .lance_files import LARGEST_VERSION, V2_DIGITS, VERSIONS
from .manifest_content import parse_manifest
from .store import TableFiles, TableStorage

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
