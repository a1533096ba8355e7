"""Tables as entries of the catalog: list, describe, register, deregister, rename and drop."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lance_bridge.names import written

from . import api, contents, history
from .common import (
    CatalogName,
    OutputOption,
    Properties,
    TableName,
    Yes,
    confirm,
    connected,
    names_of,
    pairs,
)
from .output import WIDE, Output, message, pairs_table, table_of, tell, tell_parts, working
from .paging import Limit, PageToken
from .rows import RowsOption, RowsOutput, print_page

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_bridge.namespace import LanceBridgeNamespace

app = typer.Typer()


@app.command("list")
def list_tables(
    catalog: CatalogName,
    namespace: Annotated[str, typer.Argument(help="List those of this namespace only.")] = "",
    *,
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Leave out those that are only declared.")
    ] = False,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List the Lance tables of a namespace, or of the whole catalog.

    Example: lance-bridge table list prod sales
    """
    names = names_of(namespace) if namespace else []
    with connected(catalog, properties) as connection, working("list tables"):
        paths, token = _listed(connection, names, with_data, limit, page_token)
    print_page(output, "tables", ["table"], [{"table": written(path)} for path in paths], token)


def _listed(
    connection: LanceBridgeNamespace,
    names: list[str],
    with_data: bool,
    limit: int | None,
    page_token: str | None,
) -> tuple[list[tuple[str, ...]], str | None]:
    if names:
        request = api.ListTablesRequest(
            id=names, limit=limit, page_token=page_token, include_declared=not with_data
        )
        found = connection.list_tables(request)
        return [(*names, name) for name in found.tables], found.page_token
    from lance_bridge.entries import listing  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.paging import PageRequest  # noqa: PLC0415 - the same

    # ListAllTables joins names with a sign that names may hold, too.
    page = PageRequest.parse("all tables", limit, page_token)
    return listing.list_all_tables(connection._bridge, page, include_declared=not with_data)


@app.command()
def describe(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show where a table is, its schema, with types as SQL writes them, and its statistics.

    Example: lance-bridge table describe prod sales.orders
    """
    names = names_of(table)
    with connected(catalog, properties) as namespace, working(f"describe {table}"):
        # Credentials are asked for only by what reads the table, and are never shown.
        request = api.DescribeTableRequest(id=names, load_detailed_metadata=True)
        found = namespace.describe_table(request)
        fields = _description(table, found)
        if not found.is_only_declared:
            stats = namespace.get_table_stats(api.GetTableStatsRequest(id=names))
            _add_sql_types(fields, _read_schema(namespace, names, found.version))
            fields["statistics"] = stats.model_dump(mode="json", exclude_none=True)
    tell_parts(output, fields, _parts(fields))


def _description(table: str, found: api.DescribeTableResponse) -> dict[str, Any]:
    schema = found.var_schema.to_dict()["fields"] if found.var_schema else []
    return {
        "table": table,
        "location": found.location,
        "version": found.version,
        "only_declared": bool(found.is_only_declared),
        "managed_versioning": bool(found.managed_versioning),
        "properties": found.properties or {},
        "metadata": found.metadata or {},
        "schema": schema,
    }


def _read_schema(
    namespace: LanceBridgeNamespace, names: list[str], version: int | None
) -> pa.Schema:
    """Return the schema as Arrow has it: the answer's JSON leaves out units and time zones."""
    from lance_bridge.entries import tables as entries  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.ref import Ref  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.table import Table as LanceTable  # noqa: PLC0415 - rich has a Table, too

    bridge = namespace._bridge
    record = entries.load_lance(bridge, bridge.table_path(names))
    return LanceTable(bridge, record).open(Ref.of(version)).schema


def _add_sql_types(fields: dict[str, Any], schema: pa.Schema) -> None:
    from .sqltypes import sql_type  # noqa: PLC0415 - takes seconds to import

    for each, field in zip(fields["schema"], schema, strict=True):
        each["sql_type"] = sql_type(field.type)


def _parts(fields: dict[str, Any]) -> list[Table | str]:
    nested = ("schema", "statistics", "properties", "metadata")
    parts: list[Table | str] = [pairs_table({k: v for k, v in fields.items() if k not in nested})]
    for key in ("properties", "metadata"):
        if fields[key]:
            parts += [key, pairs_table(fields[key])]
    columns = [
        {"column": each["name"], "type": each["sql_type"], "nullable": each["nullable"]}
        for each in fields["schema"]
    ]
    if columns:
        parts.append(table_of(["column", "type", "nullable"], columns, longest=WIDE))
    if "statistics" in fields:
        parts.append(pairs_table(_flat(fields["statistics"])))
    return parts


def _flat(stats: dict[str, Any]) -> dict[str, Any]:
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
def register(
    catalog: CatalogName,
    table: TableName,
    location: Annotated[str, typer.Argument(help="Where the data is: an absolute path or a URI.")],
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A property of the table: key=value. Repeatable."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let a table that has the name be there instead.")
    ] = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Give data that exists a name in the catalog. The data is neither read nor changed.

    Example: lance-bridge table register prod sales.old_orders /data/old_orders.lance
    """
    names, given = names_of(table), pairs(settings)
    with connected(catalog, properties) as namespace:
        mode = "Overwrite" if overwrite else "Create"
        request = api.RegisterTableRequest(
            id=names, location=location, mode=mode, properties=given or None
        )
        answer = namespace.register_table(request)
        _warn_if_empty(namespace, names, catalog, answer.location or location)
    fields = {"table": table, "location": answer.location}
    tell(output, f"{table}: registered at {answer.location}", fields)


def _warn_if_empty(
    namespace: LanceBridgeNamespace, names: list[str], catalog: str, location: str
) -> None:
    """Say that no Lance table is where one was registered, which may be a slip of the pen.

    RegisterTable makes the entry in any case, and such a table is one that is only declared.
    """
    table = written(names)
    try:
        is_empty = _is_only_declared(namespace, names)
    except api.LanceNamespaceError as error:
        message(f"whether there is a Lance table at {location} could not be checked: {error}")
        return
    if is_empty:
        message(
            f"there is no Lance table at {location}: until one is written there, {table} is only "
            f"declared. To remove the entry: lance-bridge table deregister {catalog} "
            f"{shlex.quote(table)}"
        )


@app.command()
def deregister(
    catalog: CatalogName,
    table: TableName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take a table's name out of the catalog, and leave its data where it is.

    Example: lance-bridge table deregister prod sales.old_orders
    """
    names = names_of(table)
    with connected(catalog, properties) as namespace:
        answer = namespace.deregister_table(api.DeregisterTableRequest(id=names))
    fields = {"table": table, "location": answer.location}
    tell(output, f"{table}: deregistered; its data stays at {answer.location}", fields)


