"""``lance-bridge metastore``: the same as ``python -m lance_bridge_metastore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lance_bridge_cli.arguments import usage_error

from .releases import RELEASES

_DEFAULT = "2.3"
_MAX_PORT = 65_535

app = typer.Typer(help="A local Hive Metastore, for tests and demos.", no_args_is_help=True)


@app.command()
def start(
    version: Annotated[
        str, typer.Option("--version", help=f"The release: {', '.join(sorted(RELEASES))}.")
    ] = _DEFAULT,
    port: Annotated[int, typer.Option("--port", help="Port; 0 for any free port.")] = 9083,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", help="State directory; temporary by default."),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", help="Where databases are created: path or URI."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", help="A property of hive-site.xml: name=value. Repeatable."),
    ] = None,
) -> None:
    """Run a real Hive Metastore on this machine until Ctrl-C, which ends it with exit code 0.

    Example: lance-bridge metastore start --port 0
    """
    from .__main__ import main  # noqa: PLC0415 - help needs none of what it imports

    if version not in RELEASES:
        raise usage_error(f"--version {version} is not among {', '.join(sorted(RELEASES))}")
    if not 0 <= port <= _MAX_PORT:
        raise usage_error(f"--port must be between 0 and {_MAX_PORT}, not {port}")
    options = {"--directory": directory, "--warehouse": warehouse}
    arguments = ["--version", version, "--port", str(port)]
    arguments += [f"{key}={value}" for key, value in options.items() if value is not None]
    for each in settings or ():
        name, equals, _ = each.partition("=")
        if not (name and equals):
            raise usage_error(f"--setting must be name=value, not '{each}'")
        arguments.append(f"--setting={each}")
    raise typer.Exit(main(arguments))


@app.callback()
def _group() -> None:
    """A local Hive Metastore, for tests and demos."""
