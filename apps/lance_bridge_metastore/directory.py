"""The directory of an embedded metastore: used by one at a time, and by none that cannot write."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import MetastoreStartError


class DirectoryError(MetastoreStartError):
    """The directory is no place for the state of this metastore."""


class Claim:
    """Holds a directory for one metastore, from its start to its end."""

    def __init__(self) -> None:
        self._lock: IO[bytes] | None = None

    def take(self, directory: Path) -> None:
        """Make the directory and hold it; raise DirectoryError where that cannot be."""
        if self._lock is not None:
            return
        with usable(directory):
            directory.mkdir(parents=True, exist_ok=True)
            lock = (directory / "lock").open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise in_use(directory) from None
        self._lock = lock

    def give_up(self) -> None:
        """Let another metastore have the directory."""
        if self._lock is not None:
            # Closing alone would leave it to processes that were forked meanwhile.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None


def in_use(directory: Path) -> DirectoryError:
    """Return the error for a directory that another metastore holds."""
    return DirectoryError(
        f"Directory {directory} is in use by another metastore: stop that one, or name another"
    )


@contextmanager
def usable(directory: Path) -> Iterator[None]:
    """Turn errors of the file system into DirectoryError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise DirectoryError(
            f"Directory {directory} cannot be used: {error.filename} is not a directory"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise DirectoryError(f"Directory {directory} cannot be used: {reason}") from error
