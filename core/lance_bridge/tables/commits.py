"""Committing a change of a table: what Lance raises when it fails, as the spec's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import lance
from lance.commit import CommitConflictError

from ..catalog import TableRecord
from ..errors import concurrent_modification, display, invalid
from .dataset import (
    LANCE_FAILURES,
    brief,
    failure,
    panics_as_errors,
    raise_what_catalog_said,
    translated,
)

REFUSALS = (
    "Invalid user input",
    "LanceError(Arrow)",
    "LanceError(Index)",
    "LanceError(Schema)",
    "Not supported",
    "Query Execution error",
    "Unprocessable",
    "External error: General error",  # a geometry that is no WKB
    "WKT error",
    "can't set tokenizer",
)
"""How Lance names the kinds of its errors that are about a request or the rows, not storage."""

OF_STORAGE = "LanceError(IO)"
"""What Lance says, at any depth, where the storage failed."""


TOO_MANY = "Too many concurrent writers"
"""What Lance says where others were faster each time until it gave up; nothing was committed."""


def is_refusal(error: BaseException) -> bool:
    """Return whether Lance refused what it was asked, rather than failed at it."""
    text = str(error)
    return text.startswith(REFUSALS) and OF_STORAGE not in text


@contextmanager
def committing(record: TableRecord, what: str, dataset: lance.LanceDataset) -> Iterator[None]:
    """Translate what goes wrong while Lance changes a table; nothing was written then.

    Args:
        what: What did not happen, to go in the middle of a sentence.

    Raises:
        LanceNamespaceError: What the catalog raised that manages the table's versions.
        InvalidInputError: (13) Lance refuses it.
        ConcurrentModificationError: (14) another writer's commit came first and does not fit.
        ServiceUnavailableError: (17) the storage failed.
        InternalError: (18) Lance panicked.
    """
    before = int(dataset.version)
    try:
        with panics_as_errors():
            yield
    except CommitConflictError as error:
        raise concurrent_modification(record.path) from error
    except LANCE_FAILURES as error:
        raise_what_catalog_said(dataset, error)
        told = f"Table '{display(record.path)}': {what}"
        if is_refusal(error):
            raise invalid(f"{told}: {brief(error)}") from error
        was_beaten = TOO_MANY in str(error) or latest_of(dataset) > before
        if OF_STORAGE not in str(error) and was_beaten:
            raise concurrent_modification(record.path) from error
        raise failure(told, error) from error


def latest_of(dataset: lance.LanceDataset) -> int:
    """Return the latest version, or 0 where it cannot be read."""
    try:
        with panics_as_errors():
            return int(dataset.latest_version)
    except LANCE_FAILURES:
        return 0


def transaction_at(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Return what made a version, or None where that is not recorded.

    pylance cannot read back a compaction that has moved an index (its `RewrittenIndex` wants more
    than it is given): such a transaction comes without its identifier and its fragments.
    """
    try:
        return dataset.read_transaction(version)
    except TypeError:
        operation = lance.LanceOperation.Rewrite(groups=[], rewritten_indices=[])
        return lance.Transaction(read_version=version - 1, operation=operation, uuid="")


def transaction_id(dataset: lance.LanceDataset, record: TableRecord) -> str | None:
    """Return the identifier of the transaction that made the version at hand."""
    with translated(f"The last transaction of table '{display(record.path)}' could not be read"):
        transaction = transaction_at(dataset, dataset.version)
    return (str(transaction.uuid) or None) if transaction is not None else None
