"""Java for Spark and the embedded metastore: a runtime, a compiler, and jars of Maven's repository.

Only the standard library is imported, because the build of the wheel uses this package, too.
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "LANCE_BRIDGE_CACHE"


def cache_directory() -> Path:
    """Return the user's directory of what is fetched or compiled, which need not exist."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return Path(configured).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "lance-bridge"
