"""The commands that plan a migration, one per type, and execute the plan with --execute.

`app` has them, and then the commands for saved migrations.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from typer import Argument, Option

import lance_bridge_migrate as migrations
from lance_bridge_cli.arguments import (
    CatalogName,
    connected,
    exit_on_error,
    parse_key_values,
    parse_name,
    usage_error,
)

from .options import (
    CreateNamespaces,
    LanceFiles,
    MigrationId,
    NameTemplate,
    Planning,
    Repeated,
    SelectedTables,
    SourceProperties,
    SparkSettings,
    TargetNamespace,
    with_options,
)
from .running import has_temporary_catalog, plan_and_run, reconnected, saved, spark_session

app = typer.Typer()


@app.command()
@with_options
def register(
    directory: Annotated[str, Argument(help="A directory, or a URI of an object store.")],
    catalog: CatalogName,
    *,
    namespace: Annotated[
        str, Option("--namespace", "-n", help="Namespace of the tables in its root.")
    ],
    flatten: Annotated[
        bool, Option("--flatten", help="Put tables of child namespaces into the same namespace.")
    ] = False,
    make_namespaces: CreateNamespaces = True,
    source_properties: SourceProperties = None,
    planning: SelectedTables,
) -> None:
    """Register a directory of Lance tables in a catalog. No data is moved.

    Source properties are storage.<option>, as for a catalog.

    Example: lance-bridge migrate register /data/tables prod --namespace sales --execute
    """
    options = {
        "namespace": parse_name(namespace),
        "flatten": flatten,
        "make_namespaces": make_namespaces,
        **planning.selection,
    }
    given = {
        k.removeprefix("storage."): v
        for k, v in parse_key_values(source_properties, "--source-property").items()
    }
    with connected(catalog, planning.properties) as target:
        with exit_on_error():
            source = migrations.Directory.at(directory, given)
        address = migrations.address_of(target)
        endpoints = migrations.Endpoints(source, target, source.address, address)
        plan_and_run("register", endpoints, options, planning)


@app.command()
@with_options
def entries(
    source: CatalogName,
    target: CatalogName,
    *,
    into: TargetNamespace,
    source_properties: SourceProperties = None,
    planning: SelectedTables,
) -> None:
    """Register the Lance tables of one catalog in another. No data is moved.

    Example: lance-bridge migrate entries prod backup --include 'sales.*'
    """
    _migrate_between("entries", (source, source_properties), target, into, planning)


@app.command()
@with_options
def copy(
    source: CatalogName,
    target: CatalogName,
    *,
    into: TargetNamespace,
    source_properties: SourceProperties = None,
    planning: SelectedTables,
) -> None:
    """Copy the Lance tables of one catalog into another, with their data and all versions.

    Example: lance-bridge migrate copy prod backup --include 'sales.*'
    """
    _migrate_between("copy", (source, source_properties), target, into, planning)


def _migrate_between(
    migration: str,
    source: tuple[str, list[str] | None],
    target: str,
    into: TargetNamespace,
    planning: SelectedTables,
) -> None:
    """Migrate from one catalog, given by name and properties, into another."""
    options = {**into.as_options(), **planning.selection}
    with connected(*source) as one, connected(target, planning.properties) as other:
        addresses = (migrations.address_of(one), migrations.address_of(other))
        endpoints = migrations.Endpoints(one, other, *addresses)
        plan_and_run(migration, endpoints, options, planning)


@app.command()
@with_options
def properties(
    catalog: CatalogName,
    *,
    to: Annotated[str, Option("--to", help="ours or others.")] = "ours",
    table_type: Annotated[
        str, Option("--table-type", help="With others: lance or LANCE.")
    ] = "LANCE",
    managed_by: Annotated[
        str, Option("--managed-by", help="With others: storage, catalog, or nothing.")
    ] = "storage",
    planning: SelectedTables,
) -> None:
    """Convert the table-format properties of entries to those of lance-bridge, or of others.

    Example: lance-bridge migrate properties prod --to ours --include 'sales.*'
    """
    style = {} if to == "ours" else {"table_type": table_type, "managed_by": managed_by}
    _migrate_within("properties", catalog, {"to": to, **style}, planning)


@app.command()
@with_options
def management(
    catalog: CatalogName,
    *,
    to: Annotated[str, Option("--to", help="Where versions are managed: catalog or storage.")],
    planning: SelectedTables,
) -> None:
    """Move the versions of tables into the catalog, or back to their storage.

    Example: lance-bridge migrate management prod --to catalog --include sales.orders
    """
    _migrate_within("management", catalog, {"to": to}, planning)


def _migrate_within(
    migration: str, catalog: str, given: Mapping[str, Any], planning: SelectedTables
) -> None:
    """Migrate within one catalog, which is both source and target."""
    options = {**given, **planning.selection}
    with connected(catalog, planning.properties) as namespace:
        address = migrations.address_of(namespace)
        endpoints = migrations.Endpoints(namespace, namespace, address, address)
        plan_and_run(migration, endpoints, options, planning)


@app.command()
@with_options
def convert(
    catalog: CatalogName,
    *,
    spark_catalog: Annotated[
        str, Option("--spark-catalog", help="Spark's catalog of the tables.")
    ] = "spark_catalog",
    path: Annotated[
        str | None, Option("--path", help="A directory or file, instead of tables.")
    ] = None,
    format: Annotated[
        str, Option("--format", help="With --path: parquet, orc, avro, csv, json, delta …")
    ] = "parquet",
    table: Annotated[
        str | None, Option("--table", help="With --path: the name of the new table.")
    ] = None,
    reader: Annotated[
        str,
        Option(
            "--reader",
            help="With --path: pyarrow has types that Spark does not have, such as nanoseconds.",
        ),
    ] = "spark",
    read_option: Annotated[
        Repeated, Option("--read-option", help="With --path, of Spark's reader: header=true.")
    ] = None,
    into: TargetNamespace,
    name: NameTemplate = "{table}",
    cast: Annotated[
        Repeated, Option("--cast", help="Another type: column=type. Repeatable.")
    ] = None,
    rename_column: Annotated[
        Repeated, Option("--rename-column", help="Another name: column=new_name. Repeatable.")
    ] = None,
    settings: Annotated[
        Path | None,
        Option(
            "--settings",
            help="A YAML file of options, by the names of the migrations' document; with tables: "
            "for single ones. Options of the command override it.",
        ),
    ] = None,
    vector: Annotated[
        Repeated, Option("--vector", help="The length of a column of vectors: column=768.")
    ] = None,
    find_vectors: Annotated[
        bool, Option("--find-vectors", help="Find lists of floats that have one length.")
    ] = False,
    count: Annotated[
        bool, Option("--count/--no-count", help="Count the rows for the plan.")
    ] = True,
    ignore_statistics: Annotated[
        bool,
        Option(
            "--ignore-statistics",
            help="Ignore statistics of the catalog that count more rows or files than exist.",
        ),
    ] = False,
    accept_differences: Annotated[
        bool,
        Option(
            "--accept-differences",
            help="Convert what Spark reads where the plan shows that it differs from the files.",
        ),
    ] = False,
    sort_by: Annotated[
        Repeated, Option("--sort-by", help="A column to sort by. Repeatable.")
    ] = None,
    index: Annotated[Repeated, Option("--index", help="An index: column:KIND. Repeatable.")] = None,
    table_property: Annotated[
        Repeated, Option("--table-property", help="Of the new tables: key=value.")
    ] = None,
    files: LanceFiles,
    spark: SparkSettings,
    planning: SelectedTables,
) -> None:
    """Convert tables that Spark reads to Lance: Parquet, ORC, CSV, Delta, Iceberg and more.

    Spark runs in this process, or where --spark-conf spark.remote=… says. For a catalog that is a
    Hive Metastore, Spark reads the tables of that one by default.

    Example: lance-bridge migrate convert prod --include sales.orders --name '{table}_lance'
    """
    options: dict[str, Any] = {
        "catalog": spark_catalog,
        "name": name,
        "casts": parse_key_values(cast, "--cast"),
        "renames": parse_key_values(rename_column, "--rename-column"),
        "vectors": {
            key: _vector_length(key, value)
            for key, value in parse_key_values(vector, "--vector").items()
        },
        "find_vectors": find_vectors,
        "count_rows": count,
        "ignore_statistics": ignore_statistics,
        "accept_differences": accept_differences,
        "sort_by": sort_by or [],
        "indices": [_parse_index(each) for each in index or ()],
        "properties": parse_key_values(table_property, "--table-property"),
        "data_storage_version": files.data_storage_version,
        "max_rows_per_file": files.max_rows_per_file,
        **into.as_options(),
        **planning.selection,
    }
    if path is not None:
        if table is None:
            raise usage_error("--path needs --table, the name of the new table")
        read_options = parse_key_values(read_option, "--read-option")
        source = {"path": path, "format": format, "reader": reader, "read_options": read_options}
        options["paths"] = [{**source, "table": table}]
    with connected(catalog, planning.properties) as target:
        tables_of = target if path is None else None
        with spark_session(tables_of, spark, planning.state) as (session, session_address):
            options = _with_settings(options, settings)
            address = migrations.address_of(target)
            endpoints = migrations.Endpoints(session, target, session_address, address)
            plan_and_run("convert", endpoints, options, planning)


def _with_settings(given: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Return options that combine the settings file with the command's non-default options."""
    if file is None:
        return dict(given)
    from ..migrations.convert import ConvertOptions  # noqa: PLC0415 - it needs Spark

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise usage_error(f"The settings file {file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise usage_error(f"The settings file {file} has no options: it must be a mapping of names")
    defaults = ConvertOptions().model_dump(mode="json")
    return {**found, **{key: each for key, each in given.items() if each != defaults.get(key)}}


def _vector_length(column: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise usage_error(f"--vector {column}=… needs a number of 1 or more, and not '{value}'")
    return int(value)


def _parse_index(given: str) -> dict[str, str]:
    column, colon, index_type = given.rpartition(":")
    if not (colon and column and index_type):
        raise usage_error(f"--index must be column:KIND, not '{given}'")
    return {"column": column, "kind": index_type}


@app.command("catch-up")
@with_options
def catch_up(
    id: MigrationId,
    *,
    by: Annotated[
        str, Option("--by", help="How new rows are found: column, partition or snapshot.")
    ],
    column: Annotated[
        str | None, Option("--column", help="With --by column: an increasing id or time.")
    ] = None,
    key: Annotated[
        Repeated, Option("--key", help="A key column, to update rows. Repeatable.")
    ] = None,
    switch_to: Annotated[
        str | None,
        Option("--switch-to", help="The final name of each table; {table} is the source's."),
    ] = None,
    files: LanceFiles,
    source_properties: SourceProperties = None,
    planning: Planning,
) -> None:
    """Bring converted tables up to date with their sources, and rename them at the end.

    ID is the conversion, or the increment before this one: each increment is a migration.

    Example: lance-bridge migrate catch-up 20260101-120000-convert-0a1b2c --by column --column id
    """
    with exit_on_error():
        from ..migrations.catchup import next_increment  # noqa: PLC0415 - it needs Spark

        migration = migrations.Migrations(planning.state).get(id)
        options = next_increment(
            migration.record(),
            by=by,
            column=column,
            key=key or [],
            switch_to=switch_to,
            data_storage_version=files.data_storage_version,
            max_rows_per_file=files.max_rows_per_file,
        )
        with reconnected(migration, source_properties, planning.properties) as (_, endpoints):
            plan_and_run("catch-up", endpoints, options, planning, follows=id)


@app.command()
@with_options
def export(
    catalog: CatalogName,
    directory: Annotated[str, Argument(help="Where the files go: a path or a URI.")],
    *,
    database: Annotated[
        str | None, Option("--database", help="Spark database for the new tables.")
    ] = None,
    name: NameTemplate = "{table}",
    partition_by: Annotated[
        Repeated, Option("--partition-by", help="A column. Repeatable.")
    ] = None,
    compression: Annotated[str, Option("--compression", help="Of the files.")] = "zstd",
    spark: SparkSettings,
    planning: SelectedTables,
) -> None:
    """Write Lance tables as Parquet, to directories or Spark tables.

    Example: lance-bridge migrate export prod /data/parquet --include sales.orders_lance
    """
    options = {
        "directory": directory,
        "database": database,
        "name": name,
        "partition_by": partition_by or [],
        "compression": compression,
        **planning.selection,
    }
    with connected(catalog, planning.properties) as source:
        tables_of = source if database is not None else None
        with spark_session(tables_of, spark, planning.state) as (session, session_address):
            if database is not None and has_temporary_catalog(session):
                raise usage_error(
                    "--database needs a catalog of Spark's that outlives the command: name its "
                    "metastore with --metastore, or set it with --spark-conf"
                )
            address = migrations.address_of(source)
            endpoints = migrations.Endpoints(source, session, address, session_address)
            plan_and_run("export", endpoints, options, planning)


app.registered_commands += saved.registered_commands
