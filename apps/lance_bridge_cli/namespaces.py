"""Namespaces: databases, schemas and catalogs, as the catalog calls them."""

from __future__ import annotations

from typing import Annotated

import typer

from lance_bridge.dotted_names import written

from . import api
from .arguments import (
    CatalogName,
    Limit,
    NamespaceName,
    OutputOption,
    PageToken,
    Properties,
    Settings,
    Yes,
    confirm,
    connected_or_federated,
    parse_key_values,
    parse_name,
)
from .output import (
    Output,
    RowsOption,
    RowsOutput,
    key_value_table,
    print_page,
    print_parts,
    print_result,
    spinner,
)
from .properties import properties_of_namespaces

app = typer.Typer()
app.add_typer(properties_of_namespaces, name="properties")


@app.command("list")
def list_namespaces(
    catalog: CatalogName,
    parent: Annotated[str, typer.Argument(help="List the namespaces inside this one.")] = "",
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List the top-level namespaces, or those inside another one.

    Example: lance-bridge ns list prod
    """
    names = parse_name(parent) if parent else []
    request = api.ListNamespacesRequest(id=names, limit=limit, page_token=page_token)
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.list_namespaces(request)
    rows = [(written([*names, name]),) for name in found.namespaces]
    print_page(output, "namespaces", ["namespace"], rows, found.page_token)


@app.command()
def create(
    catalog: CatalogName,
    name: NamespaceName,
    *,
    settings: Settings = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Keep an existing namespace of that name.")
    ] = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a namespace.

    Example: lance-bridge ns create prod archive --set comment=old --exist-ok
    """
    request = api.CreateNamespaceRequest(
        id=parse_name(name),
        mode="Create",
        properties=parse_key_values(settings, "--set") or None,
    )
    outcome = "created"
    with connected_or_federated(catalog, properties) as namespace:
        try:
            response = namespace.create_namespace(request)
        except api.NamespaceAlreadyExistsError:
            if not exist_ok:
                raise
            outcome = "exists"
            request.mode = "ExistOk"
            response = namespace.create_namespace(request)
    fields = {"namespace": name, "properties": response.properties or {}}
    print_result(output, f"{name}: {outcome}", fields)


@app.command()
def describe(
    catalog: CatalogName,
    name: NamespaceName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a namespace's properties, with its location.

    Example: lance-bridge ns describe prod sales
    """
    request = api.DescribeNamespaceRequest(id=parse_name(name))
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.describe_namespace(request).properties or {}
    table = key_value_table(found, as_written=True)
    print_parts(output, {"namespace": name, "properties": found}, [table])


@app.command()
def drop(
    catalog: CatalogName,
    name: NamespaceName,
    *,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also drop its Lance tables and their data.")
    ] = False,
    yes: Yes = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Drop an empty namespace, or with --cascade one with Lance tables and their data.

    Example: lance-bridge ns drop prod attic --yes
    """
    behavior = "Cascade" if cascade else "Restrict"
    request = api.DropNamespaceRequest(id=parse_name(name), behavior=behavior)
    what = " and all Lance tables in it, with their data" if cascade else ""
    confirm(f"Drop namespace {name} of {catalog}{what}?", yes=yes)
    with connected_or_federated(catalog, properties) as namespace, spinner(f"drop {name}"):
        namespace.drop_namespace(request)
    print_result(output, f"{name}: dropped", {"namespace": name, "dropped": True})
