"""Commits to several tables, all or nothing: ``specs/managed.md`` has the protocol and its proof.

The record of the batch is written first; then each entry gets its next version, which depends on
the batch; then the outcome is written, which is the commit of all; then each entry is finished.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from ..errors import OutcomeUnknownError, concurrent_modification
from ..storage.manifests import Manifest
from . import compare_and_set
from .batch_records import BatchRecord, Outcome
from .batch_recovery import finish_entries
from .commits import CatalogCommit

logger = logging.getLogger(__name__)


def commit(commits: Sequence[CatalogCommit]) -> list[Manifest]:
    """Commit versions of several tables, or none; return their manifests in the same order.

    Versions that an earlier attempt of the same request committed are kept.

    Args:
        commits: At most one for each table, checked by `commits.prepare`.

    Raises:
        ConcurrentModificationError: (14) another client commits to one of the tables, or has
            aborted the batch because it took too long. Nothing is committed.
        OutcomeUnknownError: (17) the storage does not say whether the batch is committed; all of it
            is, or nothing.
        LanceNamespaceError: what the catalog or the storage raised. Nothing is committed.
    """
    new = sorted((each for each in commits if not each.exists), key=lambda each: each.path)
    if len(new) == 1:
        new[0].do()
    elif new:
        _Batch(new).commit()
    return [each.finish() for each in commits]


class _Batch:
    """One batch of this client. Its tables are sorted by path.

    So if two batches have several tables in common, one comes first in all of them.
    """

    def __init__(self, commits: Sequence[CatalogCommit]) -> None:
        self._commits = commits
        self._record = BatchRecord.new(commits[0].table)
        self._is_certain = True
        """Whether no change that was sent to an entry can still arrive."""

    def commit(self) -> None:
        """Commit the versions; see the function `commit`."""
        self._record.write([each.path for each in self._commits])
        try:
            for each in self._commits:
                self._prepare(each)
        except LanceNamespaceError:
            self._abort()
            raise
        if self._decide() is not Outcome.COMMITTED:
            self._end(Outcome.ABORTED)
            raise concurrent_modification(self._commits[0].path)
        self._end(Outcome.COMMITTED)

    def _prepare(self, commit: CatalogCommit) -> None:
        prepared = self._record.prepared(commit.new.staged)
        try:
            compare_and_set.swap(commit.table, commit.old.prepare(prepared))
        except ConcurrentModificationError:
            raise
        except LanceNamespaceError:
            self._is_certain = False
            raise

    def _decide(self) -> Outcome | None:
        """Commit the batch, unless another client aborted it; return as `BatchRecord.decide`.

        Raises:
            OutcomeUnknownError: (17)
            LanceNamespaceError: what the storage raised; the batch is aborted.
        """
        try:
            return self._record.decide(Outcome.COMMITTED)
        except LanceNamespaceError as error:
            try:
                outcome = self._record.decide(Outcome.ABORTED)
            except LanceNamespaceError as unknown:
                raise OutcomeUnknownError(
                    f"Whether {self._record} is committed is unknown: {unknown}. Its tables show "
                    "it when the storage responds again"
                ) from error
            if outcome is Outcome.COMMITTED:
                return outcome
            self._is_certain = False
            self._end(Outcome.ABORTED)
            raise

    def _abort(self) -> None:
        """Abort the batch. If that fails, the next writer does it."""
        try:
            self._end(self._record.decide(Outcome.ABORTED) or Outcome.ABORTED)
        except LanceNamespaceError as error:
            logger.warning("%s stays undecided for a while: %s", self._record, error)

    def _end(self, outcome: Outcome) -> None:
        """Apply the outcome to all entries; last to the one that has the record.

        A failure does not change the outcome: the next writer continues.
        """
        connection = self._commits[0].table.connection
        first, *others = (each.path for each in self._commits)
        try:
            finish_entries(connection, others, self._record.id, outcome)
            finish_entries(connection, [first], self._record.id, outcome)
        except LanceNamespaceError as error:
            logger.warning("%s is %s, and not finished: %s", self._record, outcome.value, error)
            return
        if self._is_certain:
            self._record.remove()
