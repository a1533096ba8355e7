"""What the open-source server does not keep apart: changes of one name at the same time.

It looks whether a name is free, and takes it later: of two callers who create one name or rename to
it, both are told that they did, and the name is broken for good. Of several who rename or drop one
table, several are told that they did. Within this process, one change of a name waits for another.
Other processes are found out by what the server answers afterwards.
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
from lance_bridge.entries.properties import ENTRY_ID
from lance_bridge.errors import OutcomeUnknownError, display

from .errors import ErrorReply

RecordT = TypeVar("RecordT", NamespaceRecord, TableRecord)

_LOCKS = [threading.Lock() for _ in range(64)]


def _after_fork_in_child() -> None:
    """Replace the locks: one that another thread held at the fork is never released here."""
    _LOCKS[:] = [threading.Lock() for _ in _LOCKS]


os.register_at_fork(after_in_child=_after_fork_in_child)


@contextmanager
def lock_names(*names: Path) -> Iterator[None]:
    """Keep other threads of this process from changing any of these names meanwhile."""
    with ExitStack() as held:
        # In one order for all, or two who want the same two would wait for each other.
        for number in sorted({zlib.crc32(display(each).encode()) % len(_LOCKS) for each in names}):
            held.enter_context(_LOCKS[number])
        yield


def read_back(
    full: Path, load: Callable[[], RecordT], made: RecordT, exists: LanceNamespaceError
) -> RecordT:
    """Return what was just made as the server has it, if it is this caller's own.

    Raises:
        LanceNamespaceError: ``exists``: it is a rival's.
        InternalError: the name is broken.
        OutcomeUnknownError: it cannot be read, or is not there.
    """
    try:
        try:
            found = load()
        except ServiceUnavailableError as error:
            if not _is_failure(error):
                raise
            found = load()  # a name that is broken fails again
    except LanceNamespaceError as error:
        if _is_failure(error):
            raise InternalError(
                f"'{display(full)}' was created, and the server now fails to read it: another "
                f"client created the same name at the same time, which breaks it. {error}"
            ) from error
        raise OutcomeUnknownError(f"'{display(full)}' may have been created: {error}") from error
    if found.properties.get(ENTRY_ID) != made.properties.get(ENTRY_ID):
        raise exists
    return found


def _is_failure(error: LanceNamespaceError) -> bool:
    cause = error.__cause__
    return isinstance(cause, ErrorReply) and cause.status == 500
