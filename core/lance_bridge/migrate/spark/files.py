"""Directories as Spark's own file systems see them: looked at, and deleted."""

from __future__ import annotations

import re
from typing import Any

from ...errors import invalid, unsupported
from .session import told_by_spark

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")

Listing = dict[str, int]
"""Bytes of each file, by its path relative to the directory."""


def require_files(spark: Any) -> None:
    """Raise UnsupportedOperation (0) for a session of Spark Connect, which has no file system."""
    if getattr(spark, "_jvm", None) is None:
        raise unsupported(
            "This needs the file systems of Spark's driver, which Spark Connect has not: use a "
            "session in this process"
        )


def require_absolute(directory: str) -> None:
    """Raise InvalidInput (13) for a directory that would be another one for another process."""
    if _ABSOLUTE.match(directory) is None:
        raise invalid(f"Directory {directory!r} is relative: give an absolute path or a URI")


def listing(spark: Any, directory: str) -> Listing | None:
    """Return all files below a directory; None where nothing is there.

    Raises:
        UnsupportedOperationError: (0) the session is one of Spark Connect.
        ServiceUnavailableError: (17)
    """
    require_files(spark)
    with told_by_spark(f"{directory} cannot be looked at"):
        system, path = _at(spark, directory)
        if not system.exists(path):
            return None
        root = system.getFileStatus(path).getPath().toUri().getPath()
        found: Listing = {}
        files = system.listFiles(path, True)
        while files.hasNext():
            each = files.next()
            found[each.getPath().toUri().getPath()[len(root) :].lstrip("/")] = each.getLen()
        return found


def delete(spark: Any, directory: str) -> None:
    """Delete a directory with all that is in it; one that is not there is none to delete.

    Raises:
        UnsupportedOperationError: (0) the session is one of Spark Connect.
        ServiceUnavailableError: (17)
    """
    require_files(spark)
    with told_by_spark(f"{directory} cannot be deleted"):
        system, path = _at(spark, directory)
        system.delete(path, True)


def _at(spark: Any, directory: str) -> tuple[Any, Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(directory)
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path
