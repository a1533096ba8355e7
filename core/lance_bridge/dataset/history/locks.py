"""Locks on what is being created in a table: a file that only one can make.

Lance writes a branch's first manifest, and then what makes it a branch. Of two creators that begin
with different versions, both get so far, and the one that comes second leaves its manifest in the
branch of the first. So creators of one branch take turns.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from ...storage.manifests import TableFiles, discard

logger = logging.getLogger(__name__)

WAIT = 10.0
"""Seconds until a creator gives up waiting for its turn."""
STALE = 300.0
"""Seconds after which a lock is one that its owner can not give back any more."""
_LOOK_EVERY = 0.05


@contextmanager
def held(files: TableFiles, path: str, is_done: Callable[[], bool]) -> Iterator[bool]:
    """Keep others from what the lock at ``path`` is for.

    Args:
        is_done: Whether another has done by now what the lock is wanted for.

    Yields:
        False, and no lock, where that is so.

    Raises:
        ConcurrentModificationError: (14) another holds the lock, and does not get done.
    """
    token = uuid.uuid4().bytes
    if not _acquire(files, path, token, is_done):
        yield False
        return
    try:
        yield True
    finally:
        _release(files, path, token)


def _release(files: TableFiles, path: str, token: bytes) -> None:
    """Delete the lock if it is still the own one; what was done under it stays done."""
    try:
        if files.read(path) == token:
            files.remove([path])
    except LanceNamespaceError as error:
        logger.warning("lock %s in %s stays: %s", path, files.location, error)


def _acquire(files: TableFiles, path: str, token: bytes, is_done: Callable[[], bool]) -> bool:
    until = time.monotonic() + WAIT
    while not files.put_own(path, token):
        if is_done():
            return False
        meta = files.head(path)
        if meta is not None and time.time() - meta["last_modified"].timestamp() > STALE:
            discard(files, path)
        elif time.monotonic() > until:
            raise ConcurrentModificationError(
                f"Somebody else has been creating the same for {WAIT:.0f} s, and holds the lock "
                f"{path} of the table at {files.location}: repeat it later"
            )
        else:
            time.sleep(_LOOK_EVERY)
    return True
