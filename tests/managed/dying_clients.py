"""Clients that die at one of their steps: changes of files, and of entries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from lance_bridge.catalog import Catalog
from lance_bridge.storage.store import TableFiles


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
        """Let the clients that died go: nothing of theirs matters any more."""
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
