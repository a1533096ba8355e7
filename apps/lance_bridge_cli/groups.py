"""Groups of commands whose module is imported when one of their commands is used, not to list them.

The libraries that the commands work with take seconds to import; ``lance-bridge --help`` and the
completion of a group's name need none of them.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class ImportedGroup(TyperGroup):
    """A group that imports its module when its commands are asked for."""

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
        """Ignore what typer sets at first: it knows of no commands."""


def imported_app(module: str, summary: str) -> typer.Typer:
    """Return the commands of a module, which has them as ``app``, without importing it yet."""
    group = type("Group", (ImportedGroup,), {"module": module})
    return typer.Typer(cls=group, help=summary, no_args_is_help=True)


def add_group(app: typer.Typer, name: str, module: str, summary: str) -> None:
    """Add the commands of a module of this package, which has them as ``app``, as a group."""
    app.add_typer(imported_app(f"{__package__}.{module}", summary), name=name)
