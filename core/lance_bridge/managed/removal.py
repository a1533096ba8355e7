"""Removal of an implementation-managed table's entry, without concurrent commits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)

from ..entry import EntryT, TableEntry
from ..errors import concurrent_modification
from . import compare_and_set
from .recovery import resolve_batch

_ATTEMPTS = 5

logger = logging.getLogger(__name__)


def resolve_batch_before_removal(table: EntryT) -> EntryT:
    """Do as `resolve_batch` before a removal, which a missing record does not prevent.

    Raises:
        ServiceUnavailableError: (17) or another error: the version that a batch has prepared would
            be lost with the entry.
    """
    try:
        return resolve_batch(table)
    except InvalidTableStateError as error:
        logger.warning("%s is removed without a version of a batch: %s", table.name, error)
        return table


@contextmanager
def held_for_removal(table: EntryT) -> Iterator[EntryT]:
    """End the batch that a table is part of, and hold the table while its entry is removed.

    Otherwise a commit in between would be lost with the entry, and a batch would lose its record
    with the files. Another client's hold does not prevent a removal. If the removal fails, the
    entry is as before. Does nothing for a storage-managed table.

    Raises:
        ConcurrentModificationError: (14) other clients keep committing.
        ServiceUnavailableError: (17) or another error, as `resolve_batch_before_removal`.
    """
    before, held = _hold(resolve_batch_before_removal(table))
    try:
        yield held
    except LanceNamespaceError:
        _restore(held, before)
        raise


def _hold(table: EntryT) -> tuple[EntryT, EntryT]:
    """Hold a table; return it as it was right before, with others' latest commit, and as held."""
    for _ in range(_ATTEMPTS):
        try:
            state = table.managed
        except InvalidTableStateError:
            return table, table  # an entry that cannot be read takes no commit
        if state is None:
            return table, table
        try:
            return table, compare_and_set.swap(table, state.hold(state.other)).reloaded()
        except ConcurrentModificationError:
            table = resolve_batch_before_removal(table.reloaded())
        except PermissionDeniedError as error:
            logger.info("%s is removed without a hold: %s", table.name, error)
            return table, table
    raise concurrent_modification(table.path)


def _restore(held: TableEntry, before: TableEntry) -> None:
    """Restore the entry as before the hold, unless it is missing or was changed."""
    try:
        now = held.reloaded()
        if now.managed == held.managed != before.managed and before.managed is not None:
            compare_and_set.swap(now, before.managed)
    except (TableNotFoundError, NamespaceNotFoundError):
        return
    except LanceNamespaceError as error:
        logger.warning("%s remains held until the hold expires: %s", held.name, error)
