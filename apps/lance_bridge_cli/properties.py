"""Commands for the properties of tables and namespaces: get, set and remove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from . import api
from .arguments import (
    CatalogName,
    NamespaceName,
    OutputOption,
    Properties,
    TableName,
    connected,
    connected_or_federated,
    parse_key_values,
    parse_name,
)
from .output import (
    Output,
    RowsOption,
    RowsOutput,
    print_line,
    print_list,
    print_parts,
    print_result,
)

MANAGED_BY = "managed_by"

Key = Annotated[str, typer.Argument(help="Show only the value of this property.")]
NewValues = Annotated[list[str], typer.Argument(help="key=value. Repeatable.")]
Keys = Annotated[list[str], typer.Argument(help="The properties to remove.")]

properties_of_tables = typer.Typer(
    help="Properties of a table: get, set and remove.", no_args_is_help=True
)
properties_of_namespaces = typer.Typer(
    help="Properties of a namespace: get, set and remove.", no_args_is_help=True
)


# -- tables ----------------------------------------------------------------------------------------


@properties_of_tables.command("get")
def get_of_table(
    catalog: CatalogName,
    table: TableName,
    key: Key = "",
    *,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Show the properties of a table's entry, or the value of one.

    Example: lance-bridge table properties get prod sales.orders
    """
    request = api.DescribeTableRequest(id=parse_name(table), vend_credentials=False)
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.describe_table(request).properties or {}
        _require(f"Table '{table}'", found, [key] if key else [])
    _print(output, found, key)


@properties_of_tables.command("set")
def set_of_table(
    catalog: CatalogName,
    table: TableName,
    values: NewValues,
    *,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Set properties of a table's entry; the others stay.

    Example: lance-bridge table properties set prod sales.orders team=shop
    """
    updates = parse_key_values(values, "A property")
    with connected(catalog, properties) as namespace:
        if any(each.lower() == MANAGED_BY for each in updates):
            raise api.InvalidInputError(
                f"{MANAGED_BY} is not set, but changed by lance-bridge managed begin, or end"
            )
        namespace.tables.load_by_id(parse_name(table)).change_properties(updates, ())
    _print_change(output, "table", table, "set", list(updates))


@properties_of_tables.command("remove")
def remove_of_table(
    catalog: CatalogName,
    table: TableName,
    keys: Keys,
    *,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove properties of a table's entry.

    Example: lance-bridge table properties remove prod sales.orders season
    """
    with connected(catalog, properties) as namespace:
        found = namespace.tables.load_by_id(parse_name(table))
        _require(f"Table '{table}'", found.properties, keys)
        found.change_properties({}, keys)
    _print_change(output, "table", table, "removed", keys)


# -- namespaces ------------------------------------------------------------------------------------


@properties_of_namespaces.command("get")
def get_of_namespace(
    catalog: CatalogName,
    name: NamespaceName,
    key: Key = "",
    *,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Show the properties of a namespace, or the value of one.

    Example: lance-bridge ns properties get prod sales
    """
    request = api.DescribeNamespaceRequest(id=parse_name(name))
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.describe_namespace(request).properties or {}
        _require(f"Namespace '{name}'", found, [key] if key else [])
    _print(output, found, key)


@properties_of_namespaces.command("set")
def set_of_namespace(
    catalog: CatalogName,
    name: NamespaceName,
    values: NewValues,
    *,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Set properties of a namespace; the others stay.

    Example: lance-bridge ns properties set prod sales team=shop
    """
    updates = parse_key_values(values, "A property")
    with connected(catalog, properties) as namespace:
        path = namespace.namespace_path(parse_name(name))
        namespace.tables.change_namespace(path, updates, ())
    _print_change(output, "namespace", name, "set", list(updates))


@properties_of_namespaces.command("remove")
def remove_of_namespace(
    catalog: CatalogName,
    name: NamespaceName,
    keys: Keys,
    *,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove properties of a namespace.

    Example: lance-bridge ns properties remove prod sales season
    """
    request = api.DescribeNamespaceRequest(id=parse_name(name))
    with connected(catalog, properties) as namespace:
        found = namespace.describe_namespace(request).properties or {}
        _require(f"Namespace '{name}'", found, keys)
        path = namespace.namespace_path(request.id)
        namespace.tables.change_namespace(path, {}, keys)
    _print_change(output, "namespace", name, "removed", keys)


# -- both ------------------------------------------------------------------------------------------


def _require(what: str, found: Mapping[str, str], keys: Sequence[str]) -> None:
    """Raise InvalidInput (13) if one of the keys is not among the properties."""
    for key in keys:
        if key not in found:
            known = f"it has {', '.join(sorted(found))}" if found else "it has none"
            raise api.InvalidInputError(f"{what} has no property '{key}': {known}")


def _print(output: RowsOutput, found: Mapping[str, str], key: str) -> None:
    """Print properties, or the value of one: alone in text, as an object in JSON."""
    chosen = {key: found[key]} if key else dict(sorted(found.items()))
    if output is RowsOutput.JSON:
        print_parts(Output.JSON, chosen, [])
    elif key and output is RowsOutput.TEXT:
        print_line(chosen[key])
    else:
        rows = [{"property": each, "value": value} for each, value in chosen.items()]
        print_list(output, ["property", "value"], rows, "properties")


def _print_change(output: Output, noun: str, name: str, verb: str, keys: Sequence[str]) -> None:
    print_result(output, f"{name}: {', '.join(keys)} {verb}", {noun: name, verb: list(keys)})
