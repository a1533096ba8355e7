"""Commands for the configuration of a Spark cluster."""

from __future__ import annotations

from importlib import metadata

import typer

from .common import exit_on_error

app = typer.Typer()

JARS = "lance_bridge.jars"
"""The group of entry points that return a jar's path: see `lance_bridge_spark.jvm.jar`."""


@app.command()
def jar() -> None:
    """Print the path of the jar of the SQL catalog, for `spark.jars`.

    Example: lance-bridge spark jar
    """
    with exit_on_error():
        [point] = metadata.entry_points(group=JARS, name="spark")
        typer.echo(point.load()())
