"""The program: its groups of commands, one per module, and the conformance kit as a command."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from .common import catalog_names, exit_on_error
from .groups import ProgramGroup, imported_app
from .output import color_system, log_messages

if color_system() is None:
    # With NO_COLOR, rich still prints bold letters in help. Importing rich_utils takes a tenth of a
    # second, and completion does not need it.
    from typer import rich_utils

    rich_utils.COLOR_SYSTEM = None

GROUPS = (
    ("catalogs", "catalogs", "Catalogs: list and test them, and list their properties."),
    ("config", "configuration", "The configuration file: show and change it."),
    ("ns", "namespaces", "Namespaces: list, create, describe and drop."),
    ("table", "tables", "Tables: list, describe, read, register, deregister, rename and drop."),
    ("maintain", "maintain", "Table maintenance: compact, index and clean up."),
    ("managed", "managed", "Implementation-managed tables, whose versions the catalog holds."),
    ("spark", "spark", "Spark: paths for its configuration."),
)
"""Groups: name, module and summary."""

app = typer.Typer(
    name="lance-bridge",
    cls=ProgramGroup,
    help="Use Hive, Glue or Unity Catalog as the catalog for your Lance tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _module, _summary in GROUPS:
    app.add_typer(imported_app(f"{__package__}.{_module}", _summary), name=_name)


def _print_version(*, requested: bool) -> None:
    if requested:
        typer.echo(f"lance-bridge {version('lance-bridge')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Use Hive, Glue or Unity Catalog as the catalog for your Lance tables.

    Exit codes: 0 done; 1 the catalog or the storage refused or failed; 2 wrong usage; 3 a check
    found something; 130 Ctrl-C.
    """
    context.with_resource(log_messages())


@app.command()
def quickstart(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the table; must be new or empty.")
    ] = Path("lance-quickstart"),
) -> None:
    """Write a first table to a directory, query it, and print the code it runs.

    Requires no catalog and no server.

    Example: lance-bridge quickstart
    """
    from .quickstart import run  # noqa: PLC0415 - its imports take seconds

    run(directory)


# Options are passed on unchanged, including --help.
@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
def check(
    arguments: Annotated[list[str] | None, typer.Argument(autocompletion=catalog_names)] = None,
) -> None:
    """Run the conformance kit against a Lance namespace, in child namespaces that it removes."""
    from lance_bridge import kit_options  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.extras import require  # noqa: PLC0415 - the same

    program = "lance-bridge check"
    given = kit_options.parse(arguments or [], program)
    with exit_on_error():
        require("testing", "pytest", "hypothesis")
    from lance_bridge.testing import command  # noqa: PLC0415 - pytest may be missing

    raise typer.Exit(command.run(given, program))
