"""Versions of datasets: which one a transaction made, and which ones a thread commits.

Has workarounds for gaps of pylance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import lance

from .errors import LANCE_ERRORS, panics_as_errors, translate_lance_errors

_KEEPS_ROWS = (
    lance.LanceOperation.CreateIndex,
    lance.LanceOperation.Rewrite,
    lance.LanceOperation.UpdateConfig,
)


def latest_version(dataset: lance.LanceDataset) -> int:
    """Return the latest version, or 0 if it cannot be read."""
    try:
        with panics_as_errors():
            return int(dataset.latest_version)
    except LANCE_ERRORS:
        return 0


def manifest_message(dataset: lance.LanceDataset) -> bytes:
    """Return the message of a dataset's manifest as it is in memory, without reading its file.

    pylance has it for pickling only. `read_transaction` reads the file, which another writer may
    have replaced.
    """
    return bytes(dataset._ds.serialized_manifest())


def transaction_at(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Return the transaction that made a version, or None if it is not recorded.

    pylance cannot read a compaction that moved an index (its `RewrittenIndex` lacks an argument):
    such a transaction is returned without its identifier and fragments.
    """
    try:
        return dataset.read_transaction(version)
    except TypeError:
        operation = lance.LanceOperation.Rewrite(groups=[], rewritten_indices=[])
        return lance.Transaction(read_version=version - 1, operation=operation, uuid="")


def keeps_rows(operation: object) -> bool:
    """Return whether an operation creates a version with the same rows as the previous one.

    True for indexes, compactions and settings.
    """
    # pylance has no class for the first step of a compaction.
    begins_rewrite = type(operation) is lance.LanceOperation.BaseOperation
    return begins_rewrite or isinstance(operation, _KEEPS_ROWS)


def find_commit(
    dataset: lance.LanceDataset, is_own: Callable[[lance.Transaction], bool], after: int
) -> int | None:
    """Return the version that a transaction made, or None if it made none.

    Args:
        dataset: Any version of the branch.
        is_own: Returns whether a transaction is the one to find.
        after: The version that the transaction read; later ones are searched.

    Raises:
        ServiceUnavailableError: (17) a later version cannot be read: it may be the one.
        InternalError: (18) likewise, for another reason.
    """
    with translate_lance_errors(f"The versions of {dataset.uri} could not be read"):
        for version in range(after + 1, int(dataset.latest_version) + 1):
            transaction = transaction_at(dataset, version)
            if transaction is not None and is_own(transaction):
                return version
    return None


# -- versions that a thread commits ----------------------------------------------------------------


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
