"""What a command shows of a run: a progress bar, a log file, and notifications at the end."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lance_namespace.errors import LanceNamespaceError
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

from lance_bridge.redaction import redact
from lance_bridge_cli.output import message

from ..migration import NullProgress
from ..plan import Item
from ..record import Record

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


# -- notifications at the end ----------------------------------------------------------------------


_SECONDS = 10.0


def run_when_done(command: str, record: Record) -> None:
    """Run the user's command, and print a message if it fails."""
    environment = {
        **os.environ,
        "LANCE_BRIDGE_MIGRATION": record.plan.id,
        "LANCE_BRIDGE_MIGRATION_STATE": record.state.value,
    }
    # Standard output is for the result of this command.
    done = subprocess.run(
        command, shell=True, check=False, env=environment, stdin=subprocess.DEVNULL, stdout=2
    )
    if done.returncode:
        message(f"the command of --when-done ended with exit code {done.returncode}")


def notify_when_done(url: str, record: Record) -> None:
    """Post the result of a migration as JSON, once.

    A message is printed without a response within ten seconds, or for a status other than 2xx. It
    contains only the host, because the rest of such a URL is often secret.
    """
    request = urllib.request.Request(
        url,
        data=json.dumps(result_of(record)).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "lance-bridge"},
        method="POST",
    )
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        problem = f"answered with status {error.code}"
    except UnicodeEncodeError:
        problem = "was not called: percent-encode the characters of the URL that are not ASCII"
    except (OSError, HTTPException) as error:
        problem = f"did not respond: {getattr(error, 'reason', None) or type(error).__name__}"
    message(f"--when-done-url: {urlsplit(url).hostname} {problem}")


def result_of(record: Record) -> dict[str, Any]:
    """Return the posted JSON: names, states, counts and errors; no properties, options or facts."""
    return {
        "migration": record.plan.id,
        "type": record.plan.type,
        "state": record.state.value,
        "counts": {state.value: count for state, count in record.counts.items()},
        "items": [
            {
                "source": [redact(name) for name in each.item.source],
                "target": list(each.item.target),
                "state": each.state.value,
                "verified": each.verified,
                "error": None if each.error is None else redact(each.error.message),
            }
            for each in record.items.values()
        ],
    }


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which turn POST into GET and may send table names to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
