"""The command ``lance-bridge doctor``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lance_bridge.exit_codes import FOUND
from lance_bridge_cli.arguments import (
    CatalogName,
    OutputOption,
    PageToken,
    Properties,
    exit_on_error,
    parse_duration,
    parse_key_values,
    require_catalog,
)
from lance_bridge_cli.output import Output, make_table, message, print_parts, progress_bar

if TYPE_CHECKING:
    from .diagnosis import Diagnosis


def doctor(
    catalog: CatalogName,
    *,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, help="Maximum of tables and directories to check."),
    ] = 1000,
    page_token: PageToken = None,
    idle: Annotated[
        str,
        typer.Option("--idle", help="Skip more recent changes, which may be in progress."),
    ] = "1h",
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Find problems, and print the command that fixes each. Nothing is changed.

    It checks the connection and clocks, and finds tables whose data is gone, tables that were
    declared and never written, inconsistent entries, versions that bypassed the catalog, and data
    without an entry. Of a gateway (impl=rest), it finds the catalogs that do not respond to it. The
    exit code is 3 if it finds anything.

    Example: lance-bridge doctor prod --limit 100
    """
    from .diagnosis import diagnose  # noqa: PLC0415 - takes seconds to import

    given, age = parse_key_values(properties), parse_duration("--idle", idle)
    require_catalog(catalog, or_gateway=True)
    with exit_on_error(), progress_bar(f"doctor {catalog}") as report:
        found = diagnose(
            catalog, given, limit=limit, page_token=page_token, idle=age, report=report
        )
    print_parts(output, {"catalog": catalog, **asdict(found)}, _format(catalog, found))
    if found.page_token:
        message(f"more to check: use --page-token {found.page_token}")
    if found.findings:
        raise typer.Exit(FOUND)


def _format(catalog: str, found: Diagnosis) -> list[Table | str]:
    if found.catalogs is not None:
        checked = f"checked {found.catalogs} catalogs of the gateway"
    else:
        checked = f"checked {found.tables} tables and {found.directories} directories"
    if not found.findings:
        return [f"{catalog}: no problems found; {checked}"]
    parts = [
        f"{each.kind.value}: {each.subject}\n  {each.message}\n  {each.command}\n"
        for each in found.findings
    ]
    counts = Counter(each.kind.value for each in found.findings)
    rows = [{"finding": kind, "number": number} for kind, number in counts.items()]
    return [*parts, make_table(["finding", "number"], rows), f"{catalog}: {checked}"]
