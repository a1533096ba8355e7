"""List, rename and delete directories in Spark's file systems.

Functions that take a session raise UnsupportedOperation (0) for Spark Connect, and
ServiceUnavailable (17) if the file system fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import ServiceUnavailableError
from py4j.protocol import Py4JJavaError

from lance_bridge.errors import invalid, unsupported

from .session import java_class, spark_errors

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_GLOB_CHARACTERS = re.compile(r"[*?{}\[\]\\]")
SKIPPING_OPTIONS = ("ignoreMissingFiles", "ignoreCorruptFiles")
"""Options of tables and of readers with which Spark omits rows without an error."""
HIDDEN = re.compile(r"\.|_(?!.*=)")
"""Names that Spark ignores by convention."""

_NO_FILE = "java.io.FileNotFoundException"

Listing = dict[str, int]
"""The size of each file, by its path relative to the directory."""


@dataclass(frozen=True)
class Size:
    """The number of files below a directory, and their bytes."""

    files: int
    bytes: int


def require_files(spark: Any) -> None:
    """Raise UnsupportedOperation (0) for Spark Connect, which gives no access to file systems."""
    if getattr(spark, "_jvm", None) is None:
        raise unsupported(
            "This needs the file systems of Spark's driver, which Spark Connect lacks: use a "
            "session in this process"
        )


def require_absolute(directory: str) -> None:
    """Raise InvalidInput (13) for a relative path, which differs between processes."""
    if _ABSOLUTE.match(directory) is None:
        raise invalid(f"Directory {directory!r} is relative: give an absolute path or a URI")


def listing(spark: Any, directory: str) -> Listing | None:
    """Return all files below a directory, or None if it does not exist."""
    with _file_system(spark, directory, f"{directory} cannot be read") as (system, path):
        if not system.exists(path):
            return None
        root = system.getFileStatus(path).getPath().toUri().getPath()
        found: Listing = {}
        files = system.listFiles(path, True)
        while files.hasNext():
            each = files.next()
            found[each.getPath().toUri().getPath()[len(root) :].lstrip("/")] = each.getLen()
        return found


def size_of(spark: Any, directory: str) -> Size | None:
    """Return the size of a path, or of all that a glob matches, or None if none exists."""
    with _file_system(spark, directory, f"{directory} cannot be read") as (system, path):
        found = _size_at(system, path)
        if found is not None or not is_pattern(directory):
            return found
        sizes = [_size_at(system, each.getPath()) for each in system.globStatus(path) or ()]
        existing = [each for each in sizes if each is not None]
        if not existing:
            return None
        return Size(sum(each.files for each in existing), sum(each.bytes for each in existing))


def _size_at(system: Any, path: Any) -> Size | None:
    try:
        found = system.getContentSummary(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == _NO_FILE:
            return None
        raise
    return Size(int(found.getFileCount()), int(found.getLength()))


def is_pattern(path: str) -> bool:
    """Return whether a path contains glob characters."""
    return _GLOB_CHARACTERS.search(path) is not None


def first_name(spark: Any, directory: str, pattern: str, *, is_directory: bool) -> str | None:
    """Return the first name of a directory, or of a file, in a directory, without hidden ones."""
    for each in matches(spark, directory, pattern):
        name = str(each.getPath().getName())
        if each.isDirectory() == is_directory and not HIDDEN.match(name):
            return name
    return None


def matches(spark: Any, directory: str, pattern: str) -> Any:
    """Return the statuses of the paths that match a glob in a directory, or in all of its glob."""
    with _file_system(spark, directory, f"{directory} cannot be read") as (system, path):
        if system.isFile(path):  # below a file, some file systems raise an error
            return ()
        return system.globStatus(_path(spark, directory, pattern)) or ()


def list_plain_subdirectories(spark: Any, directory: str, partitions: int) -> list[str]:
    """Return the paths in sub-directories that are neither partitions nor hidden.

    Returns nothing if the directory's name contains glob characters.

    Args:
        partitions: The number of directory levels that are partitions, whatever their names.
    """
    require_files(spark)
    if is_pattern(directory):
        return []
    with _file_system(spark, directory, f"{directory} cannot be read") as (system, _):
        pattern = _path(spark, directory, "/".join("*" * (partitions + 2)))
        found = [each.getPath() for each in system.globStatus(pattern) or []]
        return [
            each.toUri().getPath()
            for each in found
            if not any(HIDDEN.match(name) for name in (each.getName(), each.getParent().getName()))
            and "=" not in each.getParent().getName()
        ]


def rename(spark: Any, directory: str, to: str) -> bool:
    """Rename a directory; return False if the new name already exists."""
    with _file_system(spark, directory, f"{directory} cannot be renamed to {to}") as (system, path):
        target = _path(spark, to)
        if system.exists(target):
            return False
        is_renamed = bool(system.rename(path, target))
        # HDFS moves it into the target if that was created concurrently.
        inside = _path(spark, to, path.getName())
        if is_renamed and system.exists(inside):
            system.rename(inside, path)
            return False
        if is_renamed or system.exists(target):
            return is_renamed
    raise ServiceUnavailableError(f"{directory} cannot be renamed to {to}: try again")


def delete(spark: Any, directory: str) -> None:
    """Delete a directory with its content, if it exists."""
    with _file_system(spark, directory, f"{directory} cannot be deleted") as (system, path):
        system.delete(path, True)


def _path(spark: Any, *names: str) -> Any:
    return java_class(spark, "org.apache.hadoop.fs.Path")(*names)


@contextmanager
def _file_system(spark: Any, directory: str, failed: str) -> Iterator[tuple[Any, Any]]:
    """Yield a directory's file system and path; error messages start with `failed`."""
    require_files(spark)
    with spark_errors(failed):
        path = _path(spark, directory)
        yield path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path
