"""What is wrong with a catalog and its tables, and the command that mends each."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lance_bridge.exit_codes import FOUND

from .common import CatalogName, OutputOption, Properties, pairs, require_catalog, told
from .durations import duration
from .output import Output, counting, message, table_of, tell_parts
from .paging import PageToken

if TYPE_CHECKING:
    from lance_bridge_doctor import Diagnosis


def doctor(
    catalog: CatalogName,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Look at as many tables and directories.")
    ] = 1000,
    page_token: PageToken = None,
    idle: Annotated[
        str,
        typer.Option("--idle", help="Leave out what somebody may still be making: 0m, 90m or 1d."),
    ] = "1h",
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Find what is wrong, and say the command that mends it. Nothing is changed.

    It looks for: what keeps from connecting, clocks that differ, tables whose data is gone, tables
    that were declared and never written, marks that disagree, versions written past the catalog,
    and data without an entry. The exit code is 3 where anything is found.

    Example: lance-bridge doctor prod --limit 100
    """
    from lance_bridge_doctor import diagnose  # noqa: PLC0415 - takes seconds to import

    given, age = pairs(properties), duration("--idle", idle)
    require_catalog(catalog)
    with told(), counting(f"doctor {catalog}") as counted:
        found = diagnose(catalog, given, limit=limit, page_token=page_token, idle=age, told=counted)
    tell_parts(output, {"catalog": catalog, **asdict(found)}, _parts(catalog, found))
    if found.page_token:
        message(f"there is more to look at: go on with --page-token {found.page_token}")
    if found.findings:
        raise typer.Exit(FOUND)


def _parts(catalog: str, found: Diagnosis) -> list[Table | str]:
    looked = f"{found.tables} tables and {found.directories} directories were looked at"
    if not found.findings:
        return [f"{catalog}: nothing is wrong; {looked}"]
    parts: list[Table | str] = []
    for each in found.findings:
        parts += [
            f"{each.kind.value}: {each.subject}",
            f"  {each.message}",
            f"  {each.command}",
            "",
        ]
    counts: dict[str, int] = {}
    for each in found.findings:
        counts[each.kind.value] = counts.get(each.kind.value, 0) + 1
    rows = [{"finding": kind, "number": number} for kind, number in counts.items()]
    return [*parts, table_of(["finding", "number"], rows), f"{catalog}: {looked}"]
