"""Migrations that move data: with Spark into and out of Lance, and by files between catalogs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

import lance_bridge_migrate as migrations

from .common import (
    CatalogName,
    OutputOption,
    Properties,
    connected,
    exit_on_error,
    parse_key_values,
    parse_name,
    usage_error,
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
    migrate,
    reconnected,
    selected,
)
from .output import Output
from .sparking import Metastore, SparkConf, is_forgetful, session_beside

NameOfEach = Annotated[
    str, typer.Option("--name", help="Name of each table, with {table} for the one that it has.")
]
MaxRows = Annotated[
    int | None, typer.Option("--max-rows-per-file", min=1, help="Of Lance's files.")
]
StorageVersion = Annotated[
    str | None, typer.Option("--data-storage-version", help="Of Lance's files: 2.0, 2.1, stable.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to a group."""
    app.command()(convert)
    app.command("catch-up")(catch_up)
    app.command()(export)
    app.command()(copy)


def convert(
    catalog: CatalogName,
    *,
    spark_catalog: Annotated[
        str, typer.Option("--spark-catalog", help="Spark's catalog of the tables.")
    ] = "spark_catalog",
    path: Annotated[
        str | None, typer.Option("--path", help="A directory or file, instead of tables.")
    ] = None,
    format: Annotated[
        str, typer.Option("--format", help="With --path: parquet, orc, avro, csv, json, delta …")
    ] = "parquet",
    table: Annotated[
        str | None, typer.Option("--table", help="With --path: the name of the new table.")
    ] = None,
    read_option: Annotated[
        list[str] | None,
        typer.Option("--read-option", help="With --path, of Spark's reader: header=true."),
    ] = None,
    namespace: Into = None,
    name: NameOfEach = "{table}",
    make_namespaces: NoNamespaces = True,
    cast: Annotated[
        list[str] | None, typer.Option("--cast", help="Another type: column=type. Repeatable.")
    ] = None,
    rename_column: Annotated[
        list[str] | None,
        typer.Option("--rename-column", help="Another name: column=new_name. Repeatable."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="A YAML file of options, by the names of the migrations' document; with tables: "
            "for single ones. Options of the command go before it.",
        ),
    ] = None,
    vector: Annotated[
        list[str] | None,
        typer.Option("--vector", help="The length of a column of vectors: column=768."),
    ] = None,
    find_vectors: Annotated[
        bool,
        typer.Option("--find-vectors", help="Look for lists of floats that have one length."),
    ] = False,
    count: Annotated[
        bool, typer.Option("--count/--no-count", help="Count the rows for the plan.")
    ] = True,
    ignore_statistics: Annotated[
        bool,
        typer.Option(
            "--ignore-statistics",
            help="Do not take files for missing because the catalog's statistics count more.",
        ),
    ] = False,
    sort_by: Annotated[
        list[str] | None, typer.Option("--sort-by", help="A column to sort by. Repeatable.")
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="An index: column:KIND. Repeatable."),
    ] = None,
    table_property: Annotated[
        list[str] | None, typer.Option("--table-property", help="Of the new tables: key=value.")
    ] = None,
    data_storage_version: StorageVersion = None,
    max_rows_per_file: MaxRows = None,
    include: Include = None,
    exclude: Exclude = None,
    execute: Execute = False,
    at_once: AtOnce = None,
    verify_at: Verify = None,
    skip_blocked: SkipBlocked = False,
    stop_on_error: StopOnError = False,
    when_done: WhenDone = None,
    post_to: WhenDoneUrl = None,
    metastore: Metastore = None,
    spark_conf: SparkConf = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write tables that Spark reads as tables of Lance: Parquet, ORC, CSV, Delta, Iceberg and more.

    Spark runs in this process, or where --spark-conf spark.remote=… says. Where the catalog is a
    Hive Metastore, Spark reads the tables of that one unless told otherwise.

    Example: lance-bridge migrate convert prod --include sales.orders --name '{table}_lance'
    """
    options: dict[str, Any] = {
        "catalog": spark_catalog,
        "name": name,
        "make_namespaces": make_namespaces,
        "casts": parse_key_values(cast),
        "renames": parse_key_values(rename_column),
        "vectors": {key: _length(key, value) for key, value in parse_key_values(vector).items()},
        "find_vectors": find_vectors,
        "count_rows": count,
        "ignore_statistics": ignore_statistics,
        "sort_by": sort_by or [],
        "indices": [_index(each) for each in index or ()],
        "properties": parse_key_values(table_property),
        "data_storage_version": data_storage_version,
        "max_rows_per_file": max_rows_per_file,
        **selected(include, exclude),
    }
    if namespace is not None:
        options["namespace"] = parse_name(namespace)
    if path is not None:
        source = {"path": path, "format": format, "read_options": parse_key_values(read_option)}
        options["paths"] = [{**source, "table": _named(table)}]
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    with connected(catalog, properties) as target:
        beside = target if path is None else None
        with session_beside(beside, metastore, spark_conf, state) as (spark, address):
            options = _with_settings(options, settings)
            migrate(
                "convert",
                migrations.Ends(spark, target, address, migrations.address_of(target)),
                options,
                how,
            )


def _with_settings(given: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Return options with those of a settings file where the command has the default."""
    if file is None:
        return dict(given)
    from lance_bridge_migrate.kinds.convert_options import ConvertOptions  # noqa: PLC0415 - it needs Spark

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise usage_error(f"The settings file {file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise usage_error(f"The settings file {file} has no options: it is a mapping of names")
    defaults = ConvertOptions().model_dump(mode="json")
    return {**found, **{key: each for key, each in given.items() if each != defaults.get(key)}}


def _named(table: str | None) -> str:
    if table is None:
        raise usage_error("With --path, --table says what the new table is called")
    return table


def _length(column: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise usage_error(f"--vector {column}=… needs a number of 1 or more, and not '{value}'")
    return int(value)


def _index(given: str) -> dict[str, str]:
    column, colon, kind = given.rpartition(":")
    if not (colon and column and kind):
        raise usage_error(f"--index is given as column:KIND, and not '{given}'")
    return {"column": column, "kind": kind}


def catch_up(
    id: Annotated[
        str,
        typer.Argument(
            help="The conversion, or the round before this one.", autocompletion=migration_ids
        ),
    ],
    *,
    by: Annotated[
        str, typer.Option("--by", help="What tells new rows: column, partition or snapshot.")
    ],
    column: Annotated[
        str | None, typer.Option("--column", help="With --by column: an increasing id or time.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="A column that tells rows apart, to update them. Repeatable."),
    ] = None,
    switch_to: Annotated[
        str | None,
        typer.Option("--switch-to", help="The final name of each table; {table} is the source's."),
    ] = None,
    data_storage_version: StorageVersion = None,
    max_rows_per_file: MaxRows = None,
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
    """Bring what was converted up to date with its source, and switch over at the end.

    Each round is a migration of its own; the next one is given its identifier.

    Example: lance-bridge migrate catch-up 20260101-120000-convert-0a1b2c --by column --column id
    """
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    with exit_on_error():
        from lance_bridge_migrate.kinds.catchup import next_round  # noqa: PLC0415 - it needs Spark

        migration = migrations.Migrations(state).get(id)
        options = next_round(
            migration.record(),
            by=by,
            column=column,
            key=key or [],
            switch_to=switch_to,
            data_storage_version=data_storage_version,
            max_rows_per_file=max_rows_per_file,
        )
        with reconnected(migration, source_properties, properties) as (_, ends):
            migrate("catch-up", ends, options, how, follows=id)


def export(
    catalog: CatalogName,
    directory: Annotated[str, typer.Argument(help="Where the files go: a path or a URI.")],
    *,
    database: Annotated[
        str | None, typer.Option("--database", help="Spark's database that gets a table of each.")
    ] = None,
    name: NameOfEach = "{table}",
    partition_by: Annotated[
        list[str] | None, typer.Option("--partition-by", help="A column. Repeatable.")
    ] = None,
    compression: Annotated[str, typer.Option("--compression", help="Of the files.")] = "zstd",
    include: Include = None,
    exclude: Exclude = None,
    execute: Execute = False,
    at_once: AtOnce = None,
    verify_at: Verify = None,
    skip_blocked: SkipBlocked = False,
    stop_on_error: StopOnError = False,
    when_done: WhenDone = None,
    post_to: WhenDoneUrl = None,
    metastore: Metastore = None,
    spark_conf: SparkConf = None,
    properties: Properties = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write tables of Lance as Parquet, into directories or tables of Spark's: the way out.

    Example: lance-bridge migrate export prod /data/parquet --include sales.orders_lance
    """
    options = {
        "directory": directory,
        "database": database,
        "name": name,
        "partition_by": partition_by or [],
        "compression": compression,
        **selected(include, exclude),
    }
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    with connected(catalog, properties) as source:
        beside = source if database is not None else None
        with session_beside(beside, metastore, spark_conf, state) as (spark, address):
            if database is not None and is_forgetful(spark):
                raise usage_error(
                    "--database needs a catalog of Spark's that outlives the command: name its "
                    "metastore with --metastore, or set it with --spark-conf"
                )
            migrate(
                "export",
                migrations.Ends(source, spark, migrations.address_of(source), address),
                options,
                how,
            )


def copy(
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
    """Copy the Lance tables of one catalog into another, with their data and all versions.

    Example: lance-bridge migrate copy prod backup --include 'sales.*'
    """
    how = Choices(
        execute, at_once, verify_at, skip_blocked, state, output, stop_on_error, when_done, post_to
    )
    options = catalogs_between(namespace, include, exclude, make_namespaces=make_namespaces)
    with connected(source, source_properties) as one, connected(target, properties) as other:
        migrate(
            "copy",
            migrations.Ends(one, other, migrations.address_of(one), migrations.address_of(other)),
            options,
            how,
        )
