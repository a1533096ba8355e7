"""What the commands of migrations share: planning, running, and telling of plans and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import lance_bridge_migrate as migrations
from lance_bridge.exit_codes import FAILED, FOUND, INTERRUPTED
from lance_bridge_migrate.levels import Level

from .common import exit_on_error, parse_key_values, parse_name, usage_error
from .output import Output, key_value_table, make_table, message, print_parts, spinner
from .plans import SHOWN, more_items, tell_plan

if TYPE_CHECKING:
    from lance_bridge_migrate.kind import AnyKind


def http_url(value: str | None) -> str | None:
    """Return a URL that a result can be posted to; end the command where it is none."""
    if value is not None and not value.lower().startswith(("http://", "https://")):
        raise usage_error("--when-done-url is given as http://… or https://…")
    return value


Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include", "-i", help="Tables to take, as a pattern: sales.*. Repeatable; all by default."
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", "-x", help="Tables to leave out, as a pattern. Repeatable."),
]
Execute = Annotated[
    bool,
    typer.Option(
        "--execute/--dry-run", help="Carry the plan out, or show and keep it and change nothing."
    ),
]
AtOnce = Annotated[
    int | None,
    typer.Option("--at-once", min=1, max=64, help="Tables to work on at the same time."),
]
Verify = Annotated[
    Level | None, typer.Option("--verify", help="How thoroughly each table is verified.")
]
SkipBlocked = Annotated[
    bool, typer.Option("--skip-blocked", help="Leave out tables that are blocked.")
]
StopOnError = Annotated[
    bool, typer.Option("--stop-on-error", help="Begin no other table once one has failed.")
]
WhenDone = Annotated[
    str | None,
    typer.Option(
        "--when-done",
        help="A command to run at the end; it gets LANCE_BRIDGE_MIGRATION and "
        "LANCE_BRIDGE_MIGRATION_STATE.",
    ),
]
WhenDoneUrl = Annotated[
    str | None,
    typer.Option(
        "--when-done-url",
        help="Where the result is posted at the end, as JSON: http:// or https://.",
        callback=http_url,
    ),
]
StateDirectory = Annotated[
    str | None,
    typer.Option(
        "--state",
        help="Where plans and journals are kept; $LANCE_BRIDGE_STATE by default.",
    ),
]
Into = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The target's namespace: db, or main.db.")
]
NoNamespaces = Annotated[
    bool,
    typer.Option("--make-namespaces/--no-namespaces", help="Make namespaces that are missing."),
]
SourceProperties = Annotated[
    list[str] | None,
    typer.Option("--source-property", "-s", help="A property of the source: key=value."),
]


@dataclass(frozen=True)
class Choices:
    """What all kinds' commands take. None leaves it to the last run, or to the default."""

    execute: bool
    at_once: int | None = None
    verify: Level | None = None
    skip_blocked: bool = False
    state: str | None = None
    output: Output = Output.TEXT
    stop_on_error: bool = False
    when_done: str | None = None
    when_done_url: str | None = None


def selected(include: Sequence[str] | None, exclude: Sequence[str] | None) -> dict[str, Any]:
    """Return the options of a selection of tables."""
    chosen = {"include": list(include or ()), "exclude": list(exclude or ())}
    return {key: value for key, value in chosen.items() if value}


def catalogs_between(
    namespace: str | None,
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
    *,
    make_namespaces: bool,
) -> dict[str, Any]:
    """Return the options of what goes from one catalog into another."""
    options: dict[str, Any] = {"make_namespaces": make_namespaces, **selected(include, exclude)}
    if namespace is not None:
        options["namespace"] = parse_name(namespace)
    return options


def migrate(
    kind_name: str,
    ends: migrations.Ends[Any, Any],
    options: Mapping[str, Any],
    how: Choices,
    follows: str | None = None,
) -> None:
    """Plan a migration, keep the plan, and show it or carry it out; end the command by its state.

    Args:
        follows: The migration that this one continues.

    Exit codes: 0 done, or planned; 1 tables failed, or something was refused; 3 the plan has tables
    that are blocked, or verifying found a difference; 130 Ctrl-C.
    """
    with exit_on_error():
        kind = migrations.kind_named(kind_name)
        message(f"planning {kind_name}: looking at {ends.source_address} and {ends.target_address}")
        with spinner(f"plan {kind_name}"):
            plan = migrations.make_plan(kind, ends, dict(options), follows)
        migration = migrations.Migrations(how.state).add(plan)
        if how.execute:
            run(kind, ends, migration, how)
            return
    tell_plan(plan, how.output)
    if plan.blocked:
        raise typer.Exit(FOUND)


