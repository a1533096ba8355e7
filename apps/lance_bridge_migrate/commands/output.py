"""Print plans and records of migrations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from rich.table import Table

import lance_bridge_migrate as migrations
from lance_bridge_cli.output import Output, key_value_table, make_table, print_parts

if TYPE_CHECKING:
    from lance_bridge_migrate import Item, ItemState, Plan, Record
    from lance_bridge_migrate.plan import Problem

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
        without = " without the blocked items" if plan.blocked else ""
        command = f"lance-bridge migrate resume {plan.id}{' --skip-blocked' * bool(without)}"
        parts.append(f"Nothing was changed. To execute this plan{without}: {command}")
    print_parts(output, plan.model_dump(mode="json"), parts)


def _problem_line(item: Item, problem: Problem) -> str:
    """Return a line for a problem, with its column unless the text has it."""
    column = f"'{problem.column}'" if problem.column else ""
    name = item.name if column in problem.text else f"{item.name}, column {column}"
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


def _how_to_continue(record: Record) -> Iterator[str]:
    if record.runs and record.runs[-1].stop_reason:
        yield f"The run was {record.runs[-1].stop_reason}."
    counts, state = record.counts, migrations.State
    if counts.get(state.FAILED, 0) + counts.get(state.STARTED, 0) and not record.undo_has_started:
        id = record.plan.id
        yield (
            f"To retry unfinished items: lance-bridge migrate resume {id}. To undo the migration: "
            f"lance-bridge migrate undo {id}. Both delete the files of interrupted loads."
        )


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
