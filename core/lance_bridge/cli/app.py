"""The commands, one group per module."""

from __future__ import annotations

import typer

from . import managed

app = typer.Typer(
    name="lance-bridge",
    help="Lance tables in the catalog you already run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(managed.app, name="managed")


@app.callback()
def _options() -> None:
    """Lance tables in the catalog you already run."""
