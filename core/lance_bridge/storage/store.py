"""The object store of a table: its files, reservations, deletion, and whether it has data.

Local files use the standard library; everything else uses obstore, the store that Lance is built
on, with the same options.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    UnknownConfigurationKeyError,
)
from obstore.exceptions import PermissionDeniedError as StorePermissionDenied
from obstore.exceptions import UnauthenticatedError as StoreUnauthenticated
from obstore.store import LocalStore, from_url

from .. import locations
from ..errors import unsupported
from ..lance_texts import cut_message, is_access_denied, is_caller_unknown
from .deletion import (
    LocalLocation,
    Location,
    RemoteLocation,
    is_directory,
    raise_unless_deleted,
    remove_if_empty,
)
from .lance_format import MARK_FILE, RESERVED_FILE, VERSIONS, LocationFiles

# -- store -----------------------------------------------------------------------------------------


_CLIENT_OPTIONS = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type",
    "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host",
    "proxy_url", "timeout", "user_agent",
}  # fmt: skip
_DEFAULT_CLIENT: dict[str, Any] = {"connect_timeout": "5s", "timeout": "30s"}
_RETRY: dict[str, Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
_RESERVE_ATTEMPTS = 10
_ENVIRONMENT = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE", "abfss": "AZURE"}
"""The prefix of a store's variables, by the scheme of its URIs."""
_GOOGLE_TOKEN = "google_storage_token"
"""Lance's option for a vended token; obstore takes tokens only from a function."""
_UNKNOWN_KEY = re.compile(r"Configuration key: '([^']+)' is not valid")


