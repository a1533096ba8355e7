"""A bar on the driver for jobs with phases. Spark shows its own for the tasks of a phase."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Phases:
    """The phases of one job. Quiet where nobody watches: no terminal, or rich is not there."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task
        self._begun = False

    def begin(self, what: str) -> None:
        """Begin the next phase; the one before it is done."""
        if self._bar is not None:
            self._bar.update(self._task, description=what, advance=1 if self._begun else 0)
        self._begun = True

    def end(self) -> None:
        """End the last phase."""
        if self._bar is not None and self._begun:
            self._bar.update(self._task, advance=1)


@contextmanager
def phases(job: str, count: int, *, stream: Any = None) -> Iterator[Phases]:
    """Show a bar of ``count`` phases while a job runs.

    Args:
        job: What the bar begins with, such as ``compact prod.db.t``.
        stream: Where the bar goes; standard error unless told.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty() or importlib.util.find_spec("rich") is None:
        yield Phases()
        return
    from rich.console import Console  # noqa: PLC0415 - rich is optional
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn(job, markup=False), BarColumn(), MofNCompleteColumn())
    phase = TextColumn("{task.description}", markup=False)
    with Progress(*columns, phase, console=Console(file=stream)) as bar:
        shown = Phases(bar, bar.add_task("", total=count))
        yield shown
        shown.end()
