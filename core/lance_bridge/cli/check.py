"""The conformance kit against a catalog: what any namespace must do, tried out."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from types import FrameType
from typing import Annotated, Any

import typer

from ..extras import require
from .common import (
    FAILED,
    FOUND,
    INTERRUPTED,
    CatalogName,
    OutputOption,
    Properties,
    misused,
    pairs,
    told,
)
from .output import Output, tell

_NO_CASES = 5
"""The exit code of pytest where nothing was selected."""


@dataclass
class _Results:
    """A plugin of pytest that notes what became of each case."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(str(report.nodeid).partition("::")[2])
        elif report.when == "call" or report.skipped:
            self.passed += report.passed
            self.skipped += report.skipped


def check(
    catalog: CatalogName,
    *,
    select: Annotated[
        str | None, typer.Option("--select", "-k", help="Run only cases whose name fits.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", help="Namespace to work under; else the root.")
    ] = None,
    data_root: Annotated[
        str | None, typer.Option("--data-root", help="Place for data, a path or a URI.")
    ] = None,
    storage_options: Annotated[
        list[str] | None,
        typer.Option("--storage-option", help="What Lance needs there: key=value. Repeatable."),
    ] = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Try out what any Lance namespace must do, in namespaces of its own, which go at the end.

    The exit code is 3 where a case failed.

    Example: lance-bridge check prod -k page
    """
    with told():
        require("testing", "pytest", "hypothesis")
    from ..testing import __main__ as kit  # noqa: PLC0415 - pytest may be missing

    pairs([*(properties or ()), *(storage_options or ())])
    arguments = [catalog]
    for option, values in (("-p", properties), ("--storage-option", storage_options)):
        arguments += [part for value in values or () for part in (option, value)]
    for option, given in (("-k", select), ("--parent", parent), ("--data-root", data_root)):
        arguments += [option, given] if given else []
    results = _Results()
    with _interrupts() as interrupts, _answer_kept_apart(output):
        code = kit.main(arguments, plugins=[results])
    if interrupts:
        raise typer.Exit(INTERRUPTED)
    if code == _NO_CASES:
        raise misused(f"No case fits -k {select}")
    if code not in (0, 1):
        raise typer.Exit(FAILED)
    fields = {
        "catalog": catalog,
        "passed": results.passed,
        "skipped": results.skipped,
        "failed": results.failed,
    }
    text = f"{catalog}: {results.passed} cases passed, {len(results.failed)} failed"
    tell(output, text, fields)
    if code:
        raise typer.Exit(FOUND)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Note Ctrl-C, of which pytest itself makes an end like any other."""
    seen: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _answer_kept_apart(output: Output) -> Iterator[None]:
    """Let what pytest prints go to standard error where a program reads the answer."""
    if output is Output.TEXT:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield
