"""Manifests of a table: their names and paths, and the files of a table in its object store.

Source: the Lance table format, sections "Manifest" and "Manifest naming schemes".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import obstore
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from lance_namespace_urllib3_client.models import TableVersion
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore

from .. import location as locations
from ..errors import invalid, unsupported
from .local_files import is_directory
from .manifest_content import parse_manifest
from .store import TableStorage, store_errors
from .table_files import LARGEST_VERSION, V2_DIGITS, VERSIONS

logger = logging.getLogger(__name__)

MAIN = "main"
"""The name of the branch that every table has."""

_ENDING = ".manifest"
_CHUNK = 8 * 1024 * 1024


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


class TableFiles:
    """The files under a table's location, by paths relative to it.

    Every method raises PermissionDenied (15), Unauthenticated (16), ServiceUnavailable (17) or
    InvalidInput (13: bad options) if the storage does not respond.
    """

    def __init__(self, storage: TableStorage, location: str) -> None:
        self.storage = storage
        self.location = location

    def list(self, inside: str) -> list[Any]:
        """Return obstore's metadata of each file under a directory, which need not exist."""
        with store_errors(self.location):
            store = self._open()
            if store is None:
                return []
            return [meta for batch in obstore.list(store, prefix=inside) for meta in batch]

    def head(self, path: str) -> Any | None:
        """Return obstore's metadata of a file, or None if it does not exist."""
        with store_errors(self.location):
            store = self._open()
            try:
                return store and obstore.head(store, path)
            except (FileNotFoundError, NotFoundError):
                return None

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None if it does not exist."""
        with store_errors(self.location):
            store = self._open()
            try:
                return store and bytes(obstore.get(store, path).bytes())
            except (FileNotFoundError, NotFoundError):
                return None

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a new file; return False, and change nothing, if it exists.

        Raises:
            UnsupportedOperationError: (0) the store is configured without conditional writes.
        """
        with store_errors(self.location):
            try:
                obstore.put(self._open_existing(), path, data, mode="create")
            except AlreadyExistsError:
                return False
            except NotImplementedError as error:
                raise unsupported(
                    f"The storage at {self.location} cannot write a file only if it does not "
                    "exist: check the property storage.aws_conditional_put"
                ) from error
            return True

    def put_own(self, path: str, data: bytes) -> bool:
        """Write a new file, and return whether the file then has this data.

        No other client writes the same data, so a lost reply makes no difference.
        """
        try:
            if self.put_new(path, data):
                return True
        except ServiceUnavailableError:
            # Perhaps only the reply was lost.
            if self.read(path) != data:
                raise
            return True
        # The store may have retried a write whose reply was lost, and found its own file.
        return self.read(path) == data

    def copy_from(self, source: TableFiles, path: str) -> None:
        """Copy a file from another location, or replace it; only the complete copy is visible."""
        with store_errors(f"{source.location} and {self.location}"):
            writer = obstore.open_writer(self._open_existing(), path)
            for chunk in obstore.get(source._open_existing(), path).stream(min_chunk_size=_CHUNK):
                writer.write(chunk)
            writer.close()

    def put_over(self, path: str, data: bytes) -> None:
        """Write a file, or replace it."""
        with store_errors(self.location):
            obstore.put(self._open_existing(), path, data, mode="overwrite")

    def remove(self, paths: Sequence[str]) -> None:
        """Delete files, which need not exist."""
        with store_errors(self.location):
            store = self._open()
            if store is None:
                return
            try:
                obstore.delete(store, list(paths))
            except (FileNotFoundError, NotFoundError):
                for path in paths:
                    _remove_one(store, path)

    @cached_property
    def _remote(self) -> Any:
        """One client for all calls, because each new client opens new connections."""
        return self.storage.store_at(self.location)

    def _open(self) -> Any | None:
        """Return the store at the location, or None if a local directory does not exist."""
        uri = locations.for_lance(self.location)
        if not locations.is_local(uri):
            return self._remote
        if not is_directory(uri):
            return None
        try:
            return LocalStore(uri)
        except BaseError:
            if is_directory(uri):
                raise
            return None  # removed concurrently

    def _open_existing(self) -> Any:
        store = self._open()
        if store is None:
            raise FileNotFoundError(f"There is no directory {self.location}")
        return store


def _remove_one(store: Any, path: str) -> None:
    try:
        obstore.delete(store, path)
    except (FileNotFoundError, NotFoundError):
        logger.debug("%s was deleted already", path)


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


def discard(files: TableFiles, path: str) -> bool:
    """Delete a file that is no longer used, and return whether it is known to be gone.

    A failure is logged: the file does no harm.
    """
    try:
        files.remove([path])
    except LanceNamespaceError as error:
        logger.warning("%s in %s remains: %s", path, files.location, error)
        return False
    return True


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
