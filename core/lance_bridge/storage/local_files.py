"""Local files and directories, which other clients may delete concurrently."""

from __future__ import annotations

import stat
from pathlib import Path


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
