"""Namespaces: databases, schemas and catalogs, as the catalog calls them."""

from __future__ import annotations

from typing import Annotated

import typer

from lance_bridge.names import written

from . import api
from .common import (
    CatalogName,
    NamespaceName,
    OutputOption,
    Properties,
    Yes,
    confirm,
    connected,
    names_of,
    pairs,
)
from .output import Output, pairs_table, tell, tell_parts, working
from .paging import Limit, PageToken
from .rows import RowsOption, RowsOutput, print_page

app = typer.Typer()


@app.command("list")
def list_namespaces(
    catalog: CatalogName,
    parent: Annotated[str, typer.Argument(help="List those inside this one.")] = "",
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List namespaces: the outermost ones, or those inside another one.

    Example: lance-bridge ns list prod
    """
    names = names_of(parent) if parent else []
    with connected(catalog, properties) as namespace:
        request = api.ListNamespacesRequest(id=names, limit=limit, page_token=page_token)
        found = namespace.list_namespaces(request)
    shown = [written([*names, name]) for name in found.namespaces]
    print_page(
        output,
        "namespaces",
        ["namespace"],
        [{"namespace": each} for each in shown],
        found.page_token,
    )


@app.command()
def create(
    catalog: CatalogName,
    name: NamespaceName,
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A property of the namespace: key=value. Repeatable."),
    ] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Keep one that is there.")] = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a namespace.

    Example: lance-bridge ns create prod archive --set comment=old --exist-ok
    """
    names, given = names_of(name), pairs(settings)
    with connected(catalog, properties) as namespace:
        mode = "ExistOk" if exist_ok else "Create"
        request = api.CreateNamespaceRequest(id=names, mode=mode, properties=given or None)
        answer = namespace.create_namespace(request)
    fields = {"namespace": name, "properties": answer.properties or {}}
    tell(output, f"{name}: created" if not exist_ok else f"{name}: is there", fields)


@app.command()
def describe(
    catalog: CatalogName,
    name: NamespaceName,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a namespace's properties, its location among them.

    Example: lance-bridge ns describe prod sales
    """
    names = names_of(name)
    with connected(catalog, properties) as namespace:
        answer = namespace.describe_namespace(api.DescribeNamespaceRequest(id=names))
    found = answer.properties or {}
    tell_parts(output, {"namespace": name, "properties": found}, [pairs_table(found)])


@app.command()
def drop(
    catalog: CatalogName,
    name: NamespaceName,
    *,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Drop its Lance tables with their data, too.")
    ] = False,
    yes: Yes = False,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Drop a namespace that is empty, or with --cascade one with Lance tables and their data.

    Example: lance-bridge ns drop prod attic --yes
    """
    names = names_of(name)
    what = " and all Lance tables in it, with their data" if cascade else ""
    confirm(f"Drop namespace {name}{what}?", yes=yes)
    with connected(catalog, properties) as namespace, working(f"drop {name}"):
        behavior = "Cascade" if cascade else "Restrict"
        namespace.drop_namespace(api.DropNamespaceRequest(id=names, behavior=behavior))
    tell(output, f"{name}: dropped", {"namespace": name, "dropped": True})
