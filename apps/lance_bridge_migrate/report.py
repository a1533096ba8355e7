"""The report of a migration as a model, which is its JSON: `report_of` makes it of a record."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import zip_longest
from typing import Any, Final, Literal

from pydantic import Field

from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.errors import display
from lance_bridge.redaction import is_secret, redact

from .plan import ItemType, Model, Plan, now
from .record import Check, ItemState, Record, State, StepState, leftover_messages

HIDDEN = "(not shown)"

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters except tab and newline, surrogates, and characters forbidden in XML."""


def without_secrets(value: Any) -> Any:
    """Return JSON in which strings with secret keys are hidden."""
    if isinstance(value, dict):
        return {key: _hide_secret(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return value


def _hide_secret(key: str, value: Any) -> Any:
    of_store = key.startswith(STORAGE_PREFIX) and CatalogConfig.is_secret(key)
    is_hidden = isinstance(value, str) and value and (of_store or is_secret(key))
    return HIDDEN if is_hidden else without_secrets(value)


def sanitize(value: Any) -> Any:
    """Return JSON that is valid in any page and parser, with secrets in strings redacted.

    NaN and infinity become strings; unprintable characters are replaced.
    """
    if isinstance(value, dict):
        return {sanitize(key): sanitize(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return redact(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", value))
    return value


# -- model -----------------------------------------------------------------------------------------


FORMAT: Final = 1
"""The version of the JSON format."""
GENERATOR: Final = "lance-bridge migrate report"
"""Identifies a page or JSON file as a report."""


class StepLine(StepState):
    """One step of one table; ``seconds`` is the duration of the completed attempt."""

    name: str


class ItemLine(Model):
    """One table, or one namespace that had to be created.

    Attributes:
        source: The identifier of the source, or one location.
        target: The identifier of the target, or one location.
        location: The location of its data, if a step noted it.
        rows_before: Rows of the source.
        rows_written: Rows that the migration wrote.
        rows_found: Rows that verification counted in the target.
        bytes_before: Bytes of the source's data.
        bytes_written: Bytes that the migration wrote.
        bytes_after: Bytes of the target's data.
        orphaned_bytes_deleted: Bytes of interrupted loads that a later run deleted.
        orphaned_bytes_left: Bytes of files that no version referenced after the load.
        version: The version of the target, or, for copies, of the source.
        seconds: The duration of all completed steps; None if there are none.
        rows_per_second: Rows written per second of these steps; likewise bytes_per_second.
        verified: The level of the last verification.
    """

    type: ItemType
    source: tuple[str, ...]
    target: tuple[str, ...]
    state: State
    nothing_to_do: str = ""
    location: str | None = None
    rows_before: int | None = None
    rows_written: int | None = None
    rows_deleted: int | None = None
    rows_found: int | None = None
    bytes_before: int | None = None
    bytes_written: int | None = None
    bytes_after: int | None = None
    orphaned_bytes_deleted: int | None = None
    orphaned_bytes_left: int | None = None
    version: int | None = None
    steps: tuple[StepLine, ...] = ()
    seconds: float | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    verified: str | None = None

    @property
    def name(self) -> str:
        """The display name."""
        return display(self.target)

    @property
    def source_name(self) -> str:
        """The display name of the source; "" for a namespace."""
        return "" if self.type is ItemType.NAMESPACE else display(self.source)


class CheckLine(Check):
    """One comparison made by verification."""

    table: str


class ProblemLine(Model):
    """A blocker or warning of the plan, or the error of a table.

    Attributes:
        code: The error code of the Lance namespace spec.
    """

    severity: Literal["error", "blocker", "warning"]
    table: str
    column: str = ""
    text: str
    code: int | None = None


class RunLine(Model):
    """One run of the migration, or of its undo.

    Attributes:
        type: ``run`` or ``undo``.
        end: ``stopped`` by Ctrl-C; ``not noted`` if it was cut off or still runs.
        seconds: The time until its end, or else until the last recorded step.
    """

    type: str
    started: str
    ended: str | None = None
    end: Literal["ended", "stopped", "not noted"]
    seconds: float | None = None
    parallelism: int | None = None
    verify: str | None = None
    skip_blocked: bool | None = None


class Total(Model):
    """A sum over tables.

    Attributes:
        total: The sum; None if the value is known for no table.
        known: The number of tables whose value is known.
        tables: The number of all tables.
    """

    total: int | None = None
    known: int = 0
    tables: int = 0


class Totals(Model):
    """Sums over all tables.

    Attributes:
        rows_planned: Source rows of the tables to migrate; likewise bytes_planned.
        rows_written: Rows of completed tables; likewise the bytes.
        size_ratio: Bytes after divided by bytes before, for tables with both known.
        seconds: The duration of all runs, including verification, without undo.
        step_seconds: The duration of all steps, some of which ran in parallel.
        rows_per_second: Rows written per second of the runs; likewise the other rates.
    """

    tables: int = 0
    tables_done: int = 0
    namespaces: int = 0
    rows_planned: Total
    bytes_planned: Total
    rows_written: Total
    bytes_before: Total
    bytes_written: Total
    bytes_after: Total
    size_ratio: float | None = None
    seconds: float | None = None
    step_seconds: float | None = None
    tables_per_second: float | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None


class CommandLine(Model):
    """A suggested next command."""

    purpose: str
    command: str


class Report(Model):
    """The report of a migration; see `report_of`.

    Attributes:
        made: The time at which the report was made.
        options: The options of the migration, without values that may be secret.
        counts: The number of items in each state.
        checks: All checks, failed ones first.
    """

    generator: Literal["lance-bridge migrate report"] = GENERATOR
    format: Literal[1] = FORMAT
    made: str
    migration: str
    type: str
    state: State
    created: str
    follows: str | None = None
    source: str
    target: str
    options: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    runs: tuple[RunLine, ...] = ()
    totals: Totals
    problems: tuple[ProblemLine, ...] = ()
    checks: tuple[CheckLine, ...] = ()
    items: tuple[ItemLine, ...] = ()
    commands: tuple[CommandLine, ...] = ()


# -- summary ---------------------------------------------------------------------------------------


def report_of(record: Record, state_directory: str | None = None) -> Report:
    """Return the report of a migration. Only the facts named in this module are included.

    Args:
        state_directory: The state directory for the suggested commands, unless it is the default.
    """
    plan, states = record.plan, list(record.items.values())
    items = tuple(_item(each) for each in states)
    runs = tuple(_runs(record))
    checks = [
        CheckLine(table=state.item.name, **each.model_dump())
        for state in states
        for each in state.checks
    ]
    problems = sorted(_problems(states, plan), key=lambda each: _SEVERITIES[each.severity])
    made = Report(
        made=now(),
        migration=plan.id,
        type=plan.type,
        state=record.state,
        created=plan.created,
        follows=plan.follows,
        source=str(plan.source),
        target=str(plan.target),
        options=without_secrets(plan.options),
        notes=plan.notes,
        counts={state.value: count for state, count in record.counts.items()},
        runs=runs,
        totals=_totals(states, items, runs),
        problems=tuple(problems),
        checks=tuple(sorted(checks, key=lambda each: each.ok)),
        items=items,
        commands=tuple(_commands(record, state_directory)),
    )
    return Report.model_validate(sanitize(made.model_dump()))


_SEVERITIES = {"error": 0, "blocker": 1, "warning": 2}


def _item(state: ItemState) -> ItemLine:
    item, facts, checks = state.item, state.facts, state.checks
    steps = tuple(StepLine(name=name, **each.model_dump()) for name, each in state.steps.items())
    seconds = state.seconds if any(each.done for each in steps) else None
    counts = {name: _count(facts.get(name)) for name in _COUNTS}
    location = facts.get("location")
    return ItemLine(
        type=item.type,
        source=item.source,
        target=item.target,
        state=state.state,
        nothing_to_do=item.nothing_to_do,
        location=location if isinstance(location, str) and location else None,
        rows_before=_first_known(item.rows, _rows(checks, lambda each: each.expected)),
        rows_found=_rows(checks, lambda each: each.found),
        bytes_before=_first_known(_count(facts.get("bytes_before")), item.bytes),
        steps=steps,
        seconds=seconds,
        rows_per_second=_per_second(counts["rows_written"], seconds),
        bytes_per_second=_per_second(counts["bytes_written"], seconds),
        verified=state.verified,
        **counts,
    )


_COUNTS = ("rows_written", "rows_deleted", "bytes_written", "bytes_after", "orphaned_bytes_deleted",
           "orphaned_bytes_left", "version")  # fmt: skip
"""Facts that are fields of an `ItemLine`."""


def _count(value: object) -> int | None:
    """Return a non-negative integer, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None


def _first_known(*values: int | None) -> int | None:
    return next((each for each in values if each is not None), None)


def _rows(checks: Iterable[Check], side: Callable[[Check], object]) -> int | None:
    return _first_known(*(_count(side(each)) for each in checks if each.name == "rows"))


def _per_second(amount: int | None, seconds: float | None) -> float | None:
    return None if amount is None or not seconds else round(amount / seconds, 3)


def _problems(states: Iterable[ItemState], plan: Plan) -> Iterator[ProblemLine]:
    for state in states:
        table = state.item.name
        if state.error is not None:
            text, code = state.error.message, state.error.code
            yield ProblemLine(severity="error", table=table, text=text, code=code)
        for text in leftover_messages(state, plan.target):
            yield ProblemLine(severity="warning", table=table, text=text)
        for each in state.item.problems:
            yield ProblemLine(
                severity=each.severity.value, table=table, column=each.column, text=each.text
            )


def _runs(record: Record) -> Iterator[RunLine]:
    times = [
        time
        for state in record.items.values()
        for step in state.steps.values()
        for time in (step.started, step.done, step.undone)
        if time
    ]
    for run, following in zip_longest(record.runs, record.runs[1:]):
        # The last step of a run that was cut off. Times sort as text.
        end = following.started if following is not None else "~"
        steps = (each for each in times if run.started <= each < end)
        last = run.ended or max(steps, default=None)
        yield RunLine(
            type=run.event,
            started=run.started,
            ended=run.ended,
            end="not noted" if run.ended is None else "stopped" if run.is_stopped else "ended",
            seconds=_seconds_between(run.started, last) if last else None,
            **{name: run.options.get(name) for name in ("parallelism", "verify", "skip_blocked")},
        )


def _seconds_between(started: str, ended: str) -> float | None:
    first, last = _parse_time(started), _parse_time(ended)
    if first is None or last is None:
        return None
    return round(max(0.0, (last - first).total_seconds()), 3)


def _parse_time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _totals(
    states: Sequence[ItemState], items: Sequence[ItemLine], runs: Sequence[RunLine]
) -> Totals:
    pairs = [pair for pair in zip(states, items, strict=True) if pair[1].type is ItemType.TABLE]
    planned = [line for state, line in pairs if state.item.is_to_do]
    done = [line for state, line in pairs if state.is_done]
    took = [each.seconds for each in runs if each.type == "run" and each.seconds is not None]
    seconds = round(sum(took), 3) if took else None
    steps = [each.seconds for each in items if each.seconds is not None]
    rows_written = _total(each.rows_written for each in done)
    bytes_written = _total(each.bytes_written for each in done)
    return Totals(
        tables=len(pairs),
        tables_done=len(done),
        namespaces=len(items) - len(pairs),
        rows_planned=_total(each.rows_before for each in planned),
        bytes_planned=_total(each.bytes_before for each in planned),
        rows_written=rows_written,
        bytes_before=_total(each.bytes_before for each in done),
        bytes_written=bytes_written,
        bytes_after=_total(each.bytes_after for each in done),
        size_ratio=_ratio(done),
        seconds=seconds,
        step_seconds=round(sum(steps), 3) if steps else None,
        tables_per_second=_per_second(len(done), seconds) if done else None,
        rows_per_second=_per_second(rows_written.total, seconds),
        bytes_per_second=_per_second(bytes_written.total, seconds),
    )


def _total(values: Iterable[int | None]) -> Total:
    asked = list(values)
    known = [each for each in asked if each is not None]
    return Total(total=sum(known) if known else None, known=len(known), tables=len(asked))


def _ratio(items: Iterable[ItemLine]) -> float | None:
    before = after = 0
    for each in items:
        if each.bytes_before is not None and each.bytes_after is not None:
            before, after = before + each.bytes_before, after + each.bytes_after
    return round(after / before, 4) if before else None


_OVER = (State.DONE, State.DIFFERS, State.NOTHING_TO_DO)


def _commands(record: Record, state_directory: str | None = None) -> Iterator[CommandLine]:
    """Yield suggested next commands."""

    def command(purpose: str, verb: str, *options: str) -> CommandLine:
        directory = ("--state", state_directory) if state_directory else ()
        words = ("lance-bridge", "migrate", verb, record.plan.id, *options, *directory)
        return CommandLine(purpose=purpose, command=shlex.join(words))

    if _can_resume(record):
        purpose = "Resume unfinished items" if record.runs else "Execute it"
        blocked = ("--skip-blocked",) if _needs_skip_blocked(record) else ()
        yield command(purpose, "resume", *blocked)
    if any(each.is_done and not each.undo_started for each in record.items.values()):
        purpose = "Compare all values with the source"
        yield command(purpose, "verify", "--level", "checksums")
    if any(each.has_started and not each.is_undone for each in record.items.values()):
        purpose = "Continue undoing" if record.undo_has_started else "Undo it"
        yield command(purpose, "undo")
    yield command("Show its state", "show")


def _can_resume(record: Record) -> bool:
    """Return whether a run would have anything to do. Undone migrations cannot run again."""
    to_do = [each for each in record.items.values() if each.item.is_to_do]
    return not record.undo_has_started and any(each.state not in _OVER for each in to_do)


def _needs_skip_blocked(record: Record) -> bool:
    """Return whether --skip-blocked must be given, because the last run did not have it."""
    runs = [each for each in record.runs if each.event == "run"]
    return bool(record.plan.blocked) and not (runs and runs[-1].options.get("skip_blocked"))
