"""Table maintenance: compaction, indices and clean-up, in this process or in a local Spark.

Also the plan of what a whole catalog needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.table import Table

from lance_bridge import dataset

from . import api
from .arguments import (
    CatalogName,
    OutputOption,
    Properties,
    TableName,
    connected,
    connected_or_federated,
    namespace_names,
    parse_duration,
    parse_key_values,
    parse_name,
    usage_error,
)
from .output import (
    Output,
    make_table,
    message,
    print_parts,
    print_result,
    print_table_result,
    progress_bar,
    spinner,
)

app = typer.Typer()

InSpark = Annotated[bool, typer.Option("--spark", help="Run in a Spark session of this machine.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done and change nothing.")
]
ENGINES = "lance_bridge.maintenance"
"""The group of entry points that provide an engine: see `lance_bridge_spark.jobs.engine`."""


@app.command()
def compact(
    catalog: CatalogName,
    table: TableName,
    *,
    target_rows: Annotated[
        int,
        typer.Option(
            "--target-rows", min=1, help="Rows per fragment; smaller fragments are merged."
        ),
    ] = dataset.SMALL_FRAGMENT,
    dry_run: DryRun = False,
    spark: InSpark = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Merge small fragments and remove deleted rows from files. The rows stay the same.

    Example: lance-bridge maintain compact prod sales.orders
    """
    names = parse_name(table)
    if spark and dry_run:
        raise usage_error("--dry-run works without Spark: leave out --spark")
    with connected(catalog, properties) as namespace:
        done: Any
        if spark:
            with _spark_session(catalog, properties) as session:
                done = session.compact(names, target_rows=target_rows)
        else:
            found = namespace.tables.load_by_id(names)
            with progress_bar(f"compact {table}") as report:
                done = dataset.compact(
                    found, target_rows=target_rows, dry_run=dry_run, on_progress=report
                )
    would = "would be " if dry_run else ""
    text = f"{done.fragments_removed} fragments {would}compacted, version {done.version}"
    print_table_result(output, table, text, dry_run=dry_run, **asdict(done))


@app.command()
def index(
    catalog: CatalogName,
    table: TableName,
    column: Annotated[str, typer.Argument(help="The column's path.")],
    *,
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="BTREE, BITMAP, INVERTED, IVF_PQ, and so on.")
    ] = "BTREE",
    name: Annotated[str | None, typer.Option("--name", help="The name of the index.")] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="For vectors: l2, cosine, dot or hamming.")
    ] = None,
    spark: InSpark = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Build an index on a column. It is ready when the command returns.

    Example: lance-bridge maintain index prod sales.orders id --kind BTREE
    """
    names = parse_name(table)
    connect = connected if spark else connected_or_federated
    with connect(catalog, properties) as namespace:
        if spark:
            with _spark_session(catalog, properties) as session:
                session.create_index(names, column, kind, name=name, metric=metric)
        else:
            request = api.CreateTableIndexRequest(
                id=names, column=column, index_type=kind, name=name, distance_type=metric
            )
            with spinner(f"index {table}.{column}"):
                namespace.create_table_index(request)
    built = dataset.default_index_name(column) if name is None else name
    text = f"index {built} is built"
    print_table_result(output, table, text, column=column, index=built, kind=kind)


@app.command("clean-up")
def clean_up(
    catalog: CatalogName,
    table: TableName,
    *,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", help="Time since a version was replaced: 90m, 36h or 14d; at least 1h."
        ),
    ] = "14d",
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Keep this many of the latest versions.")
    ] = None,
    dry_run: DryRun = False,
    spark: InSpark = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete old versions and files that no version uses. Tagged and recent versions are kept.

    Example: lance-bridge maintain clean-up prod sales.orders --older-than 7d --dry-run
    """
    names = parse_name(table)
    age = parse_duration("--older-than", older_than)
    options: dict[str, Any] = {"older_than": age, "keep_versions": keep, "dry_run": dry_run}
    with connected(catalog, properties) as namespace:
        if spark:
            with _spark_session(catalog, properties) as session:
                done = session.clean_up(names, **options)
        else:
            with spinner(f"clean up {table}"):
                done = dataset.clean_up(namespace.tables.load_by_id(names), **options)
    would = "would be deleted" if dry_run else "deleted"
    lines = [f"{table}: {done.versions} versions, {done.bytes} bytes {would}"]
    lines += [f"{table}: {reason}" for reason in done.kept]
    lines += [f"{table}: it is unknown whether this is a clone: {each}" for each in done.unread]
    print_result(output, "\n".join(lines), {"table": table, "dry_run": dry_run, **asdict(done)})


@app.command()
def plan(
    catalog: CatalogName,
    *,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Only tables in this namespace, and in those below it.",
            autocompletion=namespace_names,
        ),
    ] = "",
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the tables that need maintenance, those that gain most first. Nothing is changed.

    A table or namespace that cannot be read is named, and the others are listed.

    Example: lance-bridge maintain plan prod --namespace sales
    """
    from lance_bridge.names import written  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.requests import parse_namespace  # noqa: PLC0415 - the same

    parent = parse_name(namespace) if namespace else []
    with connected(catalog, properties) as found, progress_bar(f"plan {catalog}") as report:
        path = parse_namespace(parent, found.capabilities)
        planned = dataset.plan_maintenance(found.tables, path, on_progress=report)
    rows = [
        {"table": written(each.path), "actions": [step.value for step in each.actions]}
        | asdict(each.debt)
        for each in planned.due
    ]
    unplanned = [{"name": written(each.path), "reason": each.reason} for each in planned.unplanned]
    for each in unplanned:
        message(f"not planned: {each['name']}: {each['reason']}")
    counts = {"tables": planned.tables, "off": planned.off}
    fields = {"catalog": catalog, "due": rows, "unplanned": unplanned, **counts}
    print_parts(output, fields, _format_plan(catalog, planned, rows))


def _format_plan(
    catalog: str, planned: dataset.MaintenancePlan, rows: list[dict[str, Any]]
) -> list[Table | str]:
    text = f"{catalog}: {len(rows)} of {planned.tables} tables need maintenance"
    if planned.off:
        text += f"; for {planned.off} more it is off"
    if not rows:
        return [text]
    shown = [{**each, "actions": ", ".join(each["actions"])} for each in rows]
    return [make_table(list(rows[0]), shown), text]


def _spark_session(catalog: str, properties: Sequence[str] | None) -> AbstractContextManager[Any]:
    """Start Spark for a catalog.

    Raises:
        UnsupportedOperationError: (0) PySpark is not installed.
    """
    [engine] = metadata.entry_points(group=ENGINES, name="spark")
    session: AbstractContextManager[Any] = engine.load()(catalog, parse_key_values(properties))
    return session
