"""Migrations: planned and shown first, carried out, gone on with, verified, and undone."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import lance_bridge_migrate as migrations
from lance_bridge_migrate.levels import Level

from .common import (
    CatalogName,
    OutputOption,
    Properties,
    connected,
    exit_on_error,
    parse_key_values,
    parse_name,
)
from .completion import migration_ids
from .migrating import (
    AtOnce,
    Choices,
    Exclude,
    Execute,
    Include,
    Into,
    NoNamespaces,
    SkipBlocked,
    SourceProperties,
    StateDirectory,
    StopOnError,
    Verify,
    WhenDone,
    WhenDoneUrl,
    catalogs_between,
    end_by,
    interruptible,
    migrate,
    reconnected,
    run,
    selected,
    summary,
    tell_record,
)
from .moving import add_to
from .output import Output
from .plans import tell_plan
from .reporting import report
from .rows import RowsOption, RowsOutput, print_list

app = typer.Typer()

Identifier = Annotated[
    str,
    typer.Argument(
        help="The migration's identifier: see migrate list.", autocompletion=migration_ids
    ),
]


@app.command()
def register(
    directory: Annotated[str, typer.Argument(help="A directory, or a URI of an object store.")],
    catalog: CatalogName,
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the tables in its root.")
    ],
    flatten: Annotated[
        bool, typer.Option("--flatten", help="Put tables of child namespaces there, too.")
    ] = False,
    make_namespaces: NoNamespaces = True,
    include: Include = None,
    exclude: Exclude = None,
    execute: Execute = False,
    at_once: AtOnce = None,
    verify_at: Verify = None,
    skip_blocked: SkipBlocked = False,
    stop_on_error: StopOnError = False,
    when_done: WhenDone = None,
    post_to: WhenDoneUrl = None,
    source_properties: SourceProperties = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Register a directory of Lance tables in a catalog. No data is moved.

    Source properties are storage.<option>, as for a catalog.

    Example: lance-bridge migrate register /data/tables prod --namespace sales --execute
    """
    options = {
        "namespace": parse_name(namespace),
        "flatten": flatten,
        "make_namespaces": make_namespaces,
        **selected(include, exclude),
    }
    given = {k.removeprefix("storage."): v for k, v in parse_key_values(source_properties).items()}
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    with connected(catalog, properties) as target:
        with exit_on_error():
            source = migrations.Directory.at(directory, given)
        migrate(
            "register",
            migrations.Ends(source, target, source.address, migrations.address_of(target)),
            options,
            how,
        )


