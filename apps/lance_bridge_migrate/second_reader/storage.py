"""List and open the files of a source for the second reader.

Local files are opened by Python. Files of other storages are read through Spark's file systems,
which have the credentials; what parses the bytes is the second reader in both cases.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError

from ..spark import files
from ..spark.session import java_class

_BLOCK = 1 << 16


class UnreachableError(Exception):
    """A storage or a file that the second reader cannot read; the message is the reason."""


@dataclass(frozen=True)
class StoredFile:
    """A file below the directory of a source.

    Attributes:
        path: The path without scheme and host, not percent-encoded.
        inside: The path relative to the source's directory.
    """

    path: str
    inside: str
    size: int

    @property
    def uri(self) -> str:
        """The URI of a file on this machine."""
        return PurePosixPath(self.path).as_uri()


class Storage:
    """The file systems of a Spark session, read without Spark's readers.

    Attributes:
        local_schemes: The schemes of URIs whose files Python opens.
    """

    local_schemes: tuple[str, ...] = ("", "file")

    def __init__(self, session: Any) -> None:
        self._session = session
        self._conf = session._jsparkSession.sessionState().newHadoopConf()

    def is_local(self, uri: str) -> bool:
        """Return whether Python can open the files of a path or URI."""
        try:
            system, path = self._system(uri)
            return str(system.makeQualified(path).toUri().getScheme()) in self.local_schemes
        except Py4JError as error:
            raise UnreachableError(_reason(error)) from error

    def open(self, uri: str) -> BinaryIO:
        """Open a file by its percent-encoded URI.

        Raises:
            UnreachableError: It cannot be read.
        """
        parts = urlsplit(uri)
        try:
            if parts.scheme in self.local_schemes:
                return Path(unquote(parts.path)).open("rb")
            path = java_class(self._session, "org.apache.hadoop.fs.Path")(
                java_class(self._session, "java.net.URI")(uri)
            )
            return io.BufferedReader(_HadoopFile(self._session, self._conf, path), _BLOCK)
        except (OSError, Py4JError) as error:
            raise UnreachableError(_reason(error)) from error

    def files_below(self, location: str) -> list[StoredFile]:
        """Return all files below a directory, or below the directories that a glob matches.

        Raises:
            UnreachableError: They cannot be listed.
        """
        try:
            system, path = self._system(location)
            if not files.is_pattern(location):
                return [*self._below(system, path)]
            found = system.globStatus(path) or ()
            return [each for status in found for each in self._below(system, status.getPath())]
        except (OSError, Py4JError) as error:
            raise UnreachableError(_reason(error)) from error

    def _system(self, location: str) -> tuple[Any, Any]:
        path = java_class(self._session, "org.apache.hadoop.fs.Path")(location)
        return path.getFileSystem(self._conf), path

    def _below(self, system: Any, path: Any) -> Iterator[StoredFile]:
        uri = system.makeQualified(path).toUri()
        root = str(uri.getPath())
        if str(uri.getScheme()) in self.local_schemes:
            yield from _local_files(root)
            return
        waiting = [] if system.isFile(path) else [path]
        while waiting:
            for status in system.listStatus(waiting.pop()):
                found = status.getPath()
                if status.isDirectory():
                    waiting.append(found)
                    continue
                name = str(found.toUri().getPath())
                yield StoredFile(name, name[len(root) :].lstrip("/"), int(status.getLen()))


def path_in(uri: str) -> str:
    """Return the path of a percent-encoded URI."""
    return unquote(urlsplit(uri).path)


def _local_files(root: str) -> Iterator[StoredFile]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                size = os.path.getsize(path)
                yield StoredFile(path, os.path.relpath(path, root), size)


def _reason(error: Exception) -> str:
    """Return the first line of an error that says something."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    text = lines[1] if len(lines) > 1 and isinstance(error, Py4JError) else "".join(lines[:1])
    return text.removeprefix(": ")[:200] or type(error).__name__


class _HadoopFile(io.RawIOBase):
    """A file of one of Hadoop's file systems, as Python reads files."""

    def __init__(self, session: Any, conf: Any, path: Any) -> None:
        super().__init__()
        system = path.getFileSystem(conf)
        self._size = int(system.getFileStatus(path).getLen())
        self._stream = system.open(path)
        self._utils = java_class(session, "org.apache.commons.io.IOUtils")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        try:
            self._stream.seek(self._at)
            found = bytes(self._utils.toByteArray(self._stream, wanted))
        except Py4JError as error:
            raise OSError(_reason(error)) from error
        buffer[:wanted] = found
        self._at += wanted
        return wanted

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
