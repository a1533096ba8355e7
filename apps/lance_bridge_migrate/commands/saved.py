"""The commands for saved migrations: resume, list, show, verify, undo and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import lance_bridge_migrate as migrations
from lance_bridge_cli.common import OutputOption, exit_on_error
from lance_bridge_cli.output import (
    Output,
    RowsOption,
    RowsOutput,
    message,
    print_list,
    print_result,
)

from ..levels import Level
from .options import (
    Execution,
    MigrationId,
    Reconnection,
    SourceProperties,
    StateDirectory,
    with_options,
)
from .output import print_plan, print_record, summary
from .running import exit_by_state, interruptible, reconnected, run

saved = typer.Typer()
_PAGE = "report.html"
_COLUMNS = ("migration", "type", "from", "to", "state", "items")
_UNREADABLE = "cannot be read"
_SECOND = len("20260101-120000")
"""The length of the date and time that identifiers begin with."""


@saved.command()
@with_options
def resume(
    id: MigrationId, *, source_properties: SourceProperties = None, execution: Execution
) -> None:
    """Execute a saved plan, or continue where its last run ended.

    Secrets that are not in the environment or the configuration file must be passed again.

    Example: lance-bridge migrate resume 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        migration = migrations.Migrations(execution.state).get(id)
        connection = reconnected(migration, source_properties, execution.properties)
        with connection as (migration_type, endpoints):
            run(migration_type, endpoints, migration, execution)


@saved.command("list")
def list_(
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="List only the latest.")
    ] = None,
    state: StateDirectory = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List saved migrations, oldest first.

    Example: lance-bridge migrate list
    """
    with exit_on_error():
        kept = migrations.Migrations(state)
        found = sorted((_summarize(kept, id) for id in kept.ids()), key=lambda each: each[0])
    rows = [row for _, row in found]
    print_list(output, _COLUMNS, rows[-(limit or 0) :], "migrations")


def _summarize(kept: migrations.Migrations, id: str) -> tuple[tuple[str, str], dict[str, Any]]:
    """Return the time to sort a migration by, and its row.

    A migration that cannot be read does not hide the others: its error is printed.
    """
    from lance_bridge.errors import LanceNamespaceError  # noqa: PLC0415 - takes long to import

    second = id[:_SECOND]
    try:
        record = kept.get(id).record()
    except LanceNamespaceError as error:
        message(f"{id} cannot be read: {error}")
        return (second, ""), {**dict.fromkeys(_COLUMNS), "migration": id, "state": _UNREADABLE}
    return (second, record.plan.created), summary(record)


@saved.command()
def show(id: MigrationId, state: StateDirectory = None, output: OutputOption = Output.TEXT) -> None:
    """Show a plan, or the state of a migration that was run.

    Example: lance-bridge migrate show 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        record = migrations.Migrations(state).get(id).record()
    if record.state is migrations.State.PLANNED:
        print_plan(record.plan, output)
    else:
        print_record(record, output)


@saved.command()
@with_options
def verify(
    id: MigrationId,
    *,
    level: Annotated[
        Level,
        typer.Option("--level", "-l", help="Verification level; each includes the previous one."),
    ] = Level.COUNTS,
    again: Reconnection,
) -> None:
    """Compare what a migration made with its source. The exit code is 3 if they differ.

    Example: lance-bridge migrate verify 20260101-120000-register-0a1b2c --level sample
    """
    from .progress import progress_bar  # noqa: PLC0415 - takes seconds to import

    with exit_on_error():
        migration = migrations.Migrations(again.state).get(id)
        connection = reconnected(migration, again.source_properties, again.properties)
        with (
            connection as (migration_type, endpoints),
            progress_bar(f"verify {id}") as bar,
        ):
            record = migrations.verify(
                migration_type,
                endpoints,
                migration,
                level,
                at_once=again.at_once or 8,
                progress=bar,
            )
    print_record(record, again.output)
    exit_by_state(record)


@saved.command()
@with_options
def undo(
    id: MigrationId,
    *,
    skip_changed: Annotated[
        bool, typer.Option("--skip-changed", help="Skip items that others have changed since.")
    ] = False,
    again: Reconnection,
) -> None:
    """Undo what a migration did, unless another writer has changed it since. The source stays.

    Example: lance-bridge migrate undo 20260101-120000-register-0a1b2c
    """
    from .progress import progress_bar  # noqa: PLC0415 - takes seconds to import

    with exit_on_error():
        migration = migrations.Migrations(again.state).get(id)
        connection = reconnected(migration, again.source_properties, again.properties)
        with (
            connection as (migration_type, endpoints),
            progress_bar(f"undo {id}") as bar,
            interruptible(f"lance-bridge migrate undo {id}"),
        ):
            record = migrations.undo(
                migration_type,
                endpoints,
                migration,
                skip_changed=skip_changed,
                at_once=again.at_once or 8,
                progress=bar,
            )
    print_record(record, again.output)
    exit_by_state(record)


@saved.command()
def report(
    id: MigrationId,
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            help="The page, as FILE.html, with JSON beside it. By default in the migration's own "
            "directory.",
        ),
    ] = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write a report of a migration as a page with plots, and as JSON.

    The page is one file, which loads nothing from elsewhere.

    Example: lance-bridge migrate report 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        # Takes a second to import, and needs an extra.
        from ..report import report_of, write  # noqa: PLC0415

        migration = migrations.Migrations(state).get(id)
        made = report_of(migration.record(), str(Path(state).absolute()) if state else None)
        page, data = write(made, to or migration.directory / _PAGE)
    print_result(output, f"{page}\n{data}", made.model_dump(mode="json"))
