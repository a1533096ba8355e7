"""A report computed from a record. Of facts, only those that are named here are taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import zip_longest
from typing import Literal

from .. import orphans
from ..journal import Check
from ..plan import Facts, Plan, What, now
from ..record import ItemState, Record, RunState
from .commands import commands_of
from .harmless import harmless, without_secrets
from .model import Amount, CheckLine, ItemLine, ProblemLine, Report, RunLine, StepLine, Totals


def report_of(record: Record, state_directory: str | None = None) -> Report:
    """Return what a report says of a migration.

    Args:
        state_directory: Where it is kept, if commands have to name that.
    """
    plan, states = record.plan, list(record.items.values())
    items = tuple(_item(each) for each in states)
    runs = tuple(_runs(record))
    checks = [line for each in states for line in _checks(each)]
    problems = sorted(_problems(states, plan), key=lambda each: _SEVERITIES[each.severity])
    made = Report(
        made=now(),
        migration=plan.id,
        kind=plan.kind,
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
        commands=tuple(commands_of(record, state_directory)),
    )
    return Report.model_validate(harmless(made.model_dump()))


_SEVERITIES = {"error": 0, "blocker": 1, "warning": 2}


# -- items -----------------------------------------------------------------------------------------


def _item(state: ItemState) -> ItemLine:
    item, facts, checks = state.item, state.facts, state.checks
    steps = tuple(
        StepLine(name=name, **each.model_dump(include={"begun", "done", "seconds", "undone"}))
        for name, each in state.steps.items()
    )
    seconds = state.seconds if any(each.done for each in steps) else None
    rows_written, bytes_written = _count(facts, "rows_written"), _count(facts, "bytes_written")
    location = facts.get("location")
    return ItemLine(
        what=item.what,
        source=item.source,
        target=item.target,
        state=state.state,
        nothing_to_do=item.nothing_to_do,
        location=location if isinstance(location, str) and location else None,
        rows_before=_first(item.rows, _rows(checks, lambda each: each.expected)),
        rows_written=rows_written,
        rows_deleted=_count(facts, "rows_deleted"),
        rows_found=_rows(checks, lambda each: each.found),
        bytes_before=_first(_count(facts, "bytes_before"), item.bytes),
        bytes_written=bytes_written,
        bytes_after=_count(facts, "bytes_after"),
        orphaned_bytes_deleted=_count(facts, "orphaned_bytes_deleted"),
        orphaned_bytes_left=_count(facts, "orphaned_bytes_left"),
        version=_count(facts, "version"),
        steps=steps,
        seconds=seconds,
        rows_per_second=_per_second(rows_written, seconds),
        bytes_per_second=_per_second(bytes_written, seconds),
        verified=state.verified,
    )


def _count(facts: Facts, name: str) -> int | None:
    return _whole(facts.get(name))


def _whole(value: object) -> int | None:
    """Return a number that counts something; None for whatever else a kind may have noted."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None


def _first(*values: int | None) -> int | None:
    return next((each for each in values if each is not None), None)


def _rows(checks: Iterable[Check], side: Callable[[Check], object]) -> int | None:
    return _first(*(_whole(side(each)) for each in checks if each.name == "rows"))


def _per_second(amount: int | None, seconds: float | None) -> float | None:
    return None if amount is None or not seconds else round(amount / seconds, 3)


# -- checks and problems ---------------------------------------------------------------------------


def _checks(state: ItemState) -> Iterator[CheckLine]:
    for each in state.checks:
        yield CheckLine(table=state.item.name, **each.model_dump())


def _problems(states: Iterable[ItemState], plan: Plan) -> Iterator[ProblemLine]:
    for state in states:
        table = state.item.name
        if state.error is not None:
            text, code = state.error.message, state.error.code
            yield ProblemLine(severity="error", table=table, text=text, code=code)
        for text in orphans.texts_of(state, plan.target):
            yield ProblemLine(severity="warning", table=table, text=text)
        for each in state.item.problems:
            yield ProblemLine(
                severity=each.severity.value, table=table, column=each.column, text=each.text
            )


# -- runs ------------------------------------------------------------------------------------------


def _runs(record: Record) -> Iterator[RunLine]:
    times = [
        time
        for state in record.items.values()
        for step in state.steps.values()
        for time in (step.begun, step.done, step.undone)
        if time
    ]
    for run, following in zip_longest(record.runs, record.runs[1:]):
        last = run.ended or _last_noted(run, following, times)
        yield RunLine(
            what=run.event,
            begun=run.begun,
            ended=run.ended,
            end=_end_of(run),
            seconds=_between(run.begun, last) if last else None,
            **{name: run.options.get(name) for name in ("at_once", "verify", "skip_blocked")},
        )


def _end_of(run: RunState) -> Literal["ended", "stopped", "not noted"]:
    if run.ended is None:
        return "not noted"
    return "stopped" if run.is_stopped else "ended"


def _last_noted(run: RunState, following: RunState | None, times: Iterable[str]) -> str | None:
    """Return when a run that was cut off was last heard of. Times sort as texts do."""
    return max(
        (
            each
            for each in times
            if run.begun <= each and (following is None or each < following.begun)
        ),
        default=None,
    )


def _between(begun: str, ended: str) -> float | None:
    first, last = _moment(begun), _moment(ended)
    if first is None or last is None:
        return None
    return round(max(0.0, (last - first).total_seconds()), 3)


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


# -- totals ----------------------------------------------------------------------------------------


def _totals(
    states: Sequence[ItemState], items: Sequence[ItemLine], runs: Sequence[RunLine]
) -> Totals:
    pairs = [pair for pair in zip(states, items, strict=True) if pair[1].what is What.TABLE]
    planned = [line for state, line in pairs if state.item.is_to_do]
    done = [line for state, line in pairs if state.is_done]
    took = [each.seconds for each in runs if each.what == "run" and each.seconds is not None]
    seconds = round(sum(took), 3) if took else None
    steps = [each.seconds for each in items if each.seconds is not None]
    rows_written = _amount(each.rows_written for each in done)
    bytes_written = _amount(each.bytes_written for each in done)
    return Totals(
        tables=len(pairs),
        tables_done=len(done),
        namespaces=len(items) - len(pairs),
        rows_planned=_amount(each.rows_before for each in planned),
        bytes_planned=_amount(each.bytes_before for each in planned),
        rows_written=rows_written,
        bytes_before=_amount(each.bytes_before for each in done),
        bytes_written=bytes_written,
        bytes_after=_amount(each.bytes_after for each in done),
        size_ratio=_ratio(done),
        seconds=seconds,
        step_seconds=round(sum(steps), 3) if steps else None,
        tables_per_second=_per_second(len(done), seconds) if done else None,
        rows_per_second=_per_second(rows_written.total, seconds),
        bytes_per_second=_per_second(bytes_written.total, seconds),
    )


def _amount(values: Iterable[int | None]) -> Amount:
    asked = list(values)
    known = [each for each in asked if each is not None]
    return Amount(total=sum(known) if known else None, known=len(known), tables=len(asked))


def _ratio(items: Iterable[ItemLine]) -> float | None:
    before = after = 0
    for each in items:
        if each.bytes_before is not None and each.bytes_after is not None:
            before, after = before + each.bytes_before, after + each.bytes_after
    return round(after / before, 4) if before else None
