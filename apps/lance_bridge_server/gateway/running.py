"""Reads that are running when their catalog is found not to respond: they end with its error."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RunningReads:
    """The requests that wait for reads of one catalog. Use in the thread of the event loop.

    A change is not ended: its outcome would be unknown. Nor is a query, which may need the storage
    alone.
    """

    def __init__(self, error: Callable[[], Exception]) -> None:
        """Create it. Args: error: Returns the error of a read that is ended."""
        self._error = error
        self._waiting: set[asyncio.Task[object]] = set()
        self._ended: set[asyncio.Task[object]] = set()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Raise the error in this task, which waits for a read, when `end` is called."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            if sys.version_info >= (3, 11) and task.uncancel():
                raise  # it was cancelled for another reason as well
            raise self._error() from None
        finally:
            self._waiting.discard(task)
            self._ended.discard(task)

    def end(self) -> None:
        """End the reads that are waited for. Their threads go on."""
        for task in self._waiting - self._ended:
            self._ended.add(task)
            task.cancel()
