"""Commands for installed implementations and for catalogs of the configuration file."""

from __future__ import annotations

import shutil
import time
from enum import Enum
from operator import itemgetter
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Annotated

import typer

import lance_bridge
from _lance_bridge_names import catalogs
from lance_bridge.user_files import config_path

from . import api
from .arguments import (
    CatalogName,
    OutputOption,
    Properties,
    connected,
    exit_on_error,
    read_default,
    require_catalog,
)
from .output import (
    UNLIMITED,
    Output,
    Row,
    RowsOption,
    RowsOutput,
    key_value_table,
    make_table,
    print_line,
    print_list,
    print_markdown,
    print_parts,
    spinner,
)

if TYPE_CHECKING:
    from lance_bridge.catalog import Capabilities
    from lance_bridge.namespace import LanceBridgeNamespace

app = typer.Typer()

_WIDTH, _INDENT = 100, "    "
"""The maximum width of a paragraph, and its indentation."""


@app.command("list")
def list_catalogs(output: RowsOption = RowsOutput.TEXT) -> None:
    """List the installed implementations and the configured catalogs. No catalog is called.

    CSV and JSON lines list both together: an implementation has a class and no catalog name.

    Example: lance-bridge catalogs list
    """
    with exit_on_error():
        named = lance_bridge.config.named_catalogs()
    first = read_default()
    installed = [{"impl": impl, "class": path} for impl, path in sorted(catalogs().items())]
    rows = [
        {"catalog": name, "impl": each["impl"], **_try_to_connect(name), "default": name == first}
        for name, each in named.valid.items()
    ]
    rows += [
        {"catalog": name, "impl": "", "connection": "", "problem": text, "default": name == first}
        for name, text in named.problems.items()
    ]
    configured = sorted(rows, key=itemgetter("catalog"))
    columns = ["catalog", "impl", "class", "connection", "problem", "default"]
    if output in (RowsOutput.CSV, RowsOutput.JSONL):
        print_list(output, columns, [*installed, *configured], "catalogs")
        return
    fields = {"installed": installed, "file": str(config_path()), "configured": configured}
    parts = [
        make_table(["impl", "class"], installed),
        make_table([*columns[:2], *columns[3:]], configured, longest=UNLIMITED),
    ]
    print_parts(Output(output.value), fields, parts)


def _try_to_connect(name: str) -> dict[str, str]:
    """Return what a configured catalog is connected to, or why it cannot connect."""
    try:
        return {"connection": lance_bridge.connect(name).namespace_id(), "problem": ""}
    except api.LanceNamespaceError as error:
        return {"connection": "", "problem": str(error)}


@app.command("test")
def check_connection(
    catalog: CatalogName,
    calls: Annotated[int, typer.Option("--calls", min=1, help="Number of calls to time.")] = 5,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Connect to a catalog and show its release, capabilities and response times.

    Example: lance-bridge catalogs test prod
    """
    with connected(catalog, properties) as namespace, spinner(f"call {catalog}"):
        latencies = [_time_call(namespace) for _ in range(calls)]
        server = dict(namespace.connection.catalog.describe_server())
    facts = {
        "catalog": catalog,
        "connection": namespace.namespace_id(),
        **server,
        "first_call_ms": latencies[0],
        "fastest_call_ms": min(latencies),
    }
    capabilities = _describe_capabilities(namespace.capabilities)
    parts = [key_value_table(facts), key_value_table(capabilities)]
    print_parts(output, {**facts, "capabilities": capabilities}, parts)


def _time_call(namespace: LanceBridgeNamespace) -> float:
    """Return the milliseconds that it takes to list one top-level namespace."""
    started = time.perf_counter()
    namespace.list_namespaces(api.ListNamespacesRequest(limit=1))
    return round((time.perf_counter() - started) * 1000, 2)


def _describe_capabilities(capabilities: Capabilities) -> dict[str, str]:
    """Return "yes" for each capability, or "no" with the reason."""

    def describe(reason: str) -> str:
        return f"no: {reason}" if reason else "yes"

    nouns = [rule.noun for rule in (*capabilities.namespace_levels, capabilities.table_rule)]
    return {
        "names_of_a_table": ".".join(nouns),
        "case_of_names": "folded to lower case" if capabilities.folds_case else "kept",
        "change_namespaces": describe(capabilities.no_namespace_changes),
        "change_outer_namespaces": describe(capabilities.no_outer_namespace_changes),
        "rename_tables": describe(capabilities.no_rename),
        "rename_across_namespaces": describe(capabilities.no_rename_across),
        "change_entries": describe(capabilities.no_alter),
        "hold_versions_of_tables": describe(capabilities.no_managed_tables),
    }


class PropertiesOutput(str, Enum):
    """Output formats of the list of properties."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"


@app.command("properties")
def list_properties(
    impl: CatalogName,
    output: Annotated[
        PropertiesOutput,
        typer.Option("--output", "-o", help="text, json, jsonl, csv or markdown."),
    ] = PropertiesOutput.TEXT,
) -> None:
    """List the properties of an implementation. No catalog is called.

    Example: lance-bridge catalogs properties hive
    """
    from lance_bridge.registry import (  # noqa: PLC0415 - takes seconds to import
        implementation,
        require_lance_bridge_class,
    )

    require_catalog(impl)
    with exit_on_error():
        catalog = require_lance_bridge_class(implementation(impl), impl)
    columns = ["name", "default", "secret", "meaning", "example"]
    rows = [
        dict(zip(columns, (p.key, p.default_text, p.secret, p.meaning, p.example), strict=True))
        for p in catalog.config_type.declared()
    ]
    if output is PropertiesOutput.MARKDOWN:
        print_markdown(columns, rows)
    elif output is PropertiesOutput.TEXT:
        print_line("\n".join(map(_describe_property, rows)))
    else:
        print_list(RowsOutput(output.value), columns, rows, "properties")


def _describe_property(row: Row) -> str:
    """Return the lines about a property, as wide as a terminal."""
    default = row["default"]
    facts = [f"default: {default}" if default not in ("", "required") else default]
    facts += ["secret"] if row["secret"] else []
    noted = ", ".join(filter(None, facts))
    head = f"{row['name']} ({noted})" if noted else str(row["name"])
    texts = [row["meaning"]] + ([] if row["secret"] else [f"Example: {row['example']}"])
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    wrapper = TextWrapper(width, _INDENT, _INDENT, break_long_words=False, break_on_hyphens=False)
    return "\n".join([head, *map(wrapper.fill, texts)])
