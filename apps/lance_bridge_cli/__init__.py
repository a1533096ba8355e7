"""The command ``lance-bridge``. It needs the extra ``cli``; `app` defines the commands."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from lance_bridge.exit_codes import INTERRUPTED


def main() -> None:
    """Run the command line. Ctrl-C always ends it without a traceback."""
    try:
        from .streams import checked_streams  # noqa: PLC0415 - Ctrl-C may end the import

        with checked_streams():
            _require_typer()
            from .app import app  # noqa: PLC0415 - typer may be missing

            app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _require_typer() -> None:
    """Exit with the install command if the extra is missing."""
    if find_spec("typer") is not None:
        return
    from lance_bridge.extras import MissingExtraError, require  # noqa: PLC0415 - takes two seconds

    try:
        require("cli", "typer")
    except MissingExtraError as error:
        sys.exit(str(error))
