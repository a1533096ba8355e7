"""Print plans and records of migrations."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lance_namespace.errors import ServiceUnavailableError
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
from rich.table import Table

import lance_bridge_migrate as migrations
from lance_bridge.errors import LanceNamespaceError
from lance_bridge.redaction import redact
from lance_bridge_cli.output import Output, key_value_table, make_table, message, print_parts

from ..migration import NullProgress
from ..plan import Item
from ..record import Record

if TYPE_CHECKING:
    from lance_bridge_migrate import Item, ItemState, Plan, Record
    from lance_bridge_migrate.plan import Problem

# -- output ----------------------------------------------------------------------------------------


Parts = list[Table | str]

_MAX_ITEMS = 50
"""The maximum number of items in text output; JSON has all."""
_OPTIONAL_COLUMNS = ("format", "rows", "size")
"""Columns of a plan that are omitted if no item has a value."""
_BYTES_PER_SECOND, _SECONDS_PER_TABLE = 20e6, 1.0
"""Rough throughput of a machine with two cores."""


def print_plan(plan: Plan, output: Output) -> None:
    """Print a plan."""
    head = {
        "migration": plan.id,
        "from": str(plan.source),
        "to": str(plan.target),
        "to do": len(plan.to_do),
        "blocked": len(plan.blocked),
        "nothing to do": sum(bool(item.nothing_to_do) for item in plan.items),
    }
    parts: Parts = [key_value_table({**head, **_estimate(plan)})]
    if plan.items:
        rows = [_plan_row(item) for item in plan.items]
        known = [name for name in _OPTIONAL_COLUMNS if any(row[name] is not None for row in rows)]
        parts.append(make_table(["source", "target", *known, "plan"], rows[:_MAX_ITEMS]))
    parts += _more_items(len(plan.items))
    parts += [_problem_line(item, each) for item in plan.items for each in item.problems]
    parts += [f"Note: {note}." for note in plan.notes]
    if plan.to_do:
        without, option = (
            (" without the blocked items", " --skip-blocked") if plan.blocked else ("", "")
        )
        parts.append(
            f"Nothing was changed. To execute this plan{without}: "
            f"lance-bridge migrate resume {plan.id}{option}"
        )
    print_parts(output, plan.model_dump(mode="json"), parts)


def _problem_line(item: Item, problem: Problem) -> str:
    """Return a line for a problem, with its column unless the text has it."""
    column = f"'{problem.column}'" if problem.column else ""
    is_named = column in problem.text
    name = item.name if is_named else f"{item.name}, column {column}"
    return f"{problem.severity.value}: {name}: {problem.text}"


def _plan_row(item: Item) -> Mapping[str, Any]:
    from ..plan import ItemType  # noqa: PLC0415 - takes seconds to import

    return {
        "source": "" if item.type is ItemType.NAMESPACE else ".".join(item.source),
        "target": item.name,
        "format": (item.facts.get("source") or item.facts.get("arrow_files", {})).get("format"),
        "rows": None if item.rows is None else f"{item.rows:,}",
        "size": None if item.bytes is None else decimal(item.bytes),
        "plan": item.nothing_to_do or ("blocked" if item.blockers else "to do"),
    }


def _estimate(plan: Plan) -> dict[str, str]:
    """Return the size of the data to move and the estimated time, if sizes are known."""
    sizes = [item.bytes for item in plan.to_do if item.bytes is not None]
    if not sizes:
        return {}
    seconds = sum(sizes) / _BYTES_PER_SECOND + len(sizes) * _SECONDS_PER_TABLE
    return {
        "size": decimal(sum(sizes)),
        "estimated time": f"about {timedelta(seconds=math.ceil(seconds))}",
    }


def _more_items(count: int) -> Parts:
    return [f"… and {count - _MAX_ITEMS} more: --output json has all"] if count > _MAX_ITEMS else []


def print_record(record: Record, output: Output) -> None:
    """Print the state of a migration and of its items."""
    from ..record import leftover_messages  # noqa: PLC0415 - takes seconds to import

    parts: Parts = [key_value_table(summary(record))]
    states = list(record.items.values())
    rows = [
        {
            "target": each.item.name,
            "state": each.state.value,
            "seconds": round(each.seconds, 3),
            "verified": each.verified,
        }
        for each in states[:_MAX_ITEMS]
    ]
    if rows:
        parts.append(make_table(["target", "state", "seconds", "verified"], rows))
    parts += _more_items(len(states))
    parts += [f"{each.item.name}: {text}" for each in states if (text := _problem(each))]
    parts += [
        f"{each.item.name}: {text}"
        for each in states
        for text in leftover_messages(each, record.plan.target)
    ]
    parts += _how_to_continue(record)
    print_parts(output, as_fields(record), parts)


def _how_to_continue(record: Record) -> Parts:
    parts: Parts = []
    if record.runs and record.runs[-1].stop_reason:
        parts.append(f"The run was {record.runs[-1].stop_reason}.")
    counts, state = record.counts, migrations.State
    if counts.get(state.FAILED, 0) + counts.get(state.STARTED, 0) and not record.undo_has_started:
        id = record.plan.id
        parts.append(
            f"To retry unfinished items: lance-bridge migrate resume {id}. To undo the migration: "
            f"lance-bridge migrate undo {id}. Both delete the files of interrupted loads."
        )
    return parts


def as_fields(record: Record) -> dict[str, Any]:
    """Return a record as JSON, including the computed states and counts."""
    fields = record.model_dump(mode="json")
    fields["state"] = record.state.value
    fields["counts"] = {state.value: count for state, count in record.counts.items()}
    for key, each in record.items.items():
        fields["items"][key]["state"] = each.state.value
    return fields


def summary(record: Record) -> dict[str, Any]:
    """Return the main fields of a migration, for one row of a table."""
    counts = ", ".join(f"{count} {state.value}" for state, count in record.counts.items())
    return {
        "migration": record.plan.id,
        "type": record.plan.type,
        "from": str(record.plan.source),
        "to": str(record.plan.target),
        "state": record.state.value,
        "items": counts,
    }


def _problem(each: ItemState) -> str:
    if each.error is not None:
        return str(each.error.message)
    return "; ".join(
        f"{check.name}{' of ' + check.column if check.column else ''}: "
        f"expected {check.expected!r}, found {check.found!r}"
        for check in each.checks
        if not check.ok
    )


# -- progress --------------------------------------------------------------------------------------


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


# -- notifications ---------------------------------------------------------------------------------


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
    """Post the result of a migration to a URL, and print a message if that fails."""
    try:
        post_result(url, record)
    except ServiceUnavailableError as error:
        message(f"--when-done-url: {error}")


def post_result(url: str, record: Record) -> None:
    """Post the result of a migration as JSON, once.

    Raises:
        ServiceUnavailableError: (17) no response within ten seconds, or a status other than 2xx.
            The message contains only the host, because the rest of such a URL is often secret.
    """
    request = urllib.request.Request(
        url,
        data=json.dumps(result_of(record)).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "lance-bridge"},
        method="POST",
    )
    host = urlsplit(url).hostname
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise ServiceUnavailableError(f"{host} answered with status {error.code}") from error
    except UnicodeEncodeError as error:
        raise ServiceUnavailableError(
            f"{host} was not called: percent-encode the characters of the URL that are not ASCII"
        ) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise ServiceUnavailableError(f"{host} did not respond: {reason}") from error


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
