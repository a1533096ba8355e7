"""Upkeep of tables: compaction, indices and clean-up, in this process or in a local Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_bridge.names import written
from lance_bridge.tables.sizes import SMALL_FRAGMENT

from . import api
from .common import (
    CatalogName,
    OutputOption,
    Properties,
    TableName,
    connected,
    misused,
    names_of,
)
from .durations import duration
from .output import Output, counting, tell, working
from .session import spark_on

if TYPE_CHECKING:
    from lance_bridge.namespace import LanceBridgeNamespace
    from lance_bridge.table import Table

app = typer.Typer()

InSpark = Annotated[bool, typer.Option("--spark", help="Do it in a Spark session of this machine.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; tell what would be done.")]


@app.command()
def compact(
    catalog: CatalogName,
    table: TableName,
    *,
    target_rows: Annotated[
        int, typer.Option("--target-rows", min=1, help="Rows of a fragment; smaller ones join.")
    ] = SMALL_FRAGMENT,
    dry_run: DryRun = False,
    spark: InSpark = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Join small fragments, and drop deleted rows from files. No row changes.

    Example: lance-bridge maintain compact prod sales.orders
    """
    names = names_of(table)
    if spark and dry_run:
        raise misused("--dry-run is done without Spark: leave out --spark")
    with connected(catalog, properties) as namespace:
        done: Any
        if spark:
            with spark_on(catalog, properties) as (session, jobs, prefix):
                name = f"{prefix}.{written(names)}"
                done = jobs.compact(session, name, target_rows_per_fragment=target_rows)
        else:
            from lance_bridge.tables import compaction  # noqa: PLC0415 - takes seconds to import

            with counting(f"compact {table}") as told:
                done = compaction.compact(
                    _load_table(namespace, names),
                    target_rows=target_rows,
                    dry_run=dry_run,
                    told=told,
                )
    would = "would be " if dry_run else ""
    text = f"{table}: {done.fragments_removed} fragments {would}compacted, version {done.version}"
    tell(output, text, {"table": table, "dry_run": dry_run, **asdict(done)})


@app.command()
def index(
    catalog: CatalogName,
    table: TableName,
    column: Annotated[str, typer.Argument(help="The column's path.")],
    *,
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="BTREE, BITMAP, INVERTED, IVF_PQ, and so on.")
    ] = "BTREE",
    name: Annotated[str | None, typer.Option("--name", help="What to call it.")] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="For vectors: l2, cosine, dot or hamming.")
    ] = None,
    spark: InSpark = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Build an index on a column; it is ready when this ends.

    Example: lance-bridge maintain index prod sales.orders id --kind BTREE
    """
    names = names_of(table)
    with connected(catalog, properties) as namespace:
        if spark:
            with spark_on(catalog, properties) as (session, jobs, prefix):
                address = f"{prefix}.{written(names)}"
                jobs.create_index(session, address, column, kind, name=name, metric=metric)
        else:
            request = api.CreateTableIndexRequest(
                id=names, column=column, index_type=kind, name=name, distance_type=metric
            )
            with working(f"index {table}.{column}"):
                namespace.create_table_index(request)
    built = name or f"{column}_idx"
    fields = {"table": table, "column": column, "index": built, "kind": kind}
    tell(output, f"{table}: index {built} is built", fields)


@app.command("clean-up")
def clean_up(
    catalog: CatalogName,
    table: TableName,
    *,
    older_than: Annotated[
        str,
        typer.Option("--older-than", help="Age of a version's end: 90m, 36h or 14d; 1h at least."),
    ] = "14d",
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Keep as many of the latest in any case.")
    ] = None,
    dry_run: DryRun = False,
    spark: InSpark = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete old versions, and files that no version names. Tagged and young versions stay.

    Example: lance-bridge maintain clean-up prod sales.orders --older-than 7d --dry-run
    """
    names = names_of(table)
    given: dict[str, Any] = {
        "older_than": duration("--older-than", older_than),
        "keep_versions": keep,
    }
    with connected(catalog, properties) as namespace:
        if spark:
            with spark_on(catalog, properties) as (session, jobs, prefix):
                name = f"{prefix}.{written(names)}"
                done = jobs.clean_up(session, name, dry_run=dry_run, **given)
        else:
            from lance_bridge.tables import cleanup  # noqa: PLC0415 - takes seconds to import

            with working(f"clean up {table}"):
                found = _load_table(namespace, names)
                done = cleanup.clean_up(found, dry_run=dry_run, **given)
    text = f"{table}: {done.versions} versions, {done.bytes} bytes"
    text += " would be deleted" if dry_run else " deleted"
    tell(output, text, {"table": table, "dry_run": dry_run, **asdict(done)})


def _load_table(namespace: LanceBridgeNamespace, names: Sequence[str]) -> Table:
    from lance_bridge.entries import tables as entries  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.table import Table  # noqa: PLC0415 - takes seconds to import

    bridge = namespace._bridge
    return Table(bridge, entries.load_lance(bridge, bridge.table_path(names)))