def run(
    kind: AnyKind, ends: migrations.Ends[Any, Any], migration: migrations.Migration, how: Choices
) -> None:
    """Carry out a plan, or go on with it; tell of it, and end the command by its state."""
    # Takes seconds to import.
    from lance_bridge_migrate.run_options import options_of_last_run  # noqa: PLC0415

    from .progress import log_file, watched  # noqa: PLC0415
    from .when_done import notify_when_done, run_when_done  # noqa: PLC0415

    options = options_of_last_run(migration.record())
    given = {
        "at_once": how.at_once,
        "verify": how.verify,
        "skip_blocked": how.skip_blocked or None,
        "stop_on_error": how.stop_on_error or None,
    }
    chosen = options.model_copy(update={k: v for k, v in given.items() if v is not None})
    name = migration.directory.name
    with (
        watched(f"migrate {name}") as watcher,
        interruptible(f"lance-bridge migrate resume {name}"),
        log_file(migration.directory) as log,
    ):
        record = migrations.execute(kind, ends, migration, chosen, watcher)
    if record.counts.get(migrations.State.FAILED) and log.exists():
        message(f"the stacks of the failures are in {log}")
    tell_record(record, how.output)
    if how.when_done is not None:
        run_when_done(how.when_done, record)
    if how.when_done_url is not None:
        notify_when_done(how.when_done_url, record)
    end_by(record)


@contextmanager
def reconnected(
    migration: migrations.Migration, source: Sequence[str] | None, target: Sequence[str] | None
) -> Iterator[tuple[AnyKind, migrations.Ends[Any, Any]]]:
    """Connect both ends of a migration that is kept; the given properties are added."""
    from lance_bridge_migrate.ends import SPARK  # noqa: PLC0415 - takes seconds to import

    from .spark_log import spark_log  # noqa: PLC0415 - takes seconds to import

    plan = migration.plan()
    kind = migrations.kind_named(plan.kind)
    with ExitStack() as stack:
        with ExitStack() as starting:
            if SPARK in (plan.source.name, plan.target.name):
                starting.enter_context(spark_log(migration.directory.parent.parent))
            source_end = stack.enter_context(
                kind.connect_source(plan.source, parse_key_values(source))
            )
            target_end = stack.enter_context(
                kind.connect_target(plan.target, parse_key_values(target))
            )
        ends = migrations.Ends(source_end, target_end, plan.source, plan.target)
        yield kind, ends


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """Say on Ctrl-C how to go on, and end the command."""
    try:
        yield
    except KeyboardInterrupt:
        message(f"stopped, and all that was done is noted; go on with: {command}")
        raise typer.Exit(INTERRUPTED) from None


def end_by(record: migrations.Record) -> None:
    """End the command with the code that a record's state stands for."""
    counts = record.counts
    if counts.get(migrations.State.FAILED):
        raise typer.Exit(FAILED)
    if counts.get(migrations.State.DIFFERS):
        raise typer.Exit(FOUND)


# -- telling ---------------------------------------------------------------------------------------


def tell_record(record: migrations.Record, output: Output) -> None:
    """Show what became of a migration."""
    from lance_bridge_migrate import orphans  # noqa: PLC0415 - takes seconds to import

    parts: list[Table | str] = [key_value_table(summary(record))]
    states = list(record.items.values())
    rows = [
        {
            "target": each.item.name,
            "state": each.state.value,
            "seconds": round(each.seconds, 3),
            "verified": each.verified,
        }
        for each in states[:SHOWN]
    ]
    if rows:
        parts.append(make_table(["target", "state", "seconds", "verified"], rows))
    parts += more_items(len(states))
    parts += [f"{each.item.name}: {text}" for each in states if (text := _problem(each))]
    parts += [
        f"{each.item.name}: {text}"
        for each in states
        for text in orphans.texts_of(each, record.plan.target)
    ]
    parts += _how_to_continue(record)
    print_parts(output, as_fields(record), parts)


def _how_to_continue(record: migrations.Record) -> list[Table | str]:
    parts: list[Table | str] = []
    if record.runs and record.runs[-1].gave_up:
        parts.append(f"The run was {record.runs[-1].gave_up}.")
    left = record.counts.get(migrations.State.FAILED, 0) + record.counts.get(
        migrations.State.BEGUN, 0
    )
    if left and not record.undo_has_begun:
        id = record.plan.id
        parts.append(
            f"To try what is left again: lance-bridge migrate resume {id}. To take everything "
            f"back: lance-bridge migrate undo {id}. Both delete the files of interrupted loads."
        )
    return parts


def as_fields(record: migrations.Record) -> dict[str, Any]:
    """Return a record as JSON has it: with the states that follow from its events."""
    fields = record.model_dump(mode="json")
    fields["state"] = record.state.value
    fields["counts"] = {state.value: count for state, count in record.counts.items()}
    for key, each in record.items.items():
        fields["items"][key]["state"] = each.state.value
    return fields


def summary(record: migrations.Record) -> dict[str, Any]:
    """Return a line's worth of a migration."""
    counts = ", ".join(f"{count} {state.value}" for state, count in record.counts.items())
    return {
        "migration": record.plan.id,
        "kind": record.plan.kind,
        "from": str(record.plan.source),
        "to": str(record.plan.target),
        "state": record.state.value,
        "items": counts,
    }


def _problem(each: migrations.ItemState) -> str:
    if each.error is not None:
        return str(each.error.message)
    return "; ".join(
        f"{check.name}{' of ' + check.column if check.column else ''}: "
        f"expected {check.expected!r}, found {check.found!r}"
        for check in each.checks
        if not check.ok
    )