@app.command()
def entries(
    source: CatalogName,
    target: CatalogName,
    *,
    namespace: Into = None,
    make_namespaces: NoNamespaces = True,
    include: Include = None,
    exclude: Exclude = None,
    execute: Execute = False,
    at_once: AtOnce = None,
    verify_at: Verify = None,
    skip_blocked: SkipBlocked = False,
    stop_on_error: StopOnError = False,
    when_done: WhenDone = None,
    post_to: WhenDoneUrl = None,
    source_properties: SourceProperties = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Give the Lance tables of one catalog entries in another. No data is moved.

    Example: lance-bridge migrate entries prod backup --include 'sales.*'
    """
    options = catalogs_between(namespace, include, exclude, make_namespaces=make_namespaces)
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    with connected(source, source_properties) as one, connected(target, properties) as other:
        migrate(
            "entries",
            migrations.Ends(one, other, migrations.address_of(one), migrations.address_of(other)),
            options,
            how,
        )


@app.command()
def marks(
    catalog: CatalogName,
    *,
    to: Annotated[str, typer.Option("--to", help="ours or others.")] = "ours",
    table_type: Annotated[
        str, typer.Option("--table-type", help="With others: lance or LANCE.")
    ] = "LANCE",
    managed_by: Annotated[
        str, typer.Option("--managed-by", help="With others: storage, catalog, or nothing.")
    ] = "storage",
    include: Include = None,
    exclude: Exclude = None,
    execute: Execute = False,
    at_once: AtOnce = None,
    verify_at: Verify = None,
    skip_blocked: SkipBlocked = False,
    stop_on_error: StopOnError = False,
    when_done: WhenDone = None,
    post_to: WhenDoneUrl = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Give tables of other implementations our marks, or ours theirs.

    Example: lance-bridge migrate marks prod --to ours --include 'sales.*'
    """
    style = {} if to == "ours" else {"table_type": table_type, "managed_by": managed_by}
    options = {"to": to, **style, **selected(include, exclude)}
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    _within("marks", catalog, properties, options, how)


@app.command()
def management(
    catalog: CatalogName,
    *,
    to: Annotated[str, typer.Option("--to", help="Who is to hold versions: catalog or storage.")],
    include: Include = None,
    exclude: Exclude = None,
    execute: Execute = False,
    at_once: AtOnce = None,
    verify_at: Verify = None,
    skip_blocked: SkipBlocked = False,
    stop_on_error: StopOnError = False,
    when_done: WhenDone = None,
    post_to: WhenDoneUrl = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Have the catalog hold the versions of tables, or leave them to their storage.

    Example: lance-bridge migrate management prod --to catalog --include sales.orders
    """
    options = {"to": to, **selected(include, exclude)}
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    _within("management", catalog, properties, options, how)


def _within(
    kind: str,
    catalog: str,
    properties: list[str] | None,
    options: dict[str, Any],
    how: Choices,
) -> None:
    """Migrate inside one catalog, which is both ends."""
    with connected(catalog, properties) as namespace:
        address = migrations.address_of(namespace)
        migrate(kind, migrations.Ends(namespace, namespace, address, address), options, how)


add_to(app)


# -- migrations that are kept --------------------------------------------------------------------


@app.command()
def resume(
    id: Identifier,
    *,
    at_once: AtOnce = None,
    verify_at: Verify = None,
    skip_blocked: SkipBlocked = False,
    stop_on_error: StopOnError = False,
    when_done: WhenDone = None,
    post_to: WhenDoneUrl = None,
    source_properties: SourceProperties = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Carry out a plan that is kept, or go on where a run of it ended.

    Secrets that are not in the environment or the configuration file are given again.

    Example: lance-bridge migrate resume 20260101-120000-register-0a1b2c
    """
    how = Choices(
        True, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    with exit_on_error():
        migration = migrations.Migrations(state).get(id)
        with reconnected(migration, source_properties, properties) as (kind, ends):
            run(kind, ends, migration, how)


@app.command("list")
def list_(
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="List the latest ones only.")
    ] = None,
    state: StateDirectory = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List the migrations that are kept, the oldest first.

    Example: lance-bridge migrate list
    """
    with exit_on_error():
        kept = migrations.Migrations(state)
        records = [kept.get(id).record() for id in kept.ids()]
        rows = [summary(each) for each in sorted(records, key=lambda each: each.plan.created)]
    columns = ["migration", "kind", "from", "to", "state", "items"]
    print_list(output, columns, rows[-(limit or 0) :], "migrations")


@app.command()
def show(id: Identifier, state: StateDirectory = None, output: OutputOption = Output.TEXT) -> None:
    """Show a plan, or what became of it.

    Example: lance-bridge migrate show 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        record = migrations.Migrations(state).get(id).record()
    if record.state is migrations.State.PLANNED:
        tell_plan(record.plan, output)
    else:
        tell_record(record, output)


@app.command("verify")
def verify_(
    id: Identifier,
    *,
    level: Annotated[
        Level, typer.Option("--level", "-l", help="How thoroughly: each includes the one before.")
    ] = Level.COUNTS,
    at_once: AtOnce = None,
    source_properties: SourceProperties = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare what a migration made with its source. The exit code is 3 where they differ.

    Example: lance-bridge migrate verify 20260101-120000-register-0a1b2c --level sample
    """
    from .progress import watched  # noqa: PLC0415 - takes seconds to import

    with exit_on_error():
        migration = migrations.Migrations(state).get(id)
        with (
            reconnected(migration, source_properties, properties) as (kind, ends),
            watched(f"verify {id}") as watcher,
        ):
            record = migrations.verify(
                kind, ends, migration, level, at_once=at_once or 8, watcher=watcher
            )
    tell_record(record, output)
    end_by(record)


@app.command("undo")
def undo_(
    id: Identifier,
    *,
    skip_changed: Annotated[
        bool, typer.Option("--skip-changed", help="Leave alone what others changed since.")
    ] = False,
    at_once: AtOnce = None,
    source_properties: SourceProperties = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take back what a migration did, as far as nobody changed it since. The source stays.

    Example: lance-bridge migrate undo 20260101-120000-register-0a1b2c
    """
    from .progress import watched  # noqa: PLC0415 - takes seconds to import

    with exit_on_error():
        migration = migrations.Migrations(state).get(id)
        with (
            reconnected(migration, source_properties, properties) as (kind, ends),
            watched(f"undo {id}") as watcher,
            interruptible(f"lance-bridge migrate undo {id}"),
        ):
            record = migrations.undo(
                kind,
                ends,
                migration,
                skip_changed=skip_changed,
                at_once=at_once or 8,
                watcher=watcher,
            )
    tell_record(record, output)
    end_by(record)


app.command()(report)