@app.command()
def rename(
    catalog: CatalogName,
    table: TableName,
    new_name: Annotated[str, typer.Argument(help="The new names, namespace and all: db.table.")],
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Give a table another name. Its files stay where they are.

    Example: lance-bridge table rename prod sales.drafts sales.notes
    """
    names, new = names_of(table), names_of(new_name)
    with connected(catalog, properties) as namespace:
        request = api.RenameTableRequest(
            id=names, new_namespace_id=new[:-1], new_table_name=new[-1]
        )
        namespace.rename_table(request)
    tell(output, f"{table}: renamed to {new_name}", {"table": new_name, "renamed_from": table})


@app.command()
def drop(
    catalog: CatalogName,
    table: TableName,
    *,
    if_only_declared: Annotated[
        bool, typer.Option("--if-only-declared", help="Refuse where it holds data.")
    ] = False,
    yes: Yes = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Drop a table with its data; it cannot be had back.

    Example: lance-bridge table drop prod sales.scratch --yes
    """
    names = names_of(table)
    confirm(f"Drop table {table} with its data?", yes=yes)
    with connected(catalog, properties) as namespace, working(f"drop {table}"):
        if if_only_declared:
            _require_declared(namespace, names)
        answer = namespace.drop_table(api.DropTableRequest(id=names))
    tell(output, f"{table}: dropped", {"table": table, "location": answer.location})


def _require_declared(namespace: LanceBridgeNamespace, names: list[str]) -> None:
    if not _is_only_declared(namespace, names):
        from lance_bridge.errors import invalid  # noqa: PLC0415 - takes seconds to import

        raise invalid(f"Table '{written(names)}' holds data by now, and was not dropped")


def _is_only_declared(namespace: LanceBridgeNamespace, names: list[str]) -> bool:
    request = api.DescribeTableRequest(id=names, check_declared=True, vend_credentials=False)
    return bool(namespace.describe_table(request).is_only_declared)


app.command()(contents.head)
app.command()(contents.count)
app.command()(contents.query)
app.command()(history.versions)
app.command()(history.tags)
app.command()(history.indices)
