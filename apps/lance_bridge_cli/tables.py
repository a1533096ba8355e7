"""Commands for tables: list them, describe and change their entries, and read their content."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timezone
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import lance_bridge
from lance_bridge.exit_codes import FAILED
from lance_bridge.names import DELIMITER, UNAVAILABLE, written

from . import api
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
    parse_key_values,
    parse_name,
    usage_error,
)
from .output import (
    UNLIMITED,
    Output,
    RowsOption,
    RowsOutput,
    key_value_table,
    make_table,
    message,
    print_data,
    print_page,
    print_parts,
    print_result,
    print_table_result,
    spinner,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_bridge.entry import TableEntry

Version = Annotated[
    int | None, typer.Option("--version", min=1, help="Read this version, not the latest.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", "-c", help="Read this column only. Repeatable.")
]
Where = Annotated[str | None, typer.Option("--where", "-w", help="A condition, in SQL.")]

app = typer.Typer()


@app.command("list")
def list_tables(
    catalog: CatalogName,
    namespace: Annotated[str, typer.Argument(help="List only the tables of this namespace.")] = "",
    *,
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Omit tables that are only declared.")
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
    return _read_rows(namespace, api.QueryTableRequest.model_validate(no_rows)).schema


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


@app.command()
def drop(
    catalog: CatalogName,
    table: TableName,
    *,
    if_only_declared: Annotated[
        bool, typer.Option("--if-only-declared", help="Refuse if it has data.")
    ] = False,
    yes: Yes = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Drop a table with its data. This cannot be undone.

    Example: lance-bridge table drop prod sales.scratch --yes
    """
    names = parse_name(table)
    confirm(f"Drop table {table} with its data?", yes=yes)
    with connected_or_federated(catalog, properties) as namespace, spinner(f"drop {table}"):
        if if_only_declared and not _is_only_declared(namespace, names):
            raise api.InvalidInputError(f"Table '{table}' now has data and was not dropped")
        response = namespace.drop_table(api.DropTableRequest(id=names))
    print_table_result(output, table, "dropped", location=response.location)


def _is_only_declared(namespace: api.LanceNamespace, names: list[str]) -> bool:
    request = api.DescribeTableRequest(id=names, check_declared=True, vend_credentials=False)
    return bool(namespace.describe_table(request).is_only_declared)


# -- rows ------------------------------------------------------------------------------------------


