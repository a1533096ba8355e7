"""The conformance kit against a catalog: ``python -m lance_bridge.testing`` under another name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .common import told
from .completion import catalog_names

PASSED_ON: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": []}
"""Settings of the command: options are passed on as they are, ``--help`` too."""

_PROGRAM = "lance-bridge check"


def check(
    arguments: Annotated[list[str] | None, typer.Argument(autocompletion=catalog_names)] = None,
) -> None:
    """Try out what any Lance namespace must do, in namespaces of its own, which go at the end."""
    from lance_bridge import kit_options  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.extras import require  # noqa: PLC0415 - the same

    given = kit_options.parse(arguments or [], _PROGRAM)
    with told():
        require("testing", "pytest", "hypothesis")
    from lance_bridge.testing import command  # noqa: PLC0415 - pytest may be missing

    raise typer.Exit(command.run(given, _PROGRAM))
