"""Killing this process at a step of the protocol, as a crash would: nothing is cleaned up.

A commit stages a manifest, compares and sets the entry, writes the manifest under its final name,
and deletes the staged one. A rename, and setting aside what was written past the catalog, hold the
table meanwhile.
"""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn

from lance_bridge.managed import compare_and_set
from lance_bridge.managed import versions as directory
from lance_bridge.managed.versions import ManagedDirectory
from lance_bridge.tables import rename

STAGED = "staged, and the entry is not set"
SET = "the entry is set, and the manifest has no final name"
NAMED = "the manifest has its final name, and the staged one is there"
SETTING_ASIDE = "the table is held, and what others wrote is not set aside"
RENAMING = "the table is held, and not renamed"
COPIED = "the table is held, and has both names"

_PLACES: dict[str, tuple[Any, str]] = {
    STAGED: (compare_and_set, "swap"),
    SET: (ManagedDirectory, "_put_final"),
    NAMED: (directory, "discard"),
    SETTING_ASIDE: (ManagedDirectory, "quarantine"),
    RENAMING: (rename, "retry_after_readback"),
    COPIED: (rename, "_require_unchanged"),
}
STEPS = [STAGED, SET, NAMED]
"""Those of a commit."""


def at(step: str) -> None:
    """From now on, die where this step is reached.

    Raises:
        AttributeError: the code has no such place any more.
    """
    owner, name = _PLACES[step]
    getattr(owner, name)
    setattr(owner, name, _die)


def _die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached: nothing survives SIGKILL")
