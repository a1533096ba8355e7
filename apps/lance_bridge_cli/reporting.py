"""The report of a migration, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import lance_bridge_migrate as migrations

from .common import OutputOption, exit_on_error
from .completion import migration_ids
from .migrating import StateDirectory
from .output import Output, print_result

_PAGE = "report.html"


def report(
    id: Annotated[
        str,
        typer.Argument(
            help="The migration's identifier: see migrate list.", autocompletion=migration_ids
        ),
    ],
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            help="The page, as FILE.html; JSON goes beside it. In the migration's own directory by "
            "default.",
        ),
    ] = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write what became of a migration as a page with plots, and as JSON.

    The page is one file, which loads nothing from elsewhere.

    Example: lance-bridge migrate report 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        # Takes a second to import, and needs an extra.
        from lance_bridge_migrate.report import report_of, write  # noqa: PLC0415

        migration = migrations.Migrations(state).get(id)
        made = report_of(migration.record(), str(Path(state).absolute()) if state else None)
        page, data = write(made, to or migration.directory / _PAGE)
    print_result(output, f"{page}\n{data}", made.model_dump(mode="json"))