class TableStorage:
    """Lists and deletes the files of tables, with the storage options of one namespace.

    Every method takes a location in any spelling, and raises PermissionDenied (15),
    Unauthenticated (16), ServiceUnavailable (17) or InvalidInput (13: bad options) if the
    storage does not respond: a negative result always comes from the storage itself.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def has_dataset(self, location: str) -> bool:
        """Return whether a Lance dataset with at least one version is at ``location``."""
        return any(name.endswith(".manifest") for name in self.names(location, VERSIONS))

    def is_occupied(self, location: str) -> bool:
        """Return whether any file is at or under ``location``."""
        return next(self.names(location), None) is not None

    def reserve(self, location: str) -> list[str] | None:
        """Write a file that keeps the location from being allocated to another table.

        Returns:
            The local directories that were created for it, innermost first, for :meth:`release`;
            None if the file exists already.
        """
        with store_errors(location):
            directory = _local_path(location)
            if directory is None:
                return [] if _put_reserved(self.store_at(location)) else None
            created = [str(path) for path in (directory, *directory.parents) if not path.exists()]
            return created if _make_reserved(directory) else None

    def release(self, location: str, created: Sequence[str]) -> None:
        """Undo :meth:`reserve`, except for directories that are now in use.

        Safe to call while other clients reserve and release the same location.
        """
        with store_errors(location):
            directory = _local_path(location)
            if directory is None:
                obstore.delete(self.store_at(location), RESERVED_FILE)
                return
            (directory / RESERVED_FILE).unlink(missing_ok=True)
            for path in map(Path, created):
                remove_if_empty(path)

    def files_of_table(self, location: str) -> LocationFiles:
        """Return which files inside ``location`` are the table's, and which are not.

        Raises:
            InvalidTableStateError: (19) a manifest cannot be read.
        """
        with store_errors(location):
            return self._location(location).files()

    def delete_table(self, location: str, listed: LocationFiles | None = None) -> Sequence[str]:
        """Delete the files of the table inside ``location``; see `lance_format`.

        Other files are kept, logged and returned. The directory is removed if it is then empty.
        Safe to repeat.

        Args:
            listed: The result of `files_of_table`; no other files are deleted. None lists them now.

        Raises:
            InvalidTableStateError: (19) as `files_of_table`; nothing is deleted.
        """
        with store_errors(location):
            return self._location(location).delete_table(listed)

    def _location(self, location: str) -> Location:
        directory = _local_path(location)
        if directory is None:
            return RemoteLocation(locations.for_lance(location), self.store_at(location))
        return LocalLocation(directory)

    def names(self, location: str, inside: str = "") -> Iterator[str]:
        """Yield the paths of all files under a directory of the location, relative to it."""
        with store_errors(location):
            directory = _local_path(location)
            if directory is None:
                for batch in obstore.list(self.store_at(location), prefix=inside or None):
                    yield from (meta["path"] for meta in batch)
            else:
                yield from _local_names(directory / inside)

    def sizes(self, location: str, inside: str) -> dict[str, int]:
        """Return the bytes of all files under a directory of the location, by relative path."""
        with store_errors(location):
            directory = _local_path(location)
            if directory is None:
                batches = obstore.list(self.store_at(location), prefix=inside)
                return {meta["path"]: meta["size"] for batch in batches for meta in batch}
            names = [f"{inside}/{name}" for name in _local_names(directory / inside)]
            return {name: (directory / name).stat().st_size for name in names}

    def store_at(self, location: str) -> Any:
        """Return an obstore client for ``location``, with this namespace's options.

        Its calls raise obstore's own errors: make them inside :func:`store_errors`.
        """
        uri = locations.for_lance(location)
        if not locations.is_supported(uri):
            raise UnsupportedOperationError(
                f"Files at {uri} can be read and written by Lance, but lance-bridge cannot list or "
                "delete them: the operation works on a local path, s3://, gs://, az:// and abfss://"
            )
        client = {**_DEFAULT_CLIENT, **_client_of_environment(uri)}
        config = {}
        for option, value in self.options.items():
            plain = option.lower().removeprefix("aws_").removeprefix("azure_")
            if plain in _CLIENT_OPTIONS:
                client[plain] = value
            else:
                config[option] = value
        token = config.pop(_GOOGLE_TOKEN, None)
        bearer = (
            {"credential_provider": lambda: {"token": token, "expires_at": None}} if token else {}
        )
        while True:
            try:
                return from_url(  # type: ignore[call-overload]  # plain strings, not the TypedDicts
                    uri, config=config, client_options=client, retry_config=_RETRY, **bearer
                )
            except UnknownConfigurationKeyError as error:
                # The store does not know options of Lance, such as expires_at_millis.
                found = _UNKNOWN_KEY.search(str(error))
                if found is None or config.pop(found[1], None) is None:
                    raise
            except BaseError as error:
                raise InvalidInputError(
                    f"The storage.* properties do not fit {uri}: {_first_line(error)}"
                ) from error


def _client_of_environment(uri: str) -> dict[str, str]:
    """Return the client's options that the environment has for a store, such as AWS_ALLOW_HTTP.

    obstore reads them, but not if it gets any option of the client.
    """
    prefix = _ENVIRONMENT.get(uri.partition(":")[0])
    if prefix is None:
        return {}
    names = {each: os.environ.get(f"{prefix}_{each.upper()}") for each in _CLIENT_OPTIONS}
    return {name: value for name, value in names.items() if value}


def _local_path(location: str) -> Path | None:
    path = locations.for_lance(location)
    return Path(path) if path.startswith("/") else None


def _put_reserved(store: Any) -> bool:
    """Create the file that reserves a location; return False if it exists."""
    try:
        obstore.put(store, RESERVED_FILE, b"", mode="create")
    except AlreadyExistsError:
        return False
    except NotImplementedError:  # the store has no conditional writes
        obstore.put(store, RESERVED_FILE, b"")
    return True


def _make_reserved(directory: Path) -> bool:
    """Create a local directory with the file that reserves it; return False if that exists.

    Another client that releases the same location may remove the directory after any step.
    """
    reservation = directory / RESERVED_FILE
    for attempts_left in reversed(range(_RESERVE_ATTEMPTS)):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            reservation.touch(exist_ok=False)
        except (FileNotFoundError, FileExistsError):
            if reservation.exists():
                return False
            if not attempts_left:
                raise
        else:
            break
    return True


def _local_names(directory: Path) -> Iterator[str]:
    found = is_directory(directory)
    if found is None:
        return
    if not found:
        yield directory.name
        return
    for parent, _, files in os.walk(directory, onerror=raise_unless_deleted):
        for name in files:
            yield str(Path(parent, name).relative_to(directory))


@contextmanager
def store_errors(location: str) -> Iterator[None]:
    """Translate the errors of a store into those of this library, which name the location."""
    uri = locations.for_lance(location)
    try:
        yield
    except UnknownConfigurationKeyError as error:
        raise InvalidInputError(f"A storage.* property does not fit {uri}") from error
    except (BaseError, OSError) as error:
        raise _to_namespace_error(error, uri) from error


def _to_namespace_error(error: Exception, uri: str) -> LanceNamespaceError:
    # obstore reports a refused listing only in the error's text.
    text = str(error) if isinstance(error, BaseError) else ""
    if isinstance(error, StoreUnauthenticated) or is_caller_unknown(text):
        return UnauthenticatedError(
            f"Storage did not accept the credentials for {uri}: check the storage.* properties"
        )
    if isinstance(error, StorePermissionDenied | PermissionError) or is_access_denied(text):
        return PermissionDeniedError(f"Storage refused access to {uri}")
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return InvalidInputError(f"A name is longer than the file system of {uri} takes")
    return ServiceUnavailableError(
        f"Storage at {uri} could not be used ({_first_line(error)}): check that it exists and can "
        "be reached, and the storage.* properties"
    )


def _first_line(error: BaseException) -> str:
    # A store's message continues with a dump of its request, which may hold signed headers.
    return cut_message(str(error).split("Debug source", 1)[0])


# -- files of a table ------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_CHUNK = 8 * 1024 * 1024


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


# -- presence of data ------------------------------------------------------------------------------
# "Nothing was found" has several causes: a table may be declared, its files may be lost, or its
# storage may be out of reach. Each state but UNDECIDED needs evidence of its own.


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
