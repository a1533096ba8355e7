"""Committing the files of a job's tasks exactly once, even if the commit is retried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    ServiceUnavailableError,
)

from lance_bridge.errors import LANCE_ERRORS, OutcomeUnknownError
from lance_bridge.lance_datasets import find_commit, latest_version, transaction_at

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

_ATTEMPTS = 3
"""How often a commit is sent if the storage or the catalog fails."""

IsOwn = Callable[[Any], bool]
"""Returns whether a version's transaction is the job's own."""


def commit(
    table: SparkTable, dataset: lance.LanceDataset, transaction: lance.Transaction, what: str
) -> int:
    """Commit a transaction through the manager of the table's versions, and return the version.

    Args:
        what: What did not happen, for the middle of an error message.

    Raises:
        ConcurrentModificationError: (14) a concurrent change conflicts with it.
        ServiceUnavailableError: (17)
    """

    def send() -> lance.LanceDataset:
        options = table.storage_options(write=True)
        return lance.LanceDataset.commit(dataset, transaction, storage_options=options)

    return send_once(table, dataset, send, lambda other: other.uuid == transaction.uuid, what)


def send_once(
    table: SparkTable,
    dataset: lance.LanceDataset,
    send: Callable[[], lance.LanceDataset],
    is_own: IsOwn,
    what: str,
) -> int:
    """Send a commit until it is known to have succeeded or failed, and return its version.

    A reply can be lost after the commit took effect. So a failed commit is searched for in the
    versions after the one that was read, and sent again only if it is missing.

    Args:
        send: Sends it, and returns the dataset at the version that it made.
    """
    since = int(dataset.version)
    for attempt in range(_ATTEMPTS):
        try:
            with table.committing(dataset, what):
                sent = send()
        except (ConcurrentModificationError, ServiceUnavailableError) as error:
            found = _find_commit(dataset, is_own, since, error)
            if found is None:
                last = attempt == _ATTEMPTS - 1
                if last or not isinstance(error, ServiceUnavailableError):
                    raise
                continue
            transaction = transaction_at(dataset, found)
            table.note_commit(since, found, transaction.uuid if transaction is not None else "")
            return found
        version = int(sent.version)
        table.note_commit(since, version, sent)
        return version
    raise AssertionError("the last attempt raises")


def _find_commit(
    dataset: lance.LanceDataset, is_own: IsOwn, since: int, error: LanceNamespaceError
) -> int | None:
    try:
        return find_commit(dataset, is_own, since)
    except LanceNamespaceError as unread:
        raise OutcomeUnknownError(
            f"{error}. Whether it was committed is not known: {unread}"
        ) from unread


def transactions(dataset: lance.LanceDataset, since: int) -> Iterator[tuple[int, Any]]:
    """Yield each version after ``since`` and its transaction, or None if the file is missing."""
    for version in range(since + 1, max(int(dataset.version), latest_version(dataset)) + 1):
        try:
            yield version, transaction_at(dataset, version)
        except LANCE_ERRORS:
            yield version, None
