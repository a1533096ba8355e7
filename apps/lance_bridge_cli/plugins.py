"""Commands of other packages: entry points of the group ``lance_bridge.commands``.

The name of an entry point is the command's, and it points to a `typer.Typer`.
"""

from __future__ import annotations

import logging
from importlib import metadata

import typer

GROUP = "lance_bridge.commands"

logger = logging.getLogger(__name__)


def add_commands(app: typer.Typer) -> None:
    """Add the commands of other packages; one that cannot be imported is left out, and logged."""
    for point in metadata.entry_points(group=GROUP):
        try:
            group = point.load()
        except (ImportError, AttributeError) as error:
            logger.warning(
                "no command '%s': %s cannot be loaded: %s", point.name, point.value, error
            )
            continue
        app.add_typer(group, name=point.name)
