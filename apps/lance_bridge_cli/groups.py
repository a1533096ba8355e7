"""Groups of commands that are imported when one of their commands is used, not to list them.

The libraries that the commands use take seconds to import; ``lance-bridge --help`` and the
completion of a group's name need none of them. Other packages add commands with entry points of the
group ``lance_bridge.commands``, which have the command's name and refer to a `typer.Typer` or to
the function of one command.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from functools import cached_property
from importlib import import_module, metadata
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

ENTRY_POINTS = "lance_bridge.commands"

logger = logging.getLogger(__name__)


class ImportedGroup(TyperGroup):
    """A group that imports its module when its commands are first needed."""

    module: ClassVar[str]
    _imported: MutableMapping[str, Any] | None = None

    @property
    def commands(self) -> MutableMapping[str, Any]:
        if self._imported is None:
            group = typer.main.get_group(import_module(self.module).app)
            self._imported = group.commands
        return self._imported

    @commands.setter
    def commands(self, _none: MutableMapping[str, Any]) -> None:
        """Ignore typer's initial value, which has no commands."""


def imported_app(module: str, summary: str) -> typer.Typer:
    """Return the commands in ``app`` of a module, without importing it yet."""
    group = type("Group", (ImportedGroup,), {"module": module})
    return typer.Typer(cls=group, help=summary, no_args_is_help=True)


class ProgramGroup(TyperGroup):
    """All commands: of this package, and of entry points, which are loaded when first used."""

    @cached_property
    def _entry_points(self) -> dict[str, metadata.EntryPoint]:
        return {each.name: each for each in metadata.entry_points(group=ENTRY_POINTS)}

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, without loading entry points."""
        own = super().list_commands(ctx)
        return own + sorted(self._entry_points.keys() - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if it does not exist or cannot be imported."""
        point = self._entry_points.get(cmd_name)
        if cmd_name not in self.commands and point is not None:
            try:
                self.commands[cmd_name] = _load_command(point)
            except (ImportError, AttributeError) as error:
                logger.warning(
                    "no command '%s': %s cannot be loaded: %s", point.name, point.value, error
                )
        return super().get_command(ctx, cmd_name)


def _load_command(point: metadata.EntryPoint) -> Any:
    loaded = point.load()
    if isinstance(loaded, typer.Typer):
        command: Any = typer.main.get_group(loaded)
    else:
        app = typer.Typer(add_completion=False)
        app.command(point.name)(loaded)
        command = typer.main.get_command(app)
    command.name = point.name
    return command
