"""Deleting a table's files: those of Lance, and nothing else at their location.

Local files use the standard library, which does not follow links out of a directory; everything
else uses obstore.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import obstore
from obstore.exceptions import NotFoundError

from ..dotted_names import first_names
from . import lance_format
from .lance_format import LocationFiles


def is_directory(path: str | Path) -> bool | None:
    """Return whether a path is a directory; None if it does not exist.

    Unlike ``Path.is_dir``, it raises OSError if the path cannot be accessed.
    """
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def raise_unless_deleted(error: OSError) -> None:
    """Raise an error of ``os.walk``, unless a directory was deleted since it was listed."""
    if not isinstance(error, FileNotFoundError):
        raise error


_NAMED = 10
"""How many remaining files a message names; all are logged at DEBUG."""

logger = logging.getLogger(__name__)


class Location(ABC):
    """The directory of a table, or the prefix of its objects."""

    name: str

    def files(self) -> LocationFiles:
        """Return the table's own files and the other files.

        Raises:
            InvalidTableStateError: (19) a manifest that must be known cannot be read.
        """
        paths, others = self._list()
        return lance_format.divide(self.name, paths, self._read, others)

    def delete_table(self, listed: LocationFiles | None = None) -> Sequence[str]:
        """Delete the table's files; log and return the remaining files. Safe to repeat.

        Args:
            listed: The result of `files`. Files added later are kept, and versions among them are
                logged. None lists the files now.

        Raises:
            InvalidTableStateError: (19) as `files`; nothing is deleted.
        """
        found = listed or self.files()
        for group in found.own:
            self._delete(group)
        self._remove_empty(chain.from_iterable(found.own))
        if found.others:
            logger.warning(
                "%d entries that are not Lance's were left in %s: %s",
                len(found.others),
                self.name,
                first_names([ascii(each) for each in found.others], _NAMED),
            )
            logger.debug("left in %s: %a", self.name, found.others)
        if listed is not None:
            self._log_versions_since(listed)
        return found.others

    def _log_versions_since(self, listed: LocationFiles) -> None:
        added = {path for path in self._list_versions() if lance_format.is_manifest(path)}
        added.difference_update(listed.others)
        if added:
            logger.warning(
                "%d versions were committed to %s while its table was dropped, and are left: %s",
                len(added),
                self.name,
                ", ".join(sorted(added)[:_NAMED]),
            )

    @abstractmethod
    def _list(self) -> tuple[list[str], list[str]]:
        """Return the paths of regular files or links to them, and the paths of everything else.

        Everything else: other links, sockets, and empty directories that are not Lance's.
        """

    @abstractmethod
    def _list_versions(self) -> list[str]:
        """Return the paths in the directory of the main branch's manifests."""

    @abstractmethod
    def _read(self, path: str) -> bytes: ...

    @abstractmethod
    def _delete(self, paths: Sequence[str]) -> None: ...

    def _remove_empty(self, deleted: Iterable[str]) -> None:  # noqa: B027 - object stores have none
        """Remove empty directories of Lance and of deleted files."""


class RemoteLocation(Location):
    """Objects under a prefix."""

    def __init__(self, name: str, store: Any) -> None:
        self.name = name
        self._store = store

    def _list(self) -> tuple[list[str], list[str]]:
        return self._paths(), []

    def _list_versions(self) -> list[str]:
        return self._paths(lance_format.VERSIONS)

    def _paths(self, inside: str | None = None) -> list[str]:
        found = obstore.list(self._store, prefix=inside)
        return [meta["path"] for batch in found for meta in batch]

    def _read(self, path: str) -> bytes:
        return bytes(obstore.get(self._store, path).bytes())

    def _delete(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        try:
            obstore.delete(self._store, list(paths))
        except (FileNotFoundError, NotFoundError):
            # Some stores raise this for files that another client has deleted.
            for path in paths:
                with suppress(FileNotFoundError, NotFoundError):
                    obstore.delete(self._store, path)


class LocalLocation(Location):
    """A directory of the local file system. No link inside is followed."""

    def __init__(self, directory: Path) -> None:
        self.name = str(directory)
        self._directory = directory

    def _list(self) -> tuple[list[str], list[str]]:
        if not is_directory(self._directory):
            return [], []
        files: list[str] = []
        others: list[str] = []
        for parent, directories, names in os.walk(self._directory, onerror=raise_unless_deleted):
            here = Path(parent)
            others += [self._path(here / n) for n in directories if (here / n).is_symlink()]
            if not directories and not names and here != self._directory:
                empty = self._path(here)
                others += [] if lance_format.is_lance_directory(empty) else [empty]
            for name in names:
                path = here / name
                (files if path.is_file() else others).append(self._path(path))
        return files, others

    def _list_versions(self) -> list[str]:
        try:
            return [
                self._path(path) for path in (self._directory / lance_format.VERSIONS).iterdir()
            ]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _path(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()

    def _read(self, path: str) -> bytes:
        return (self._directory / path).read_bytes()

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            (self._directory / path).unlink(missing_ok=True)

    def _remove_empty(self, deleted: Iterable[str]) -> None:
        if not self._directory.is_dir():
            return
        emptied = {str(parent) for path in deleted for parent in PurePosixPath(path).parents}
        found = os.walk(self._directory, topdown=False, onerror=raise_unless_deleted)
        for directory in [Path(parent) for parent, _, _ in found]:
            name = self._path(directory)
            if name != "." and (name in emptied or lance_format.is_lance_directory(name)):
                remove_if_empty(directory)
        if not self._directory.is_symlink():
            remove_if_empty(self._directory)


def remove_if_empty(directory: Path) -> None:
    """Remove a local directory if it exists and is empty."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
