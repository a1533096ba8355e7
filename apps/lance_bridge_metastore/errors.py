"""Errors of an embedded metastore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class EmbeddedError(RuntimeError):
    """An embedded metastore could not be started, or a part of it could not be fetched."""


class ArtifactsUnavailableError(EmbeddedError):
    """The jars of a release are missing and could not be fetched."""


class MetastoreStartError(EmbeddedError):
    """The server ended, or did not respond in time; the message ends with the tail of its log."""


class DirectoryError(MetastoreStartError):
    """The directory cannot be used for the state of this metastore."""


def directory_in_use(directory: Path) -> DirectoryError:
    """Return the error for a directory that another metastore has locked."""
    return DirectoryError(
        f"Directory {directory} is in use by another metastore: stop it, or choose another "
        "directory"
    )


@contextmanager
def directory_errors(directory: Path) -> Iterator[None]:
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
