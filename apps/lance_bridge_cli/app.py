"""The commands, one group per module, and those that adapters and other applications bring."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from .check import PASSED_ON, check
from .doctor import doctor
from .groups import add_group
from .output import color_system, log_messages
from .plugins import add_commands

if color_system() is None:
    # With NO_COLOR, help is without bold letters, too: rich leaves those. What shows help takes a
    # tenth of a second to import, and completion needs none of it.
    from typer import rich_utils

    rich_utils.COLOR_SYSTEM = None

app = typer.Typer(
    name="lance-bridge",
    help="Lance tables in the catalog you already run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_GROUPS = (
    ("catalogs", "catalogs", "Catalogs: list them, and test one."),
    ("config", "configuration", "The configuration file: show and set."),
    ("ns", "namespaces", "Namespaces: list, create, describe and drop."),
    ("table", "tables", "Tables: list, describe, read, register, deregister, rename and drop."),
    ("maintain", "maintain", "Upkeep of tables: compact, index and clean up."),
    (
        "managed",
        "managed",
        "Tables whose versions the catalog holds: implementation-managed tables.",
    ),
)
"""Groups: name, module and summary."""

for _name, _module, _summary in _GROUPS:
    add_group(app, _name, _module, _summary)
app.command(context_settings=PASSED_ON)(check)
app.command()(doctor)
add_commands(app)


def _tell_version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"lance-bridge {version('lance-bridge')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Show the version, and end."
        ),
    ] = False,
) -> None:
    """Lance tables in the catalog you already run.

    Exit codes: 0 done; 1 the catalog or the storage refused, or failed; 2 the command was given
    wrongly; 3 it looked for something and found it; 130 Ctrl-C.
    """
    context.with_resource(log_messages())
