"""Killing this process at a step of the protocol, as a crash would: nothing is cleaned up.

A commit stages a manifest, compares and sets the entry, writes the manifest under its final name,
and deletes the staged one. A rename, and setting aside what was written past the catalog, hold the
table meanwhile.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any, NoReturn

from lance_bridge.managed import batch, compare_and_set
from lance_bridge.managed import versions as directory
from lance_bridge.managed.batch_records import BatchRecord
from lance_bridge.managed.versions import ManagedDirectory
from lance_bridge.tables import rename

STAGED = "staged, and the entry is not set"
SET = "the entry is set, and the manifest has no final name"
NAMED = "the manifest has its final name, and the staged one is there"
SETTING_ASIDE = "the table is held, and what others wrote is not set aside"
RENAMING = "the table is held, and not renamed"
COPIED = "the table is held, and has both names"
UNRECORDED = "a batch has no record"
RECORDED = "the record of a batch is written, and no entry is prepared"
HALF_PREPARED = "the first entry of a batch is prepared, and the second is not"
UNDECIDED = "the entries of a batch are prepared, and it has no outcome"
DECIDED = "a batch is committed, and no entry is finished"
HALF_FINISHED = "a batch is committed, and the entry that has its record is not finished"
FINISHED = "the entries of a batch are finished, and its record is there"

_PLACES: dict[str, tuple[Any, str]] = {
    STAGED: (compare_and_set, "swap"),
    SET: (ManagedDirectory, "_put_final"),
    NAMED: (directory, "discard"),
    SETTING_ASIDE: (ManagedDirectory, "quarantine"),
    RENAMING: (rename, "retry_after_readback"),
    COPIED: (rename, "_require_unchanged"),
    UNRECORDED: (BatchRecord, "write"),
    RECORDED: (batch._Batch, "_prepare"),
    HALF_PREPARED: (batch._Batch, "_prepare"),
    UNDECIDED: (BatchRecord, "decide"),
    DECIDED: (batch, "finish_entries"),
    HALF_FINISHED: (batch, "finish_entries"),
    FINISHED: (BatchRecord, "remove"),
}
_REACHED_LATER = (HALF_PREPARED, HALF_FINISHED)
"""These are reached when their place is for the second time."""
STEPS = [STAGED, SET, NAMED]
"""Those of a commit."""
BEFORE_OUTCOME = [UNRECORDED, RECORDED, HALF_PREPARED, UNDECIDED]
"""Those of a batch that is not committed."""
AFTER_OUTCOME = [DECIDED, HALF_FINISHED, FINISHED]
"""Those of a batch that is."""


def at(step: str) -> None:
    """From now on, die where this step is reached.

    Raises:
        AttributeError: the code has no such place any more.
    """
    owner, name = _PLACES[step]
    place = getattr(owner, name)
    reached = itertools.count()

    def die(*arguments: Any, **options: Any) -> Any:
        if next(reached) < (step in _REACHED_LATER):
            return place(*arguments, **options)
        return _die()

    setattr(owner, name, die)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached: nothing survives SIGKILL")
