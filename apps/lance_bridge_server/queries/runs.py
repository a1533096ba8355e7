"""Runs of queries, which can be cancelled from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class _CanEnd(Protocol):
    def end(self, reason: str) -> None:
        """End the process of a query."""


class Run:
    """One run of a query, which can be cancelled. Safe to share between threads."""

    def __init__(self, seconds: float) -> None:
        """Args: seconds: How long it may take until its first rows, with the wait for a process."""
        self.seconds = seconds
        self._lock = threading.Lock()
        self._is_opened = False
        self._process: _CanEnd | None = None
        self._release: Callable[[], object] | None = None
        self.is_cancelled = False
        """Whether nothing needs its result any more."""
        self.needs_process = False
        """Whether it runs in a process, or takes as long as one that does."""
        self.stalled_since = float("inf")
        """Since when its client has read nothing of a part that is sent, on `time.monotonic`."""
        self.on_cancel: Callable[[], object] | None = None
        """Called when it is cancelled; set when it begins to wait for a process."""

    def cancel(self) -> None:
        """End the query, and free its process, also if its rows are still being read."""
        with self._lock:
            self.is_cancelled = True
            release, self._release = self._release, None
            if self._process is not None:
                self._process.end("cancelled")
        if self.on_cancel is not None:
            self.on_cancel()
        if release is not None:  # it waits for the end of the process
            threading.Thread(target=release, daemon=True).start()

    def hold(self, release: Callable[[], object]) -> bool:
        """Keep the process while rows are read.

        Args:
            release: Frees it, if the run is cancelled before their end.

        Returns:
            Whether it is kept: not if the run has been cancelled.
        """
        with self._lock:
            if not self.is_cancelled:
                self._release = release
            return not self.is_cancelled

    def note_opened(self) -> None:
        """Record that the catalog was read, and now the storage is."""
        self._is_opened = True

    def needs_catalog(self) -> bool:
        """Return whether the query has not begun to read the storage."""
        return not self._is_opened

    def watch(self, process: _CanEnd | None) -> None:
        """Set the process that runs the query; None after its end."""
        with self._lock:
            self._process, self._release = process, None
            if process is not None and self.is_cancelled:
                process.end("cancelled")


class RunGroup:
    """The runs of one request, such as those of a page, which are cancelled together."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._is_cancelled = False

    def add(self, run: Run) -> Run:
        """Add a run, and return it."""
        self._runs.append(run)
        if self._is_cancelled:
            run.cancel()
        return run

    def cancel(self) -> None:
        """Cancel all runs, also those that are added later."""
        self._is_cancelled = True
        for each in self._runs:
            each.cancel()
