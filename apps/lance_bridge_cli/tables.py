"""Commands for tables: list, describe, create and change them. `rows` has those that read them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import lance_bridge
from lance_bridge.dotted_names import DELIMITER, UNAVAILABLE, written
from lance_bridge.exit_codes import FAILED

from . import api, rows
from .arguments import (
    CatalogName,
    Limit,
    OutputOption,
    PageToken,
    Properties,
    Settings,
    TableName,
    Yes,
    confirm,
    connected,
    connected_or_federated,
    exit_on_error,
    parse_key_values,
    parse_name,
)
from .output import (
    UNLIMITED,
    Output,
    RowsOption,
    RowsOutput,
    key_value_table,
    make_table,
    message,
    print_list,
    print_page,
    print_parts,
    print_result,
    print_table_result,
    spinner,
)
from .properties import properties_of_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_bridge.entry import TableEntry

app = typer.Typer()
app.add_typer(rows.app)
app.add_typer(properties_of_tables, name="properties")


@app.command("list")
def list_tables(
    catalog: CatalogName,
    namespace: Annotated[str, typer.Argument(help="List only the tables of this namespace.")] = "",
    *,
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Omit tables that are only declared.")
    ] = False,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="List the dropped tables that can be taken back.")
    ] = False,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List the Lance tables of a namespace, or of the whole catalog.

    On a federation, the exit code is 1 if one of its catalogs could not be listed.

    Example: lance-bridge table list prod sales
    """
    names = parse_name(namespace) if namespace else []
    if dropped:
        _list_dropped(catalog, properties, names, output)
        return
    request = api.ListTablesRequest(
        id=names or None, limit=limit, page_token=page_token, include_declared=not with_data
    )
    with connected_or_federated(catalog, properties) as connection, spinner("list tables"):
        paths, token, unavailable = _list_paths(connection, request)
    print_page(output, "tables", ["table"], [(written(path),) for path in paths], token)
    for name, why in unavailable.items():
        message(f"the catalog '{name}' could not be listed: {why}")
    if unavailable:
        raise typer.Exit(FAILED)


def _list_dropped(
    catalog: str, properties: list[str] | None, names: list[str], output: RowsOutput
) -> None:
    """Print the dropped tables of a namespace, or of all, the latest of each first."""
    with connected(catalog, properties) as connection, spinner("list dropped tables"):
        tables = connection.tables
        if names:
            within = [connection.namespace_path(names, of_tables=True)]
        else:
            within = list(tables.namespaces())
        found = [each for namespace in within for each in tables.dropped(namespace)]
    header = ["table", "dropped at", "kept until", "entry"]
    rows_of = [
        (
            written(each.path),
            each.dropped_at.isoformat(timespec="seconds"),
            each.kept_until.isoformat(timespec="seconds"),
            written(each.entry.path),
        )
        for each in found
    ]
    print_page(output, "tables", header, rows_of, None)


def _list_paths(
    namespace: api.LanceNamespace, request: api.ListTablesRequest
) -> tuple[list[tuple[str, ...]], str | None, dict[str, str]]:
    """Return a page of paths, the next page token, and why catalogs are unavailable."""
    if request.id:
        found = namespace.list_tables(request)
        return [(*request.id, name) for name in found.tables], found.page_token, {}
    if not isinstance(namespace, lance_bridge.LanceBridgeNamespace):
        found = namespace.list_all_tables(request)
        unavailable = (found.context or {}).items()
        return (
            [tuple(name.split(DELIMITER)) for name in found.tables],
            found.page_token,
            {key.removeprefix(UNAVAILABLE): why for key, why in unavailable},
        )
    from lance_bridge.paging import PageRequest  # noqa: PLC0415 - takes seconds to import

    # ListAllTables joins names with a character that names may contain.
    page = PageRequest.parse("all tables", request.limit, request.page_token)
    with_declared = request.include_declared is not False
    paths, token = namespace.tables.list_all(page, include_declared=with_declared)
    return paths, token, {}


# -- describe --------------------------------------------------------------------------------------


