"""The command ``lance-bridge``. It needs the extra ``cli``; `app` has the commands."""

from __future__ import annotations

import sys

from lance_namespace.errors import LanceNamespaceError

from ..extras import require


def main() -> None:
    """Run the command that the arguments name."""
    try:
        require("cli", "typer")
    except LanceNamespaceError as error:
        sys.exit(str(error))
    from .app import app  # noqa: PLC0415 - typer may be missing

    app()
