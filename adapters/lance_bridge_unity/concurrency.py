"""Handles concurrent changes of one name, which the open-source server does not serialize.

It checks whether a name is free before it uses it, not atomically: if two clients create a name or
rename to it, both succeed, and the name is broken. If several clients rename or drop one table,
several succeed. Within a process, changes of a name wait for each other. Changes by other processes
are detected by reading back.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    ServiceUnavailableError,
)

from lance_bridge.catalog import NamespaceRecord, Path, TableRecord
from lance_bridge.errors import OutcomeUnknownError, display
from lance_bridge.records import ENTRY_ID

from .errors import ErrorReply

RecordT = TypeVar("RecordT", NamespaceRecord, TableRecord)

_LOCKS = [threading.Lock() for _ in range(64)]


def _after_fork_in_child() -> None:
    """Replace the locks: the child never releases one that another thread held at the fork."""
    _LOCKS[:] = [threading.Lock() for _ in _LOCKS]


os.register_at_fork(after_in_child=_after_fork_in_child)


@contextmanager
def lock_names(*names: Path) -> Iterator[None]:
    """Keep other threads of this process from changing any of these names."""
    with ExitStack() as held:
        # All threads use the same order, to prevent deadlocks.
        for number in sorted({zlib.crc32(display(each).encode()) % len(_LOCKS) for each in names}):
            held.enter_context(_LOCKS[number])
        yield


def read_back(
    full: Path, load: Callable[[], RecordT], made: RecordT, exists: LanceNamespaceError
) -> RecordT:
    """Read back what was just created, and return it if this caller created it.

    Raises:
        LanceNamespaceError: ``exists``, if another client created it.
        InternalError: the name is broken.
        OutcomeUnknownError: it cannot be read, or does not exist.
    """
    try:
        try:
            found = load()
        except ServiceUnavailableError as error:
            if not _is_server_error(error):
                raise
            found = load()  # a broken name fails again
    except LanceNamespaceError as error:
        if _is_server_error(error):
            raise InternalError(
                f"'{display(full)}' was created, and the server now fails to read it: another "
                f"client created the same name at the same time, which breaks it. {error}"
            ) from error
        raise OutcomeUnknownError(f"'{display(full)}' may have been created: {error}") from error
    if found.properties.get(ENTRY_ID) != made.properties.get(ENTRY_ID):
        raise exists
    return found


def read_back_renamed(
    full: Path, new: Path, load: Callable[[], TableRecord], renamed: TableRecord
) -> None:
    """Read back a table that the server has confirmed to be renamed.

    Under load, the server confirms renames that have no effect, such as the second of two.

    Raises:
        InternalError: the new name is broken.
        OutcomeUnknownError: the table does not have the new name, or that cannot be read.
    """
    done = f"rename '{display(full)}' to '{display(new)}'"
    try:
        found = load()
    except LanceNamespaceError as error:
        if _is_server_error(error):
            raise
        raise OutcomeUnknownError(
            f"The server confirmed to {done}, and it cannot be read back: {error}"
        ) from error
    if renamed.identity and found.identity != renamed.identity:
        raise OutcomeUnknownError(
            f"The server confirmed to {done}, and another table has that name"
        )


def _is_server_error(error: LanceNamespaceError) -> bool:
    cause = error.__cause__
    return isinstance(cause, ErrorReply) and cause.status == 500
