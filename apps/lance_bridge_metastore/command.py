"""``lance-bridge metastore``: the same as ``python -m lance_bridge_metastore``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lance_bridge_cli.common import misused

from .__main__ import LARGEST_PORT, main
from .releases import RELEASES

_DEFAULT = "2.3"

app = typer.Typer(help="A Hive Metastore of your own, for trials.", no_args_is_help=True)


@app.command()
def start(
    version: Annotated[
        str, typer.Option("--version", help=f"The release: {', '.join(sorted(RELEASES))}.")
    ] = _DEFAULT,
    port: Annotated[int, typer.Option("--port", help="0 takes any free one.")] = 9083,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where its state is kept; else forgotten.")
    ] = None,
    warehouse: Annotated[
        str | None, typer.Option("--warehouse", help="Where databases lie, a path or a URI.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", help="A property of hive-site.xml: name=value. Repeatable."),
    ] = None,
) -> None:
    """Run a real Hive Metastore here, until Ctrl-C, which is its way to end: the exit code is 0.

    Example: lance-bridge metastore start --port 0
    """
    _check(version, port, settings or ())
    arguments = ["--version", version, "--port", str(port)]
    arguments += ["--directory", str(directory)] if directory is not None else []
    arguments += ["--warehouse", warehouse] if warehouse is not None else []
    for each in settings or ():
        arguments += ["--setting", each]
    raise typer.Exit(main(arguments))


def _check(version: str, port: int, settings: Sequence[str]) -> None:
    """End the command where an option cannot be: with one line, as other commands do."""
    if version not in RELEASES:
        raise misused(f"--version {version} is not among {', '.join(sorted(RELEASES))}")
    if not 0 <= port <= LARGEST_PORT:
        raise misused(f"--port must be between 0 and {LARGEST_PORT}, and not {port}")
    for each in settings:
        name, equals, _ = each.partition("=")
        if not (name and equals):
            raise misused(f"--setting is given as name=value, and not '{each}'")


@app.callback()
def _group() -> None:
    """A Hive Metastore of your own, for trials."""
