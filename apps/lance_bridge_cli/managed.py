"""Commands for implementation-managed tables, and for versions written past the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lance_bridge.exit_codes import FOUND

from .common import (
    CatalogName,
    OutputOption,
    Properties,
    TableName,
    Yes,
    confirm,
    connected,
    parse_name,
)
from .output import Output, print_result

if TYPE_CHECKING:
    from lance_bridge.managed import OutOfBand

app = typer.Typer()


@app.command()
def begin(
    catalog: CatalogName,
    table: TableName,
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Take the versions from another entry that manages them. Its writes are refused "
            "from then on.",
        ),
    ] = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Have the catalog manage a table's versions. Stop its writers first.

    Example: lance-bridge managed begin hive sales.embeddings -p uri=thrift://metastore:9083
    """
    with connected(catalog, properties) as namespace:
        namespace.manage_table(parse_name(table), force=force)
    fields = {"table": table, "managed": True}
    print_result(output, f"{table}: the catalog manages its versions", fields)


@app.command()
def end(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Return a table's versions to its storage.

    Example: lance-bridge managed end prod sales.embeddings
    """
    with connected(catalog, properties) as namespace:
        namespace.release_table(parse_name(table))
    fields = {"table": table, "managed": False}
    print_result(output, f"{table}: the storage manages its versions", fields)


@app.command()
def check(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List versions that bypassed the catalog. The exit code is 3 if there are any.

    Example: lance-bridge managed check prod sales.embeddings
    """
    with connected(catalog, properties) as namespace:
        found = namespace.list_out_of_band_versions(parse_name(table))
    fields = {
        "table": table,
        "versions": [each.version for each in found.versions],
        "quarantined": list(found.quarantined),
        "quarantined_versions": list(found.quarantined_versions),
        "writers": list(found.writers),
    }
    print_result(output, _format_out_of_band(table, found), fields)
    if found.versions or found.quarantined:
        raise typer.Exit(FOUND)


def _format_out_of_band(table: str, found: OutOfBand) -> str:
    lines = [f"{table}: version {each.version} was not committed" for each in found.versions]
    lines += [
        f"{table}: {name if version is None else f'version {version}'} is quarantined ({name})"
        for version, name in zip(found.quarantined_versions, found.quarantined, strict=True)
    ]
    if found.writers:
        lines.append(f"{table}: written by {', '.join(found.writers)}")
    return "\n".join(lines) or f"{table}: every version was committed through the catalog"


@app.command()
def adopt(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Add versions that bypassed the catalog to the table.

    Example: lance-bridge managed adopt prod sales.embeddings
    """
    with connected(catalog, properties) as namespace:
        latest = namespace.adopt_out_of_band_versions(parse_name(table))
    fields = {"table": table, "version": latest}
    print_result(output, f"{table}: the latest version is {latest}", fields)


@app.command()
def discard(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
    yes: Yes = False,
) -> None:
    """Delete versions that bypassed the catalog. This cannot be undone.

    Example: lance-bridge managed discard prod sales.embeddings --yes
    """
    confirm(f"Delete the versions of {table} that bypassed the catalog?", yes=yes)
    with connected(catalog, properties) as namespace:
        count = namespace.discard_out_of_band_versions(parse_name(table))
    print_result(output, f"{table}: {count} discarded", {"table": table, "discarded": count})
