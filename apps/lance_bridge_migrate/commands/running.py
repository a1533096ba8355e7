"""Plan and run migrations for commands, with connections, progress and exit codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import typer

import lance_bridge_migrate as migrations
from lance_bridge.exit_codes import FAILED, FOUND, INTERRUPTED
from lance_bridge_cli.common import exit_on_error, parse_key_values
from lance_bridge_cli.output import message, spinner

from .options import Execution, Planning
from .output import print_plan, print_record

if TYPE_CHECKING:
    from lance_bridge_migrate import Endpoints, Migration, MigrationType, Record


def plan_and_run(
    name: str,
    endpoints: Endpoints,
    options: Mapping[str, Any],
    planning: Planning,
    follows: str | None = None,
) -> None:
    """Plan a migration, save the plan, and print or execute it.

    Args:
        follows: The identifier of the migration that this one continues.

    Exit codes: 0 done, or planned; 1 tables failed, or something was refused; 3 the plan has
    blocked tables, or verification found a difference; 130 Ctrl-C.
    """
    with exit_on_error():
        migration_type = migrations.migration_type(name)
        message(
            f"planning {name}: reading {endpoints.source_address} and {endpoints.target_address}"
        )
        with spinner(f"plan {name}"):
            plan = migrations.make_plan(migration_type, endpoints, dict(options), follows)
        migration = migrations.Migrations(planning.state).add(plan)
        if planning.execute:
            run(migration_type, endpoints, migration, planning)
            return
    print_plan(plan, planning.output)
    if plan.blocked:
        raise typer.Exit(FOUND)


def run(
    migration_type: MigrationType, endpoints: Endpoints, migration: Migration, execution: Execution
) -> None:
    """Execute or resume a plan, print the record, and exit with the code for its state."""
    # Takes seconds to import.
    from ..run import options_of_last_run  # noqa: PLC0415
    from .notifications import notify_when_done, run_when_done  # noqa: PLC0415
    from .progress import log_file, progress_bar  # noqa: PLC0415

    given = {
        "at_once": execution.at_once,
        "verify": execution.verify,
        "skip_blocked": execution.skip_blocked or None,
        "stop_on_error": execution.stop_on_error or None,
    }
    options = options_of_last_run(migration.record()).model_copy(
        update={key: value for key, value in given.items() if value is not None}
    )
    id = migration.directory.name
    with (
        progress_bar(f"migrate {id}") as bar,
        interruptible(f"lance-bridge migrate resume {id}"),
        log_file(migration.directory) as log,
    ):
        record = migrations.execute(migration_type, endpoints, migration, options, bar)
    if record.counts.get(migrations.State.FAILED) and log.exists():
        message(f"the stack traces of the failures are in {log}")
    print_record(record, execution.output)
    if execution.when_done is not None:
        run_when_done(execution.when_done, record)
    if execution.when_done_url is not None:
        notify_when_done(execution.when_done_url, record)
    exit_by_state(record)


@contextmanager
def reconnected(
    migration: Migration, source: Sequence[str] | None, target: Sequence[str] | None
) -> Iterator[tuple[MigrationType, Endpoints]]:
    """Connect to the endpoints of a saved migration, with additional properties."""
    from ..endpoints import SPARK  # noqa: PLC0415 - takes seconds to import
    from .spark_session import spark_log  # noqa: PLC0415 - takes seconds to import

    plan = migration.plan()
    migration_type = migrations.migration_type(plan.type)
    with ExitStack() as stack:
        with ExitStack() as starting:
            if SPARK in (plan.source.name, plan.target.name):
                starting.enter_context(spark_log(migration.directory.parent.parent))
            one = stack.enter_context(
                migration_type.connect_source(
                    plan.source, parse_key_values(source, "--source-property")
                )
            )
            other = stack.enter_context(
                migration_type.connect_target(plan.target, parse_key_values(target))
            )
        yield migration_type, migrations.Endpoints(one, other, plan.source, plan.target)


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """On Ctrl-C, print the command that continues, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        message(f"stopped; progress is saved. Continue with: {command}")
        raise typer.Exit(INTERRUPTED) from None


def exit_by_state(record: Record) -> None:
    """Exit with the code for a record's state, unless it is 0."""
    state = migrations.State
    # A complete undo is a success, also of an item that had failed before its first step.
    if record.state in (state.FAILED, state.STARTED, state.UNDOING):
        raise typer.Exit(FAILED)
    if record.state is state.DIFFERS:
        raise typer.Exit(FOUND)
