"""Which versions of tables an operation read and created, for audit logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class VersionChange:
    """The latest version before an operation's first commit and after its last one.

    They are equal if the operation had nothing to commit.
    """

    before: int
    after: int


class VersionChanges(dict[tuple[str, ...], VersionChange]):
    """Changes by the path of the table, as they are committed."""

    read: int | None = None
    """The version that was read last."""

    def add(self, path: tuple[str, ...], read: int, after: int) -> None:
        """Add a commit.

        A version that was committed replaces the one numbered before it, whichever the writer read.

        Args:
            read: The version that the writer read.
            after: The version that it committed, or ``read`` if none.
        """
        before = after - 1 if after > read else after
        known = self.get(path)
        if known is not None and known.before < known.after:
            before, after = known.before, max(known.after, after)
        self[path] = VersionChange(before, after)


CHANGES: ContextVar[VersionChanges | None] = ContextVar("lance_bridge_changes", default=None)
"""The changes that this thread's commits are added to; None if they are not recorded."""


@contextmanager
def record_version_changes() -> Iterator[VersionChanges]:
    """Yield the changes that this thread commits in the block. Recording them reads nothing."""
    changes = VersionChanges()
    token = CHANGES.set(changes)
    try:
        yield changes
    finally:
        CHANGES.reset(token)
