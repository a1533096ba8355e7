"""How a plan is shown to people: what is to be done, how much that is, and how to go on."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from rich.table import Table

from .output import Output, key_value_table, make_table, print_parts

if TYPE_CHECKING:
    from lance_bridge_migrate import Item, Plan

SHOWN = 50
"""Items of a plan or record that people are shown; JSON has all."""
_WHERE_KNOWN = ("format", "rows", "size")
"""Columns of a plan that not all migrations have."""
_BYTES_PER_SECOND, _SECONDS_PER_TABLE = 20e6, 1.0
"""What a machine with two cores does; an estimate is no more than that."""


def tell_plan(plan: Plan, output: Output) -> None:
    """Show what a plan will do."""
    fields = plan.model_dump(mode="json")
    todo = len(plan.to_do)
    head = {
        "migration": plan.id,
        "from": str(plan.source),
        "to": str(plan.target),
        "to do": todo,
        "blocked": len(plan.blocked),
        "nothing to do": sum(bool(item.nothing_to_do) for item in plan.items),
    }
    parts: list[Table | str] = [key_value_table({**head, **_estimate(plan)})]
    if plan.items:
        rows = [_plan_row(item) for item in plan.items]
        known = [name for name in _WHERE_KNOWN if any(row[name] is not None for row in rows)]
        parts.append(make_table(["source", "target", *known, "plan"], rows[:SHOWN]))
    parts += more_items(len(plan.items))
    problems = [(item, each) for item in plan.items for each in item.problems]
    parts += [f"{each.severity.value}: {item.name}: {each.text}" for item, each in problems]
    parts += [f"Note: {note}." for note in plan.notes]
    if todo:
        parts.append(_how_to_run(plan))
    print_parts(output, fields, parts)


def _how_to_run(plan: Plan) -> str:
    command = f"lance-bridge migrate resume {plan.id}"
    if not plan.blocked:
        return f"Nothing was changed. To carry this out: {command}"
    return (
        f"Nothing was changed. To carry this out without what is blocked: {command} --skip-blocked"
    )


def _plan_row(item: Item) -> dict[str, Any]:
    from lance_bridge_migrate.plan import What  # noqa: PLC0415 - takes seconds to import

    what = item.nothing_to_do or ("blocked" if item.blockers else "to do")
    source = "" if item.what is What.NAMESPACE else ".".join(item.source)
    return {
        "source": source,
        "target": item.name,
        "format": item.facts.get("source", {}).get("format") if item.facts else None,
        "rows": None if item.rows is None else f"{item.rows:,}",
        "size": None if item.bytes is None else decimal(item.bytes),
        "plan": what,
    }


def _estimate(plan: Plan) -> dict[str, str]:
    """Return the size of what is to be moved, and about how long that takes."""
    sizes = [item.bytes for item in plan.to_do if item.bytes is not None]
    if not sizes:
        return {}
    seconds = sum(sizes) / _BYTES_PER_SECOND + len(sizes) * _SECONDS_PER_TABLE
    return {
        "size": decimal(sum(sizes)),
        "estimated time": f"about {timedelta(seconds=math.ceil(seconds))}",
    }


def more_items(count: int) -> list[Table | str]:
    """Say how many items are not shown."""
    return [f"… and {count - SHOWN} more: --output json has all"] if count > SHOWN else []
