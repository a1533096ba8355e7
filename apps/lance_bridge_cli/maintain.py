"""Table maintenance: compaction, indices and clean-up, in this process or in a local Spark.

Also the plan of what a whole catalog needs, and a run of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import timedelta
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lance_bridge import dataset
from lance_bridge.exit_codes import FAILED

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

if TYPE_CHECKING:
    from lance_bridge import LanceBridgeNamespace

app = typer.Typer()

InSpark = Annotated[bool, typer.Option("--spark", help="Run in a Spark session of this machine.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done and change nothing.")
]
InNamespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Only tables in this namespace, and in those below it.",
        autocompletion=namespace_names,
    ),
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
    namespace: InNamespace = "",
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the tables that need maintenance, those that gain most first. Nothing is changed.

    A table or namespace that cannot be read is named, and the others are listed.

    Example: lance-bridge maintain plan prod --namespace sales
    """
    from lance_bridge.dotted_names import written  # noqa: PLC0415 - takes seconds to import

    with connected(catalog, properties) as found:
        planned = _plan(found, catalog, namespace)
    rows = [
        {"table": written(each.path), "actions": [step.value for step in each.actions]}
        | asdict(each.debt)
        for each in planned.due
    ]
    unplanned = _report_unplanned(planned)
    counts = {"tables": planned.tables, "off": planned.off}
    fields = {"catalog": catalog, "due": rows, "unplanned": unplanned, **counts}
    print_parts(output, fields, _format_plan(catalog, planned, rows))


def _plan(found: LanceBridgeNamespace, catalog: str, namespace: str) -> dataset.MaintenancePlan:
    from lance_bridge.requests import parse_namespace  # noqa: PLC0415 - takes seconds to import

    parent = parse_namespace(parse_name(namespace) if namespace else [], found.capabilities)
    with progress_bar(f"plan {catalog}") as report:
        return dataset.plan_maintenance(found.tables, parent, on_progress=report)


def _report_unplanned(planned: dataset.MaintenancePlan) -> list[dict[str, str]]:
    """Print a message for each table that is not planned; return them."""
    from lance_bridge.dotted_names import written  # noqa: PLC0415 - takes seconds to import

    found = [{"name": written(each.path), "reason": each.reason} for each in planned.unplanned]
    for each in found:
        message(f"not planned: {each['name']}: {each['reason']}")
    return found


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


@app.command("run")
def run_plan(
    catalog: CatalogName,
    *,
    namespace: InNamespace = "",
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="Begin nothing after this time: 90m, 36h or 14d."),
    ] = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Plan, and do once what is due: compact, extend the indices, clean up.

    Several runs at once share the tables. A table that another run or writer changes is left for
    later. The exit code is 1 if a table fails or cannot be planned; the others are maintained.

    Example: lance-bridge maintain run prod --budget 30m
    """
    limit = None if budget is None else parse_duration("--budget", budget)
    with connected(catalog, properties) as found:
        began = time.monotonic()
        planned = _plan(found, catalog, namespace)
        unplanned = _report_unplanned(planned)
        left = None if limit is None else limit - timedelta(seconds=time.monotonic() - began)
        done = []
        with progress_bar(f"maintain {catalog}") as report:
            for each in dataset.run_maintenance(found.tables, planned, left):
                done.append(each)
                report(len(done), len(planned.due))
    rows = [_describe_run(each) for each in done]
    fields = {"catalog": catalog, "tables": rows, "unplanned": unplanned}
    print_parts(output, fields, _format_run(catalog, rows))
    if unplanned or any(each.result is dataset.Result.FAILED for each in done):
        raise typer.Exit(FAILED)


def _describe_run(done: dataset.Maintained) -> dict[str, Any]:
    from lance_bridge.dotted_names import written  # noqa: PLC0415 - takes seconds to import

    return {
        "table": written(done.path),
        "result": done.result.value,
        "actions": [each.value for each in done.actions],
        "before": asdict(done.before),
        "after": None if done.after is None else asdict(done.after),
        "reason": done.reason,
    }


_DEBTS = ("small_fragments", "deleted_rows", "unindexed_rows", "old_versions")


def _format_run(catalog: str, rows: list[dict[str, Any]]) -> list[Table | str]:
    shown = []
    for each in rows:
        after = each["after"] or each["before"]
        debts = {key: f"{each['before'][key]} → {after[key]}" for key in _DEBTS}
        shown.append({**each, "actions": ", ".join(each["actions"])} | debts)
        if each["reason"]:
            message(f"{each['table']}: {each['result']}: {each['reason']}")
    results = Counter(each["result"] for each in rows)
    text = ", ".join(f"{number} {name}" for name, number in results.items()) or "nothing is due"
    if not shown:
        return [f"{catalog}: {text}"]
    return [make_table(["table", "result", "actions", *_DEBTS], shown), f"{catalog}: {text}"]


def _spark_session(catalog: str, properties: Sequence[str] | None) -> AbstractContextManager[Any]:
    """Start Spark for a catalog.

    Raises:
        UnsupportedOperationError: (0) PySpark is not installed.
    """
    [engine] = metadata.entry_points(group=ENGINES, name="spark")
    session: AbstractContextManager[Any] = engine.load()(catalog, parse_key_values(properties))
    return session


@app.command()
def purge(
    catalog: CatalogName,
    *,
    namespace: InNamespace = "",
    dry_run: DryRun = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete the dropped tables whose drop.retention is over, with their data.

    A table that cannot be deleted is named, and the exit code is 1.

    Example: lance-bridge maintain purge prod --dry-run
    """
    from lance_bridge.dotted_names import written  # noqa: PLC0415 - takes seconds to import

    parent = parse_name(namespace) if namespace else []
    purged, failed = list[str](), list[dict[str, str]]()
    with connected(catalog, properties) as found, spinner(f"purge {catalog}"):
        for each in found.tables.overdue(found.namespace_path(parent)):
            name = written(each.entry.path)
            try:
                if not dry_run:
                    found.tables.purge(each)
            except api.LanceNamespaceError as error:
                failed.append({"name": name, "reason": str(error)})
            else:
                purged.append(name)
    for one in failed:
        message(f"not deleted: {one['name']}: {one['reason']}")
    text = f"{catalog}: {len(purged)} dropped tables {'would be ' if dry_run else ''}deleted"
    print_result(output, text, {"catalog": catalog, "purged": purged, "failed": failed})
    if failed:
        raise typer.Exit(FAILED)