@app.command()
def describe(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a table's location, its schema with SQL types, and its statistics.

    Example: lance-bridge table describe prod sales.orders
    """
    names = parse_name(table)
    with connected_or_federated(catalog, properties) as namespace, spinner(f"describe {table}"):
        fields = {"table": table, **_describe(namespace, names)}
    print_parts(output, fields, _format_description(fields))


def _describe(namespace: api.LanceNamespace, names: list[str]) -> dict[str, Any]:
    from .schemas import sql_type  # noqa: PLC0415 - takes seconds to import

    # Credentials are requested only to read the table, and never shown.
    request = api.DescribeTableRequest(id=names, load_detailed_metadata=True)
    found = namespace.describe_table(request)
    fields: dict[str, Any] = {
        "location": found.location,
        "version": found.version,
        "only_declared": bool(found.is_only_declared),
        "managed_versioning": bool(found.managed_versioning),
        "properties": found.properties or {},
        "metadata": found.metadata or {},
        "schema": found.var_schema.to_dict()["fields"] if found.var_schema else [],
    }
    if not found.is_only_declared:
        stats = namespace.get_table_stats(api.GetTableStatsRequest(id=names))
        # The response's JSON leaves out units and time zones.
        schema = _read_schema(namespace, names, found.version)
        for each, field in zip(fields["schema"], schema, strict=True):
            each["sql_type"] = sql_type(field.type)
        fields["statistics"] = stats.model_dump(mode="json", exclude_none=True)
    return fields


def _read_schema(namespace: api.LanceNamespace, names: list[str], version: int | None) -> pa.Schema:
    from lance_bridge.requests import Ref  # noqa: PLC0415 - takes seconds to import

    if isinstance(namespace, lance_bridge.LanceBridgeNamespace):
        return namespace.tables.load_by_id(names).open(Ref.of(version)).schema
    no_rows: dict[str, Any] = {
        "id": names,
        "version": version,
        "filter": "false",
        "k": 1,
        "vector": {},
    }
    return rows.read_rows(namespace, api.QueryTableRequest.model_validate(no_rows)).schema


def _format_description(fields: dict[str, Any]) -> list[Table | str]:
    nested = ("schema", "statistics", "properties", "metadata")
    parts: list[Table | str] = [
        key_value_table({k: v for k, v in fields.items() if k not in nested})
    ]
    for key in ("properties", "metadata"):
        if fields[key]:
            parts += [key, key_value_table(fields[key], as_written=True)]
    columns = [
        {"column": each["name"], "type": each["sql_type"], "nullable": each["nullable"]}
        for each in fields["schema"]
    ]
    if columns:
        parts.append(make_table(["column", "type", "nullable"], columns, longest=UNLIMITED))
    if "statistics" in fields:
        parts.append(key_value_table(_flatten_stats(fields["statistics"])))
    return parts


def _flatten_stats(stats: dict[str, Any]) -> dict[str, Any]:
    fragments = stats["fragment_stats"]
    return {
        "rows": stats["num_rows"],
        "bytes": stats["total_bytes"],
        "indices": stats["num_indices"],
        "fragments": fragments["num_fragments"],
        "small_fragments": fragments["num_small_fragments"],
        "rows_of_a_fragment": fragments["lengths"],
    }


@app.command()
def schema(
    catalog: CatalogName,
    table: TableName,
    *,
    version: rows.Version = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Show a table's columns with their SQL types.

    In JSON, it is a schema that `table create --schema` reads.

    Example: lance-bridge table schema prod sales.orders
    """
    from lance_bridge.arrow_types import schema_to_json  # noqa: PLC0415 - takes seconds to import

    from .schemas import sql_type  # noqa: PLC0415 - the same

    names = parse_name(table)
    with connected_or_federated(catalog, properties) as namespace, spinner(f"read {table}"):
        found = _read_schema(namespace, names, version)
    if output is RowsOutput.JSON:
        print_parts(Output.JSON, schema_to_json(found, exact=True).to_dict(), [])
        return
    columns = [
        {"column": each.name, "type": sql_type(each.type), "nullable": each.nullable}
        for each in found
    ]
    print_list(output, ["column", "type", "nullable"], columns, "columns", longest=UNLIMITED)


@app.command()
def location(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show where a table's files are. They are not read.

    Example: lance-bridge table location prod sales.orders
    """
    request = api.DescribeTableRequest(id=parse_name(table), vend_credentials=False)
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.describe_table(request).location or ""
    print_result(output, found, {"table": table, "location": found})


# -- create ----------------------------------------------------------------------------------------


@app.command()
def create(
    catalog: CatalogName,
    table: TableName,
    *,
    schema_file: Annotated[
        Path,
        typer.Option(
            "--schema",
            help="A file with the columns: Parquet, Arrow IPC, or JSON as of `table schema`.",
        ),
    ],
    settings: Settings = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Keep an existing table, whatever its columns.")
    ] = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a table without rows, with the columns of a file.

    Example: lance-bridge table create prod sales.returns --schema /data/columns.json
    """
    from .schemas import empty_stream, read_schema  # noqa: PLC0415 - takes seconds to import

    request = api.CreateTableRequest(
        id=parse_name(table),
        mode="Create",
        properties=parse_key_values(settings, "--set") or None,
    )
    with exit_on_error():
        columns = read_schema(schema_file)
    outcome = "created"
    with connected_or_federated(catalog, properties) as namespace, spinner(f"create {table}"):
        try:
            made = namespace.create_table(request, empty_stream(columns))
        except api.TableAlreadyExistsError:
            if not exist_ok:
                raise
            outcome = "exists"
            request.mode = "ExistOk"
            made = namespace.create_table(request, empty_stream(columns))
    text = f"{outcome} at {made.location}"
    print_table_result(output, table, text, location=made.location, version=made.version)


# -- change the entry ------------------------------------------------------------------------------


@app.command()
def register(
    catalog: CatalogName,
    table: TableName,
    location: Annotated[str, typer.Argument(help="Location of the data: absolute path or URI.")],
    *,
    settings: Settings = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing table of that name.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Register the table though another entry manages its versions: the new entry only "
            "reads, or becomes the manager with --set managed_by=impl.",
        ),
    ] = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Register existing data as a table. The data is neither read nor changed.

    Example: lance-bridge table register prod sales.old_orders /data/old_orders.lance
    """
    given = parse_key_values(settings, "--set") | ({"managed.force": "true"} if force else {})
    request = api.RegisterTableRequest(
        id=parse_name(table),
        location=location,
        mode="Overwrite" if overwrite else "Create",
        properties=given or None,
    )
    with connected_or_federated(catalog, properties) as namespace:
        registered = namespace.register_table(request).location or location
        _warn_if_empty(namespace, catalog, request.id or [], registered)
    print_table_result(output, table, f"registered at {registered}", location=registered)


def _warn_if_empty(
    namespace: api.LanceNamespace, catalog: str, names: list[str], location: str
) -> None:
    """Warn if the location of a new entry has no Lance table: it may be a typo."""
    from lance_bridge.errors import TableDataMissingError  # noqa: PLC0415 - takes seconds to import

    table = written(names)
    try:
        is_empty = _is_only_declared(namespace, names)
    except TableDataMissingError:
        is_empty = True
    except api.LanceNamespaceError as error:
        message(f"could not check whether {location} has a Lance table: {error}")
        return
    if is_empty:
        message(
            f"{location} has no Lance table: {table} cannot be read or written until one is there. "
            f"To remove the entry: lance-bridge table deregister {catalog} {shlex.quote(table)}"
        )


@app.command()
def deregister(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove a table's entry from the catalog; its data stays.

    Example: lance-bridge table deregister prod sales.old_orders
    """
    request = api.DeregisterTableRequest(id=parse_name(table))
    with connected_or_federated(catalog, properties) as namespace:
        location = namespace.deregister_table(request).location
    text = f"deregistered; its data stays at {location}"
    print_table_result(output, table, text, location=location)


@app.command("refresh-entry")
def refresh_entry(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Correct what other tools read in a table's entry, also published columns. Its data stays.

    Example: lance-bridge table refresh-entry prod sales.orders
    """
    with connected(catalog, properties) as namespace:
        entry = namespace.tables.load_entry(namespace.tables.path_of(parse_name(table)))
        corrected = _refresh(entry)
    done = f"corrected: {', '.join(corrected)}" if corrected else "nothing to correct"
    print_table_result(output, table, done, corrected=corrected)


def _refresh(entry: TableEntry) -> list[str]:
    """Refresh an entry; return what was corrected."""
    from lance_bridge.table import Table  # noqa: PLC0415 - takes seconds to import

    found = Table.of(entry) if entry.record.is_lance and entry.location else entry
    refreshed, before = found.refresh_entry().record, entry.record
    has_new_columns = refreshed.properties != before.properties or (
        refreshed != before and not before.problems
    )
    return [*before.problems, *(["columns"] if has_new_columns else [])]


@app.command()
def rename(
    catalog: CatalogName,
    table: TableName,
    new_name: Annotated[str, typer.Argument(help="The new name, with its namespace: db.table.")],
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Rename a table. Its files stay where they are.

    Example: lance-bridge table rename prod sales.drafts sales.notes
    """
    names, new = parse_name(table), parse_name(new_name)
    request = api.RenameTableRequest(id=names, new_namespace_id=new[:-1], new_table_name=new[-1])
    with connected_or_federated(catalog, properties) as namespace:
        namespace.rename_table(request)
    fields = {"table": new_name, "renamed_from": table}
    print_result(output, f"{table}: renamed to {new_name}", fields)


@app.command("rename-column")
def rename_column(
    catalog: CatalogName,
    table: TableName,
    column: Annotated[str, typer.Argument(help="The column's path.")],
    new_name: Annotated[str, typer.Argument(help="Its new name, without a path.")],
    *,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Rename a column of a table. No file is rewritten.

    Example: lance-bridge table rename-column prod sales.orders price cost
    """
    alterations = [{"path": column, "rename": new_name}]
    request = api.AlterTableAlterColumnsRequest.model_validate(
        {"id": parse_name(table), "alterations": alterations}
    )
    with connected_or_federated(catalog, properties) as namespace:
        version = namespace.alter_table_alter_columns(request).version
    text = f"column {column} renamed to {new_name}, version {version}"
    print_table_result(output, table, text, column=new_name, renamed_from=column, version=version)


@app.command()
def drop(
    catalog: CatalogName,
    table: TableName,
    *,
    if_only_declared: Annotated[
        bool, typer.Option("--if-only-declared", help="Refuse if it has data.")
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete it at once, whatever drop.retention is.")
    ] = False,
    yes: Yes = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Drop a table with its data. Without drop.retention, this cannot be undone.

    Example: lance-bridge table drop prod sales.scratch --yes
    """
    names = parse_name(table)
    confirm(f"Drop table {table} of {catalog} with its data?", yes=yes)
    kept_until = None
    with connected_or_federated(catalog, properties) as namespace, spinner(f"drop {table}"):
        if if_only_declared and not _is_only_declared(namespace, names):
            raise api.InvalidInputError(f"Table '{table}' now has data and was not dropped")
        if isinstance(namespace, lance_bridge.LanceBridgeNamespace):
            location, kept_until = _drop(namespace, names, purge=purge)
        elif purge:
            raise api.InvalidInputError("--purge works on one catalog, not on a federation")
        else:
            location = namespace.drop_table(api.DropTableRequest(id=names)).location or ""
    done = "dropped" if kept_until is None else f"dropped, and can be taken back until {kept_until}"
    print_table_result(output, table, done, location=location, kept_until=kept_until)


def _drop(
    namespace: lance_bridge.LanceBridgeNamespace, names: list[str], *, purge: bool
) -> tuple[str, str | None]:
    """Drop a table; return its location, and until when it can be taken back, if it can."""
    found = namespace.tables.drop(namespace.tables.path_of(names), purge=purge)
    kept_until = namespace.tables.kept_until(found)
    return found.uri, None if kept_until is None else kept_until.isoformat(timespec="seconds")


@app.command()
def undrop(
    catalog: CatalogName,
    table: TableName,
    *,
    new_name: Annotated[
        str, typer.Option("--as", help="Its new name, with its namespace: db.table.")
    ] = "",
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take a dropped table back. Of several with one name, the last one.

    Example: lance-bridge table undrop prod sales.scratch --as sales.scratch_back
    """
    with connected(catalog, properties) as namespace, spinner(f"undrop {table}"):
        tables = namespace.tables
        new_path = tables.path_of(parse_name(new_name)) if new_name else None
        found = tables.undrop(tables.path_of(parse_name(table)), new_path)
    name = written(found.path)
    print_table_result(output, name, f"{table} is taken back as {name}", location=found.uri)


@app.command()
def purge(
    catalog: CatalogName,
    table: TableName,
    *,
    yes: Yes = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete a dropped table with its data, before its time is over. This cannot be undone.

    Example: lance-bridge table purge prod sales.scratch --yes
    """
    confirm(f"Delete the dropped table {table} of {catalog} with its data?", yes=yes)
    with connected(catalog, properties) as namespace, spinner(f"purge {table}"):
        found = namespace.tables.find_dropped(namespace.tables.path_of(parse_name(table)))
        namespace.tables.purge(found)
    print_table_result(output, table, "deleted", location=found.entry.location)


def _is_only_declared(namespace: api.LanceNamespace, names: list[str]) -> bool:
    request = api.DescribeTableRequest(id=names, check_declared=True, vend_credentials=False)
    return bool(namespace.describe_table(request).is_only_declared)
