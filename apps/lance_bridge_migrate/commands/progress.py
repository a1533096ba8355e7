"""The progress bar of a migration on standard error, and its log file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lance_bridge.errors import LanceNamespaceError
from lance_bridge.redaction import redact
from lance_bridge_cli.output import message

from ..migration import NullProgress
from ..plan import Item

_LOG = "log.txt"


class ProgressBar(NullProgress):
    """A bar of the items that are done or failed, with the rows and bytes written so far.

    Without a terminal, only messages are printed.
    """

    def __init__(self, progress: Progress | None, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._rows = self._bytes = 0

    def announce(self, text: str) -> None:
        message(text)

    def start(self, total: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, total=total, completed=0)

    def advance(self, item: Item, rows: int, size: int) -> None:  # noqa: ARG002 - as declared
        with self._lock:
            self._rows, self._bytes = self._rows + rows, self._bytes + size
            seconds = max(time.monotonic() - self._started, 0.001)
            text = f"{self._rows:,} rows"
            if self._bytes:
                text += f", {decimal(self._bytes)}, {decimal(int(self._bytes / seconds))}/s"
        if self._progress is not None:
            self._progress.update(self._task, written=text)

    def end(self, item: Item, error: LanceNamespaceError | None) -> None:
        if self._progress is not None:
            self._progress.advance(self._task)
        if error is not None:
            message(f"{item.name}: {error}")


@contextmanager
def progress_bar(description: str) -> Iterator[ProgressBar]:
    """Show a progress bar until the block ends, if standard error is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ProgressBar(None, TaskID(0))
        return
    columns = (
        TextColumn(description, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[written]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield ProgressBar(progress, progress.add_task("", total=None, written=""))


@contextmanager
def log_file(directory: Path) -> Iterator[Path]:
    """Append log messages, with stack traces of failures, to a migration's log file."""
    path = directory / _LOG
    handler = logging.FileHandler(path, delay=True, encoding="utf-8")
    handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lance_bridge_migrate")
    level = logger.level
    logger.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    try:
        yield path
    finally:
        logging.getLogger().removeHandler(handler)
        logger.setLevel(level)
        handler.close()


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
