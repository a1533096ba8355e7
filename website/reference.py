"""Generates the pages of the reference: properties, commands, and the Python API.

`rest` generates the page of the routes.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import typer

import lance_bridge
from lance_bridge.config import Property
from lance_bridge_cli.app import app

from .markdown import table_row
from .rest import routes

MODULES = (
    "lance_bridge.catalog", "lance_bridge.config", "lance_bridge.errors", "lance_bridge.testing",
    "lance_bridge", "lance_bridge_spark", "lance_bridge_migrate", "lance_bridge_doctor",
)  # fmt: skip
"""A name that several modules export is shown in the first one."""


def properties() -> str:
    """Return the page of all properties: the shared ones, then those of each catalog."""
    tables = {name: _config_type(name).declared() for name in sorted(lance_bridge.catalogs())}
    first, *others = tables.values()
    shared = [row for row in first if all(row in rows for rows in others)]
    lines = [
        "# Properties",
        "",
        "Generated from what each catalog declares. [Configuration](common.md#configuration) has",
        "the rules for values, the environment and files.",
        *_table("Every catalog", shared),
    ]
    for name, rows in tables.items():
        lines += _table(name, [row for row in rows if row not in shared])
    return "\n".join(lines) + "\n"


def _config_type(name: str) -> Any:
    module, _, attribute = lance_bridge.catalogs()[name].rpartition(".")
    return getattr(importlib.import_module(module), attribute).config_type


def _table(title: str, rows: list[Property]) -> Iterator[str]:
    yield from ("", f"## {title}", "", "| property | meaning | default | secret | example |")
    yield "|---|---|---|---|---|"
    for row in rows:
        default = row.default_text if row.required or not row.default else f"`{row.default}`"
        example = f"`{row.example}`" if row.example else ""
        yield table_row(f"`{row.key}`", row.meaning, default, "yes" if row.secret else "", example)


def commands() -> str:
    """Return the page of all commands with their arguments and options."""
    group = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "Generated from the program. [The command line](cli.md) describes common options and",
        "exit codes.",
    ]
    for context in _contexts(group, typer.Context(group, info_name="lance-bridge")):
        lines += _command(context)
    return "\n".join(lines) + "\n"


def _contexts(command: Any, context: typer.Context) -> Iterator[typer.Context]:
    if not hasattr(command, "commands"):
        yield context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if not inner.hidden:
            yield from _contexts(inner, typer.Context(inner, parent=context, info_name=name))


def _command(context: typer.Context) -> Iterator[str]:
    command: Any = context.command
    yield from ("", f"## {context.command_path.removeprefix('lance-bridge ')}", "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"    {context.command_path} {usage}"
    yield from ("", *(command.help or "").replace("\b", "").splitlines())
    rows = [
        table_row(*_parameter(each)) for each in command.params if not getattr(each, "hidden", 0)
    ]
    if rows:
        yield from ("", "| argument or option | meaning |", "|---|---|", *rows)


def _parameter(parameter: Any) -> tuple[str, str]:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name}`"
    return names, getattr(parameter, "help", "") or ""


def python(module: str) -> str:
    """Return the page of a module's public names, for mkdocstrings."""
    earlier = MODULES[: MODULES.index(module)]
    shown = {name for each in earlier for name in _public_names(each)}
    submodules = {each.rpartition(".")[2] for each in MODULES}
    names = [name for name in _public_names(module) if name not in shown | submodules]
    lines = [
        f"# {module}",
        "",
        "Public names, with their types and docstrings. Errors are described in",
        "[Errors](../errors.md); every method of a namespace in [Every catalog](common.md) and",
        "[Operations inside a table](operations.md).",
        "",
        f"::: {module}",
        "    options:",
        "      show_root_heading: false",
        "      members:",
        *(f"      - {name}" for name in names),
    ]
    return "\n".join(lines) + "\n"


@cache
def _public_names(module: str) -> list[str]:
    """Return the names in a module's ``__all__``, without importing what the module needs."""
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")


GENERATED: dict[str, Callable[[], str]] = {
    "reference/properties.md": properties,
    "reference/commands.md": commands,
    "reference/rest.md": routes,
    **{f"reference/{module}.md": partial(python, module) for module in MODULES},
}
"""Page of the site to the function that writes it."""
