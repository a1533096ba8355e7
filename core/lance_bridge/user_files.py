"""The locations of a user's files: the configuration, and the state of migrations.

Imports nothing from this package, because shell completion waits for it.
"""

from __future__ import annotations

import os
from pathlib import Path

CONFIG_FILE_VARIABLE = "LANCE_BRIDGE_CONFIG"
STATE_VARIABLE = "LANCE_BRIDGE_STATE"
MIGRATIONS = "migrations"
"""The directory in a state directory that has one subdirectory per migration identifier."""


def config_path() -> Path:
    """Return where the configuration file is, or would be."""
    chosen = os.environ.get(CONFIG_FILE_VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".lance-bridge.yaml"


def default_directory() -> Path:
    """Return ``$LANCE_BRIDGE_STATE``, else ``lance-bridge`` in the user's state directory.

    That is ``$XDG_STATE_HOME``, or ``~/.local/state``. Source: XDG Base Directory Specification.
    """
    chosen = os.environ.get(STATE_VARIABLE)
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "lance-bridge"