@app.command()
def head(
    catalog: CatalogName,
    table: TableName,
    *,
    rows: Annotated[
        int, typer.Option("--rows", "--limit", "-n", min=1, help="Number of rows.")
    ] = 10,
    columns: Columns = None,
    version: Version = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Show a table's first rows.

    Example: lance-bridge table head prod sales.orders -n 3
    """
    fields = {"k": rows, "version": version}
    _print_rows(catalog, properties, output, table=table, fields=fields, columns=columns)


@app.command()
def count(
    catalog: CatalogName,
    table: TableName,
    *,
    where: Where = None,
    version: Version = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Count a table's rows, or those that match a condition.

    Example: lance-bridge table count prod sales.orders --where 'price > 2'
    """
    request = api.CountTableRowsRequest(id=parse_name(table), predicate=where, version=version)
    with connected_or_federated(catalog, properties) as namespace, spinner(f"count {table}"):
        rows = namespace.count_table_rows(request).count
    print_result(output, str(rows), {"table": table, "rows": rows})


@app.command()
def query(
    catalog: CatalogName,
    table: TableName,
    *,
    where: Where = None,
    columns: Columns = None,
    vector: Annotated[
        str | None, typer.Option("--vector", help="Find the nearest rows: a JSON array of numbers.")
    ] = None,
    vector_column: Annotated[
        str | None, typer.Option("--vector-column", help="The column with the vectors.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Find words, through a full-text index.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Number of rows.")] = 10,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Rows to skip first.")] = 0,
    version: Version = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Find rows by a condition, a vector, words, or several of these.

    Example: lance-bridge table query prod sales.orders --where 'price > 2' -c id -c price
    """
    fields: dict[str, Any] = {"k": limit, "offset": offset or None, "filter": where}
    fields |= {"version": version, "vector_column": vector_column}
    if vector is not None:
        fields["vector"] = {"single_vector": _parse_vector(vector)}
    if text is not None:
        fields["full_text_query"] = {"string_query": {"query": text}}
    _print_rows(catalog, properties, output, table=table, fields=fields, columns=columns)


def _parse_vector(text: str) -> list[float]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    is_vector = isinstance(found, list) and all(isinstance(n, int | float) for n in found)
    if not is_vector or not found:
        raise usage_error("--vector must be a JSON array of numbers, such as '[0.5, 1]'")
    return [float(number) for number in found]


def _print_rows(
    catalog: str,
    properties: list[str] | None,
    output: RowsOutput,
    *,
    table: str,
    fields: dict[str, Any],
    columns: list[str] | None,
) -> None:
    from .schemas import batch_to_rows  # noqa: PLC0415 - takes long to import

    given = {key: value for key, value in fields.items() if value is not None}
    given = {"id": parse_name(table), "vector": {}, **given}
    if columns:
        given["columns"] = {"column_names": columns}
    request = api.QueryTableRequest.from_dict(given)
    assert request is not None
    with connected_or_federated(catalog, properties) as namespace:
        with spinner(f"read {table}"):
            reader = _read_rows(namespace, request)
            # Read before anything is printed: a query that fails prints no partial result.
            first = [row for batch in islice(reader, 1) for row in batch_to_rows(batch)]
        rest = (row for batch in reader for row in batch_to_rows(batch))
        print_data(output, reader.schema.names, chain(first, rest))


def _read_rows(
    namespace: api.LanceNamespace, request: api.QueryTableRequest
) -> pa.RecordBatchReader:
    """Run a query on a namespace of `connected_or_federated`; return a reader of the rows."""
    reader: pa.RecordBatchReader = namespace.query_table_reader(request)  # type: ignore[attr-defined]  # not in the API
    return reader


# -- versions, tags and indices --------------------------------------------------------------------


@app.command()
def versions(
    catalog: CatalogName,
    table: TableName,
    *,
    latest_first: Annotated[
        bool, typer.Option("--latest-first", help="Begin with the latest.")
    ] = False,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's versions, and when each was created.

    Example: lance-bridge table versions prod sales.orders --latest-first -n 5
    """
    request = api.ListTableVersionsRequest(
        id=parse_name(table), descending=latest_first, limit=limit, page_token=page_token
    )
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.list_table_versions(request)
    rows = [
        (each.version, _format_time(each.timestamp_millis), each.manifest_size)
        for each in found.versions
    ]
    print_page(output, "versions", ["version", "created", "manifest_bytes"], rows, found.page_token)


def _format_time(millis: int | None) -> str | None:
    if millis is None:
        return None
    return datetime.fromtimestamp(millis / 1000, timezone.utc).isoformat(timespec="milliseconds")


@app.command()
def tags(
    catalog: CatalogName,
    table: TableName,
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's tags, and the version of each.

    Example: lance-bridge table tags prod sales.orders
    """
    request = api.ListTableTagsRequest(id=parse_name(table), limit=limit, page_token=page_token)
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.list_table_tags(request)
    rows = [(name, each.version, each.branch) for name, each in sorted(found.tags.items())]
    print_page(output, "tags", ["tag", "version", "branch"], rows, found.page_token)


@app.command()
def indices(
    catalog: CatalogName,
    table: TableName,
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's indices, and how many rows each covers.

    Example: lance-bridge table indices prod sales.orders
    """
    request = api.ListTableIndicesRequest(id=parse_name(table), limit=limit, page_token=page_token)
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.list_table_indices(request)
    rows = [
        (
            *(each.index_name, each.index_type, ", ".join(each.columns)),
            *(each.num_indexed_rows, each.num_unindexed_rows, each.size_bytes),
        )
        for each in found.indexes
    ]
    columns = ["index", "kind", "columns", "indexed_rows", "unindexed_rows", "bytes"]
    print_page(output, "indices", columns, rows, found.page_token)
