"""Commands for implementation-managed tables, and for versions written past the catalog."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lance_bridge.exit_codes import FAILED, FOUND

from .arguments import (
    CatalogName,
    OutputOption,
    Properties,
    TableName,
    Yes,
    confirm,
    connected,
    parse_key_values,
    parse_name,
    usage_error,
)
from .output import Output, message, print_result, print_table_result
from .suggestions import property_options

if TYPE_CHECKING:
    from lance_bridge.errors import RowsOnlyHereError
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
    print_table_result(output, table, "the catalog manages its versions", managed=True)


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
    print_table_result(output, table, "the storage manages its versions", managed=False)


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
        "unique": list(found.unique),
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
    if found.unique:
        lines.append(f"{table}: rows that nothing else has: {', '.join(found.unique)}")
    return "\n".join(lines) or f"{table}: every version was committed through the catalog"


@app.command()
def adopt(
    catalog: CatalogName,
    table: TableName,
    *,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Append the rows that only these versions have, if they cannot be adopted.",
        ),
    ] = False,
    versions: Annotated[
        str | None,
        typer.Option(
            "--versions",
            help="With --append: delete these with rows that the table has deleted: 7,8",
        ),
    ] = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Add versions that bypassed the catalog to the table.

    Example: lance-bridge managed adopt prod sales.embeddings
    """
    named = _parse_versions(versions)
    with connected(catalog, properties) as namespace:
        latest = namespace.adopt_out_of_band_versions(
            parse_name(table), append=append, versions=named
        )
    print_table_result(output, table, f"the latest version is {latest}", version=latest)


@app.command()
def discard(
    catalog: CatalogName,
    table: TableName,
    *,
    versions: Annotated[
        str | None,
        typer.Option(
            "--versions", help="Delete only these, also if nothing else has their rows: 7,8"
        ),
    ] = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
    yes: Yes = False,
) -> None:
    """Delete versions that bypassed the catalog. This cannot be undone.

    A version with rows that nothing else has is deleted only if --versions names it.

    Example: lance-bridge managed discard prod sales.embeddings --versions 2 --yes
    """
    named = _parse_versions(versions)
    which = "the versions" if named is None else f"versions {versions}"
    confirm(f"Delete {which} of {table} that bypassed the catalog?", yes=yes)
    from lance_bridge.errors import RowsOnlyHereError  # noqa: PLC0415 - takes seconds to import

    with connected(catalog, properties) as namespace:
        try:
            count = namespace.discard_out_of_band_versions(parse_name(table), named)
        except RowsOnlyHereError as error:
            given = property_options(namespace, parse_key_values(properties))
            message(_explain_refusal(error, catalog, table, given))
            raise typer.Exit(FAILED) from error
    print_table_result(output, table, f"{count} discarded", discarded=count)


def _explain_refusal(
    error: RowsOnlyHereError, catalog: str, table: str, given: Sequence[str]
) -> str:
    """Return why nothing was discarded, and the commands that keep the rows or delete them.

    Args:
        given: The options of the command for the catalog's properties.
    """
    how = [] if error.can_adopt else ["--append"]
    keep = ["lance-bridge", "managed", "adopt", catalog, table, *how, *given]
    numbers = ",".join(map(str, error.versions))
    delete = ["lance-bridge", "managed", "discard", catalog, table, "--versions", numbers, *given]
    return f"{error}. To keep them: {shlex.join(keep)}. To delete them: {shlex.join(delete)}"


def _parse_versions(text: str | None) -> list[int] | None:
    """Return the numbers in an option, if it is given; exit if it is malformed."""
    if text is None:
        return None
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() for each in parts):
        raise usage_error("--versions must be numbers, separated by commas, such as 7,8")
    return [int(each) for each in parts]
