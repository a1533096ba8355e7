"""Clients that die at a step of the protocol, as a crash would make them: nothing is cleaned up.

A commit stages a manifest, compares and sets the entry, writes the manifest under its final name,
and deletes the staged one. A rename, and setting aside what was written past the catalog, hold the
table meanwhile. A process is killed at one of these steps; clients in threads of the test stop for
ever at one of their changes of files and entries.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn

import pytest

from lance_bridge.catalog import Catalog
from lance_bridge.managed import commits, compare_and_set
from lance_bridge.managed import version_directory as directory
from lance_bridge.managed.batches import BatchRecord
from lance_bridge.managed.version_directory import ManagedDirectory
from lance_bridge.storage.store import TableFiles
from lance_bridge.tables import collection

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
    RENAMING: (collection, "retry_after_readback"),
    COPIED: (collection, "_require_unchanged"),
    UNRECORDED: (BatchRecord, "write"),
    RECORDED: (commits._Batch, "_prepare"),
    HALF_PREPARED: (commits._Batch, "_prepare"),
    UNDECIDED: (BatchRecord, "decide"),
    DECIDED: (commits, "finish_entries"),
    HALF_FINISHED: (commits, "finish_entries"),
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


# -- clients in threads ----------------------------------------------------------------------------


class Death(BaseException):
    """Ends a client that died, once the test no longer needs what it has left."""


SECONDS = 60.0
"""How long a client may take for one call before the test fails. A merge of Lance's that is refused
again and again gives up after 30 seconds."""


class Clients:
    """Runs clients; one may die at one of its steps, which are changes of files and of entries.

    A client that died stays where it is until the end: it does nothing more, and learns nothing.
    """

    def __init__(self) -> None:
        self._left: int | None = None
        self._died = threading.Event()
        self._end = threading.Event()

    def install(self, patch: pytest.MonkeyPatch, catalog: type[Catalog]) -> None:
        """Count the changes of all clients of this process."""
        for name in ("put_new", "put_over", "remove"):
            patch.setattr(TableFiles, name, self._counted(getattr(TableFiles, name)))
        for name in ("create_table", "alter_table", "rename_table", "drop_table"):
            patch.setattr(catalog, name, self._counted(getattr(catalog, name)))

    def run(self, act: Callable[[], object], steps: int | None) -> None:
        """Run a client.

        Args:
            steps: At which of its steps it dies, if it takes so many; None if it does not.

        Raises:
            Death: it has died.
        """
        if steps is None:
            act()
            return
        done: Future[object] = Future()
        self._left, self._died = steps, threading.Event()
        done.add_done_callback(lambda _: died.set())
        died = self._died
        threading.Thread(target=_run, args=(act, done), daemon=True).start()
        assert died.wait(SECONDS), "a client neither ends nor dies"
        self._left = None
        if not done.done():
            raise Death
        done.result()

    def end(self) -> None:
        """Let the clients that died go: what they did no longer matters."""
        self._end.set()

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self._step()
            found = change(*args)
            self._step()
            return found

        return counted

    def _step(self) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            self._died.set()
            self._end.wait()
            raise Death


def _run(act: Callable[[], object], done: Future[object]) -> None:
    try:
        done.set_result(act())
    except BaseException as error:  # noqa: BLE001 - raised where the client is awaited
        done.set_exception(error)
