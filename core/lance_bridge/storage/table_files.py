"""The files of a table in its object store: list, read, write and delete them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import obstore
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore

from .. import locations
from ..errors import unsupported
from .local_files import is_directory
from .store import TableStorage, store_errors

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
